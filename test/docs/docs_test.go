// Package docs checks what documents say of files and tests.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	testName = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)`")
	testFunc = regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9]*)\(t \*testing\.T\)`)
	link     = regexp.MustCompile(`\]\(([^):#\s]+)(?:#[^)\s]*)?\)`) // to a file
)

// files returns the files of the repository with a suffix, by their paths.
func files(t *testing.T, suffix string) map[string]string {
	t.Helper()
	root := os.DirFS("../..")
	found := map[string]string{}
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		text, err := fs.ReadFile(root, path)
		found[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTestsThatDocumentsNameExist(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	for _, text := range files(t, "_test.go") {
		for _, found := range testFunc.FindAllStringSubmatch(text, -1) {
			tests[found[1]] = true
		}
	}
	named := 0
	for path, text := range files(t, ".md") {
		for _, found := range testName.FindAllStringSubmatch(text, -1) {
			named++
			if !tests[found[1]] {
				t.Errorf("%s names %s: there is no such test", path, found[1])
			}
		}
	}
	if named < 40 {
		t.Errorf("%d tests are named: fewer than docs/recovery.md alone has", named)
	}
}

func TestLinkedFilesExist(t *testing.T) {
	t.Parallel()
	linked := 0
	for path, text := range files(t, ".md") {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			linked++
			if _, err := os.Stat(filepath.Join("..", "..", filepath.Dir(path), found[1])); err != nil {
				t.Errorf("%s links to %s: %v", path, found[1], err)
			}
		}
	}
	if linked < 10 {
		t.Errorf("%d links are too few to be all", linked)
	}
}
