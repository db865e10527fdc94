package input

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestDocuments(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		want []string // "line/index body", or "! error"
	}{
		"empty":         {"", nil},
		"white space":   {" \r\n\t\n", nil},
		"one":           {`{"a":1}`, []string{`1/0 {"a":1}`}},
		"lines":         {"{\"a\":1}\n\n  {\"a\":2}\r\n", []string{`1/0 {"a":1}`, `3/0 {"a":2}`}},
		"broken line":   {"{\"a\":1}\n{\n{\"a\":2}", []string{`1/0 {"a":1}`, `2/0 {`, `3/0 {"a":2}`}},
		"long line":     {"{\"a\":1}\n{\"a\":\"" + strings.Repeat("x", 100) + "\"}\n{\"a\":2}", []string{`1/0 {"a":1}`, "! stdin:2: the line is longer than 64 bytes", `3/0 {"a":2}`}},
		"after another": {"{\n\"a\":1\n}\n{\n\"a\":2}", []string{"1/0 {\n\"a\":1\n}", "4/0 {\n\"a\":2}"}},
		"array":         {"[{\"a\":1},\n{\"a\":2},3]\n", []string{`1/1 {"a":1}`, `2/2 {"a":2}`, `2/3 3`}},
		"empty array":   {" [ ] ", nil},
		"open array":    {"[{\"a\":1},\n", []string{`1/1 {"a":1}`, "! stdin:2: input: syntax error: not valid JSON: the text ends too early"}},
		"behind array":  {"[1] 2", []string{`1/1 1`, "! stdin:1: input: syntax error: there is more behind the array"}},
		"broken value":  {"{\n\"a\":1}\n{\n\"a\" 1}", []string{"1/0 {\n\"a\":1}", "! stdin:4: input: syntax error: not valid JSON: invalid character '1' after object key"}},
		"large value":   {"{\n\"a\":\"" + strings.Repeat("x", 100) + "\"}", []string{"! stdin:1: input: record too large: more than 64 bytes"}},
		"text":          {"Dear all,\n", []string{"! stdin:1: input: syntax error: not valid JSON: invalid character 'D' looking for beginning of value"}},
		"byte order":    {"\ufeff[1]", []string{`1/1 1`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for d, err := range Documents(t.Context(), Stdin, strings.NewReader(tc.text), 64) {
				if err != nil {
					got = append(got, "! "+err.Error())
					continue
				}
				got = append(got, fmt.Sprintf("%d/%d %s", d.Position.Line, d.Index, d.Body))
			}
			check.That(t, slices.Equal(got, tc.want), "got %q, want %q", got, tc.want)
		})
	}
}

func TestDocumentsOfFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.NDJSON")
	check.OK(t, os.WriteFile(path, []byte("{\n{\"a\":1}\n"), 0o600))
	var last Document
	n := 0
	for d, err := range Documents(t.Context(), path, nil, 64) {
		check.OK(t, err)
		last, n = d, n+1
	}
	check.That(t, n == 2 && last.Offset == 10 && last.Where() == path+":2", "%d, the last %+v", n, last)
	for _, err := range Documents(t.Context(), path+".gone", nil, 64) {
		check.Is(t, err, fs.ErrNotExist)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := 0
	for _, err := range Documents(ctx, path, nil, 64) {
		cancel()
		check.That(t, seen != 1 || errors.Is(err, context.Canceled), "goes on: %v", err)
		seen++
	}
	check.Same(t, "yields", seen, 2)
}
