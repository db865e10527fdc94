// Package docs checks the names of files, tests and declarations in documents.
package docs

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	testName  = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)`")
	testFunc  = regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9]*)\(t \*testing\.T\)`)
	placed    = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)` in `([a-z/]+)`")
	link      = regexp.MustCompile(`\]\(([^):#\s]*)(#[^)\s]*)?\)`) // to a file, or to a heading
	heading   = regexp.MustCompile("(?m)^#+ (.*)$")
	named     = regexp.MustCompile("`((?:\\.ci|bench|cmd|deploy|docs|examples|pkg|services|test|tools)/[A-Za-z0-9_./-]*)`((?:: (?:`[A-Za-z]+`(?:, )?)+)?)")
	symbol    = regexp.MustCompile("`([A-Za-z]+)`")
	variable  = regexp.MustCompile("`?\\b((?:ENABLE|ENRICHER|EXPEDITER|IMPORTER|NATS|NOTIFIER|OTEL|SERVICE)_[A-Z_]+)(\\*?)")
	route     = regexp.MustCompile("`((?:(?:GET|POST|PUT|PATCH|DELETE) )?)(/(?:v1|livez|readyz|metrics|version|health)[^`? ]*)")
	handled   = regexp.MustCompile(`"(GET|POST|PUT|PATCH|DELETE) (/[^"]*)"`)
	constant  = regexp.MustCompile(`= "(/v1/[^"{]*)"`)
	braces    = regexp.MustCompile(`\{[^}]*\}`)
	quotation = regexp.MustCompile("(?s)<!-- (\\S+\\.(?:go|ts)) -->\n+```(?:go|ts)\n(.*?\n)```\n")
	imports   = regexp.MustCompile(`(?s)\nimport \(.*?\n\)\n`)
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
		case entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		text, err := fs.ReadFile(root, path)
		found[path] = string(text)
		return err
	})
	check.OK(t, err)
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
			check.That(t, tests[found[1]], "%s names %s: there is no such test", path, found[1])
		}
	}
	check.That(t, named >= 40, "%d tests are named: fewer than docs/recovery.md alone has", named)
}

// Each row of the requirements names a test and its folder, or says that the point is not met.
func TestRequirementsAreMetByTheTestsTheyName(t *testing.T) {
	t.Parallel()
	tests := map[[2]string]bool{}
	for path, text := range files(t, "_test.go") {
		for _, found := range testFunc.FindAllStringSubmatch(text, -1) {
			tests[[2]string{found[1], filepath.Dir(path)}] = true
		}
	}
	rows := 0
	for line := range strings.Lines(files(t, ".md")["docs/requirements.md"]) {
		if cells := strings.Split(line, "|"); len(cells) == 5 && !strings.HasPrefix(line, "|---") && strings.TrimSpace(cells[3]) != "test" {
			rows++
			met := strings.Contains(cells[2], "**not met**")
			if found := placed.FindStringSubmatch(cells[3]); len(found) > 0 {
				met = tests[[2]string{found[1], found[2]}]
			}
			check.That(t, met, "there is no test as the row names it: %s", line)
		}
	}
	check.That(t, rows >= 70, "%d rows are too few to be all", rows)
}

// Documents name paths of this repository, and beside them declarations there: `pkg/kvlock/guard.go`: `Put`.
func TestPathsThatDocumentsNameExist(t *testing.T) {
	t.Parallel()
	paths, symbols := 0, 0
	for path, text := range files(t, ".md") {
		for _, found := range named.FindAllStringSubmatch(text, -1) {
			paths++
			target := filepath.Join("..", "..", found[1])
			if _, err := os.Stat(target); err != nil {
				target = filepath.Join("..", "..", filepath.Dir(path), found[1])
			}
			code, err := os.ReadFile(target)
			if _, missing := os.Stat(target); missing != nil {
				t.Errorf("%s names %s: %v", path, found[1], missing)
				continue
			}
			for _, name := range symbol.FindAllStringSubmatch(found[2], -1) {
				symbols++
				check.That(t, err == nil && declares(string(code), name[1]), "%s names %s of %s, which does not declare it", path, name[1], found[1])
			}
		}
	}
	check.That(t, paths >= 60 && symbols >= 30, "%d paths and %d symbols are too few to be all", paths, symbols)
}

// declares reports whether a Go file declares a function, method or type of this name.
func declares(code, name string) bool {
	return regexp.MustCompile(`(?m)^(?:func (?:\([^)]*\) )?|type )` + name + `\b`).MatchString(code)
}

func TestVariablesThatDocumentsNameAreRead(t *testing.T) {
	t.Parallel()
	read := map[string]bool{}
	for _, suffix := range []string{".go", ".conf"} {
		for path, text := range files(t, suffix) {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, found := range variable.FindAllStringSubmatch(text, -1) {
				read[found[1]] = true
			}
		}
	}
	variables := 0
	for path, text := range files(t, ".md") {
		for _, found := range variable.FindAllStringSubmatch(text, -1) {
			variables++
			name := strings.TrimSuffix(found[1], "_FILE") // with which the value of any variable is read
			general := name
			for _, service := range []string{"ENRICHER_", "IMPORTER_", "NOTIFIER_"} {
				general = strings.Replace(general, service, "SERVICE_", 1)
			}
			isPrefix := func(name string) bool { return found[2] != "" && strings.HasPrefix(name, found[1]) }
			check.That(t, read[name] || read[general] || slices.ContainsFunc(slices.Collect(maps.Keys(read)), isPrefix),
				"%s names the variable %s: nothing reads it", path, found[0])
		}
	}
	check.That(t, variables >= 40, "%d variables are too few to be all", variables)
}

func TestRoutesThatDocumentsNameAreServed(t *testing.T) {
	t.Parallel()
	served, anyMethod, constants := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for path, text := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, found := range handled.FindAllStringSubmatch(text, -1) {
			served[found[1]+" "+braces.ReplaceAllString(found[2], "{}")] = true
			anyMethod[braces.ReplaceAllString(found[2], "{}")] = true
		}
		for _, found := range constant.FindAllStringSubmatch(text, -1) {
			constants[found[1]] = true
		}
	}
	routes := 0
	for path, text := range files(t, ".md") {
		if !strings.HasPrefix(path, "docs/") && path != "README.md" {
			continue
		}
		for _, found := range route.FindAllStringSubmatch(text, -1) {
			routes++
			pattern := braces.ReplaceAllString(found[2], "{}")
			check.That(t, served[found[1]+pattern] || constants[pattern] || found[1] == "" && anyMethod[pattern],
				"%s names the route %s%s, which no service has", path, found[1], found[2])
		}
	}
	check.That(t, routes >= 30, "%d routes are too few to be all", routes)
}

// A long first page is not read.
func TestFirstPagesAreShort(t *testing.T) {
	t.Parallel()
	documents := files(t, ".md")
	check.That(t, len(strings.Fields(documents["README.md"])) <= 1300, "README.md has more than 1300 words")
	architecture := documents["ARCHITECTURE.md"]
	lines := strings.Count(architecture, "\n")
	check.That(t, lines <= 200, "ARCHITECTURE.md has %d lines: at most 200", lines)
	_, rest, _ := strings.Cut(architecture, "\n## Where is\n")
	where, words, _ := strings.Cut(rest, "\n## Words\n")
	const head = 2 // lines of a table
	rows := strings.Count(where, "\n|") - head
	check.That(t, rows >= 20, "%d questions are answered in ARCHITECTURE.md: at least 20", rows)
	rows = strings.Count(words, "\n|") - head
	check.That(t, rows <= 25 && rows >= 15, "%d words are defined in ARCHITECTURE.md: at most 25", rows)
}

// Documents quote programs, after a comment with the file. CI runs these outside of the repository.
func TestQuotedProgramsAreThoseOfTheFiles(t *testing.T) {
	t.Parallel()
	quoted := map[string]bool{}
	for path, text := range files(t, ".md") {
		all := quotation.FindAllStringSubmatch(text, -1)
		check.Same(t, "programs that "+path+" quotes", len(all), strings.Count(text, "```go\n")+strings.Count(text, "```ts\n"))
		for _, found := range all {
			quoted[found[1]] = true
			program, err := os.ReadFile(filepath.Join("..", "..", found[1]))
			if err != nil {
				t.Errorf("%s quotes %s: %v", path, found[1], err)
			} else if !strings.Contains("\n"+string(program), "\n"+found[2]) {
				t.Errorf("%s quotes %s, which does not have these lines:\n%s", path, found[1], found[2])
			}
		}
	}
	check.That(t, len(quoted) >= 5, "documents quote %d programs: want the five first programs", len(quoted))
}

// A first program is read in one go: it has at most 25 lines, beside imports, comments and blank lines.
func TestFirstProgramsAreShort(t *testing.T) {
	t.Parallel()
	programs := 0
	for path, text := range files(t, ".go") {
		if !strings.HasPrefix(path, "test/outside/testdata/") {
			continue
		}
		programs++
		lines := 0
		for line := range strings.Lines(imports.ReplaceAllString(text, "\n")) {
			line = strings.TrimSpace(line)
			if line != "" && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
		check.That(t, lines <= 25, "%s has %d lines: at most 25", path, lines)
	}
	check.That(t, programs >= 5, "%d programs: want five", programs)
}
