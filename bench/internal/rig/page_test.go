package rig //nolint:testpackage // pages are written by programs

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestPageIsWrittenInItsPlace(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "page.md")
	begin, end := (&Page{name: "kitchen"}).lines()
	check.OK(t, os.WriteFile(file, []byte("before\n"+begin+"old\n"+end+"after\n"), 0o600))
	page, err := OpenPage("kitchen", file)
	check.OK(t, err)
	p := NewPrinter(io.Discard, Options{page: page})
	p.Note("The oven is hot.")
	got := Results{}
	for _, value := range []float64{3, 1, 2} {
		got.Add("oven", Figures{"pies": value, "plates": value})
	}
	columns := []Column{{Figure: "pies", Title: "pies/h", Format: "%.1f", Spread: true}, {Figure: "plates", Title: "plates", Format: "%.0f"}}
	p.Table("Pies", columns, []Entry{{"oven", "hot"}, {"stove", "cold"}}, got)
	check.OK(t, page.Save([]string{"--rounds", "3", "--write", file, "--only", "^pies/", "--json"}))
	want := strings.Join([]string{
		"before\n" + begin, "```sh\ngo -C bench run ./kitchen --rounds 3 --only '^pies/'\n```\n", "The oven is hot.\n",
		"Pies:\n", "| | pies/h | plates |\n|---|---|---|\n| `oven` | 2.0 [1.0 3.0] | 2 |\n", end + "after\n",
	}, "\n")
	data, err := os.ReadFile(file)
	check.That(t, err == nil && string(data) == want, "it is %v\n%s\nwant\n%s", err, data, want)
	for _, name := range []string{"cellar", "kitchen"} {
		check.Failsf(t, check.Err(OpenPage(name, filepath.Join(t.TempDir(), name))), "a file that is not there is a document")
	}
	check.Failsf(t, check.Err(OpenPage("cellar", file)), "there is a place for a text that has none")
}
