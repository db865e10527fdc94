package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Every command that asks a service sends the caller's key as it stands in the file or the variable, the file first. One that
// is not one line is refused before a request is made, and is not repeated in the error.
func TestKeyOfTheCaller(t *testing.T) {
	t.Parallel()
	const (
		inFile     = "ek_of-the-file"
		inVariable = "ek_of-the-variable"
	)
	for name, c := range map[string]struct {
		file, variable string
		want           string // the header of the request
		refused        string // what the error names
	}{
		"none":                 {},
		"variable":             {variable: inVariable + "\n", want: "Bearer " + inVariable},
		"file":                 {file: inFile + "\r\n", want: "Bearer " + inFile},
		"file before variable": {file: inFile, variable: inVariable, want: "Bearer " + inFile},
		"empty file":           {file: "\n", refused: "--key-file"},
		"two lines":            {file: inFile + "\n" + inFile, refused: "--key-file"},
		"long file":            {file: inFile + strings.Repeat(" ", maxKey), refused: "--key-file"},
		"long key":             {file: strings.Repeat("k", maxKey+1), refused: "--key-file"},
		"variable with spaces": {variable: inVariable + " " + inVariable, refused: "EXPEDITER_KEY"},
		"variable not ASCII":   {variable: inVariable + "é", refused: "EXPEDITER_KEY"},
	} {
		for command, args := range map[string][]string{
			"import": {"import", "status", "job-1"},
			"enrich": {"enrich", "--output", "jsonl", "--format", "csv", "-"},
		} {
			t.Run(name+"/"+command, func(t *testing.T) {
				t.Parallel()
				got := make(chan string, 100)
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					got <- r.Header.Get("Authorization")
					http.Error(w, "no", http.StatusForbidden)
				}))
				defer srv.Close()
				args := append(slices.Clip(args), "--url", srv.URL)
				if c.file != "" {
					path := filepath.Join(t.TempDir(), "key")
					check.OK(t, os.WriteFile(path, []byte(c.file), 0o600))
					args = append(args, "--key-file", path)
				}
				var stderr bytes.Buffer
				env := func(variable string) string {
					if variable == "EXPEDITER_KEY" {
						return c.variable
					}
					return ""
				}
				code := Run(t.Context(), Config{Getenv: env, OpenEnricher: OpenPipeline, Stderr: &stderr, Stdin: strings.NewReader("id,name,address,city\np1,Kiosk,Herzl 1,Haifa\n"), Stdout: &stderr}, args)
				if code == 0 {
					t.Fatalf("exits with 0 where every request is refused: %s", &stderr)
				}
				if c.refused != "" {
					if len(got) > 0 || !strings.Contains(stderr.String(), c.refused) || strings.Contains(stderr.String(), "ek_") {
						t.Errorf("%d requests, and the error %q: want none, and one that names %s and no key", len(got), &stderr, c.refused)
					}
					return
				}
				if len(got) == 0 {
					t.Fatalf("no request: %s", &stderr)
				}
				check.Same(t, "Authorization", <-got, c.want)
			})
		}
	}
}
