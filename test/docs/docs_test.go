// Package docs checks that documents name files, declarations, variables, routes and tasks that exist.
package docs

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	link      = regexp.MustCompile(`\]\(([^):#\s]*)(#[^)\s]*)?\)`) // to a file, or to a heading
	runbook   = regexp.MustCompile(`Runbook: +"(\w+)"`)
	task      = regexp.MustCompile(`\./run ([a-z]+(?::[a-z]+)*)`)
	status    = regexp.MustCompile(`"([45]\d\d)": ?\{`)
	heading   = regexp.MustCompile("(?m)^#+ (.*)$")
	named     = regexp.MustCompile("`((?:\\.ci|bench|cmd|deploy|docs|examples|pkg|services|test|tools)/[A-Za-z0-9_./-]*)`((?:: (?:`[A-Za-z]+`(?:, )?)+)?)")
	symbol    = regexp.MustCompile("`([A-Za-z]+)`")
	variable  = regexp.MustCompile("`?\\b((?:ENABLE|ENRICHER|EXPEDITER|IMPORTER|NATS|NOTIFIER|OTEL|SERVICE)_[A-Z_]+)(\\*?)")
	route     = regexp.MustCompile("`((?:(?:GET|POST|PUT|PATCH|DELETE) )?)(/(?:v1|livez|readyz|metrics|version|health)[^`? ]*)")
	handled   = regexp.MustCompile(`"(GET|POST|PUT|PATCH|DELETE) (/[^"]*)"`)
	constant  = regexp.MustCompile(`= "(/v1/[^"{]*)"`)
	braces    = regexp.MustCompile(`\{[^}]*\}`)
	tested    = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	promised  = regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")
	fence     = regexp.MustCompile("(?m)^```(?:go|js|ts)$")
	quotation = regexp.MustCompile("(?s)<!-- (\\S+\\.(?:go|mjs|ts)) -->\n+```(?:go|js|ts)\n(.*?\n)```\n")
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

// Documents name paths of this repository, and declarations in them: `pkg/kvlock/guard.go`: `Put`.
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

// Documents name the test of what they promise.
func TestTestsThatDocumentsNameExist(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{}
	for _, code := range files(t, "_test.go") {
		for _, found := range tested.FindAllStringSubmatch(code, -1) {
			declared[found[1]] = true
		}
	}
	for document, text := range files(t, ".md") {
		for _, found := range promised.FindAllStringSubmatch(text, -1) {
			check.That(t, declared[found[1]], "%s names %s, which does not exist", document, found[1])
		}
	}
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
			isPrefix := func(name string) bool {
				return (found[2] != "" || strings.HasSuffix(found[1], "_")) && strings.HasPrefix(name, found[1])
			}
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

// Documents quote programs, after a comment with the file. CI runs these outside of the repository.
func TestQuotedProgramsAreThoseOfTheFiles(t *testing.T) {
	t.Parallel()
	quoted := map[string]bool{}
	for path, text := range files(t, ".md") {
		all := quotation.FindAllStringSubmatch(text, -1)
		check.Equal(t, len(all), len(fence.FindAllString(text, -1)), "programs that "+path+" quotes")
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
	check.That(t, len(quoted) >= 5, "documents quote %d programs: want at least five", len(quoted))
}

func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	t.Parallel()
	documents := files(t, ".md")
	linked := 0
	for path, text := range documents {
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			linked++
			target := path
			if found[1] != "" {
				target = filepath.Join(filepath.Dir(path), found[1])
			}
			_, err := os.Stat(filepath.Join("..", "..", target))
			check.That(t, err == nil, "%s links to %s: %v", path, found[1], err)
			check.That(t, found[2] == "" || hasHeading(documents[target], found[2][1:]),
				"%s links to %s%s: there is no such heading", path, found[1], found[2])
		}
	}
	check.That(t, linked >= 60, "%d links are too few to be all", linked)
}

// hasHeading reports whether a document has a heading with this anchor.
func hasHeading(text, anchor string) bool {
	for _, found := range heading.FindAllStringSubmatch(text, -1) {
		words := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case strings.ContainsRune("`.,:;?!'()/", r):
				return -1
			}
			return r
		}, strings.ToLower(found[1]))
		if words == anchor {
			return true
		}
	}
	return false
}

// A check of the doctor names a section of the runbooks.
func TestRunbooksExist(t *testing.T) {
	t.Parallel()
	runbooks, named := files(t, ".md")["docs/runbooks.md"], 0
	for file, text := range files(t, ".go") {
		for _, found := range runbook.FindAllStringSubmatch(text, -1) {
			named++
			check.That(t, hasHeading(runbooks, found[1]), "%s: there is no runbook %s", file, found[1])
		}
	}
	check.That(t, named >= 5, "%d runbooks are too few to be all", named)
}

// The page about the interfaces lists each status that one of them describes for an error.
func TestProblemsAreListed(t *testing.T) {
	t.Parallel()
	page, statuses := files(t, ".md")["docs/api.md"], 0
	for file, text := range files(t, "api/openapi.json") {
		for _, found := range status.FindAllStringSubmatch(text, -1) {
			statuses++
			check.That(t, regexp.MustCompile(`(?m)^\|[ \d,]* `+found[1]+`\b`).MatchString(page), "%s has the status %s, and docs/api.md has not",
				file, found[1])
		}
	}
	check.That(t, statuses >= 100, "%d statuses are too few to be all", statuses)
	given := map[string]bool{}
	for file, text := range files(t, ".go") {
		for _, found := range problemCode.FindAllStringSubmatch(text, -1) {
			code := found[1]
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			given[code] = true
			check.That(t, strings.Contains(page, "`"+code+"`"), "%s has the code %s, and docs/api.md has not", file, code)
		}
	}
	for _, found := range listedCode.FindAllStringSubmatch(page, -1) {
		check.That(t, given[found[1]] || strings.HasPrefix(found[1], "QUOTA_"), "docs/api.md has the code %s, and no source has", found[1])
	}
}

var (
	problemCode = regexp.MustCompile(`Problem\{[^}]*Code: "([A-Z_]+)"`)
	listedCode  = regexp.MustCompile("(?m)^\\| \\d+ \\| .*?`([A-Z]+_[A-Z_]+)`")
)

// A task that a document names is in the Taskfile.
func TestTasksOfDocumentsExist(t *testing.T) {
	t.Parallel()
	tasks, named := files(t, "Taskfile.yml")["Taskfile.yml"], 0
	for file, text := range files(t, ".md") {
		for _, found := range task.FindAllStringSubmatch(text, -1) {
			named++
			check.That(t, strings.Contains(tasks, "\n  "+found[1]+":\n"), "%s: there is no task %s", file, found[1])
		}
	}
	check.That(t, named >= 5, "%d tasks are too few to be all", named)
}

var (
	aTest   = regexp.MustCompile(`(?m)^func (Test|Fuzz)[A-Z]`)
	checker = regexp.MustCompile(`(crash\.Main|goleak\.Find|goleak\.VerifyTestMain|natstest\.LeakChecked|natstest\.Main)\b`)
)

// The TestMain of each package with tests checks for leaked goroutines. First programs are shown as users write them, without.
func TestEveryPackageChecksForLeaks(t *testing.T) {
	t.Parallel()
	tested, checked := map[string]bool{}, map[string]bool{}
	for path, text := range files(t, "_test.go") {
		if strings.Contains(path, "/testdata/") {
			continue
		}
		dir := filepath.Dir(path)
		tested[dir] = tested[dir] || aTest.MatchString(text)
		checked[dir] = checked[dir] || strings.Contains(text, "func TestMain(") && checker.MatchString(text)
	}
	for dir := range tested {
		check.That(t, !tested[dir] || checked[dir] || dir == "deploy/nats", "%s: no TestMain checks for leaked goroutines", dir)
	}
	check.That(t, len(tested) >= 100, "%d packages with tests are too few to be all", len(tested))
}

// bounds is a line of the table of streams: name, bound, age, and behaviour when it is full.
var bounds = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([0-9]+ [MG]iB)(?:, [^|]+)? \\| ([^|]+) \\| (refuses|drops the oldest) \\| ([^|]+) \\|$")

// The table in docs/operate.md has every stream and bucket, as it is declared, and each has a bound.
func TestTheTableOfBoundsIsDeclared(t *testing.T) {
	t.Parallel()
	text := check.Must(os.ReadFile(filepath.Join("..", "..", "docs", "operate.md")))(t)
	listed := map[string][]string{}
	for _, line := range bounds.FindAllStringSubmatch(string(text), -1) {
		listed[line[1]] = line[2:]
	}
	declared := contracts.Assets(contracts.AssetOptions{})
	for _, c := range declared {
		line, ok := listed[c.Name]
		if !ok || c.MaxBytes <= 0 {
			t.Errorf("%s is not listed, or has no bound of bytes: %d", c.Name, c.MaxBytes)
			continue
		}
		want := size(c.MaxBytes)
		check.That(t, line[0] == want, "the bound of %s is %s, want %s", c.Name, line[0], want)
		if want := fmt.Sprintf("%d days", c.MaxAge/(24*time.Hour)); c.MaxAge > 0 && line[1] != want {
			t.Errorf("the age of %s is %s, want %s", c.Name, line[1], want)
		}
		want, noticed := "refuses", "gauge, readiness"
		if c.Discard == jetstream.DiscardOld {
			want, noticed = "drops the oldest", "gauge, alert"
		}
		check.Equal(t, line[2], want, c.Name+" when it is full")
		check.That(t, c.Name == "KV_"+contracts.BucketLocks || strings.HasPrefix(c.Name, contracts.StreamAudit) || line[3] == noticed,
			"%s is noticed by %s, want %s", c.Name, line[3], noticed)
	}
	check.Equal(t, len(listed), len(declared), "len(listed)")
}

func size(bytes int64) string {
	if bytes%(1<<30) == 0 {
		return fmt.Sprintf("%d GiB", bytes>>30)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
