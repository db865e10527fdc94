package docs

import (
	"go/ast"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// hosts are those that documents may lead to. Each page there was looked at, or its owner's name.
var hosts = []string{
	"github.com", "pkg.go.dev", "go.dev", "keepachangelog.com", "semver.org",
	"docs.knock.app", "docs.novu.co", "docs.svix.com", "www.standardwebhooks.com",
	"docs.powertools.aws.dev", "redisson.pro", "redis.io", "martin.kleppmann.com",
	"developer.apple.com", "firebase.google.com", "api.slack.com", "schemas.expediter.io", "vuln.go.dev",
}

var (
	external = regexp.MustCompile("https?://[^\\s)\"'`<>\\]]+")
	docLink  = regexp.MustCompile(`(?:^|[\s(])\[\*?([A-Za-z]\w*)((?:\.[A-Z]\w*){0,2})\]`)
	indented = regexp.MustCompile(`(?m)^\t.*$`)
	pathOf   = regexp.MustCompile(`\b(?:bench|cmd|deploy|docs|examples|pkg|services|test|tools)/[\w./-]*\.(?:md|go|yaml|json|conf)\b`)
	goName   = regexp.MustCompile("`([a-z]+)\\.([A-Z]\\w*(?:\\.[A-Z]\\w*)?)")
	runbook  = regexp.MustCompile(`Runbook: +"(\w+)"`)
	task     = regexp.MustCompile(`\./run ([a-z]+(?::[a-z]+)*)`)
	status   = regexp.MustCompile(`"([45]\d\d)": ?\{`)
	anchor   = regexp.MustCompile(`href="#([^"]+)"`)
)

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

// Links to other sites are of a few hosts, and by https. Whether a page is still there, no test without a network knows.
func TestExternalLinksAreOfFewHosts(t *testing.T) {
	t.Parallel()
	linked := 0
	look := func(file, text string) {
		for _, found := range external.FindAllString(text, -1) {
			u, err := url.Parse(strings.TrimRight(found, ".,:;"))
			check.Require(t, err == nil, "%s: %s: %v", file, found, err)
			if isReserved(u.Hostname()) {
				continue
			}
			linked++
			check.That(t, u.Scheme == "https" && slices.Contains(hosts, u.Hostname()), "%s leads to %s: use https, and a host of the list", file, found)
		}
	}
	for file, text := range files(t, ".md") {
		look(file, inline.ReplaceAllString(fenced.ReplaceAllString(text, ""), ""))
	}
	for file, text := range files(t, ".html") {
		if strings.HasPrefix(file, "services/") {
			look(file, text)
		}
	}
	check.That(t, linked >= 20, "%d links are too few to be all", linked)
}

// isReserved reports whether a host is one of examples, or of this machine.
func isReserved(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || !strings.Contains(host, ".") ||
		regexp.MustCompile(`(^|\.)(example|invalid|example\.(com|org|net))$`).MatchString(host)
}

// Comments name declarations of the package or of one that the file imports, and files that exist. So do documents, and the pages that
// services serve.
func TestCommentsAndPagesLeadSomewhere(t *testing.T) {
	t.Parallel()
	sources, declared := files(t, ".go"), map[string]map[string]bool{}
	parsed := map[string]*ast.File{}
	for file, text := range sources {
		_, parsed[file] = parse(t, file, text)
		declare(declared, path.Dir(file), parsed[file])
	}
	links, all := 0, allFiles(t)
	for file, tree := range parsed {
		for _, group := range tree.Comments {
			text := indented.ReplaceAllString(group.Text(), "")
			for _, found := range pathOf.FindAllString(text, -1) {
				check.That(t, all[found] || all[path.Join(path.Dir(file), found)], "%s names %s, which does not exist", file, found)
			}
			for _, found := range docLink.FindAllStringSubmatch(text, -1) {
				dir, name := resolve(tree, path.Dir(file), found[1], found[2])
				if declared[dir] != nil {
					links++
					check.That(t, declared[dir][name], "%s: %s leads nowhere", file, found[0])
				}
			}
		}
	}
	pages := files(t, ".md")
	links += namesOf(t, pages, declared)
	runbooks := pages["docs/runbooks.md"]
	for file, text := range sources {
		for _, found := range runbook.FindAllStringSubmatch(text, -1) {
			links++
			check.That(t, hasHeading(runbooks, found[1]), "%s: there is no runbook %s", file, found[1])
		}
	}
	for file, text := range files(t, "docs.html") {
		for _, found := range anchor.FindAllStringSubmatch(text, -1) {
			links++
			check.That(t, strings.Contains(text, `id="`+found[1]+`"`), "%s: nothing has the id %s", file, found[1])
		}
	}
	check.That(t, links >= 500, "%d links are too few to be all", links)
}

// namesOf checks the Go names in documents, such as kvlock.Guard and worker.Config.AckWait, and returns their number.
func namesOf(t *testing.T, pages map[string]string, declared map[string]map[string]bool) (names int) {
	t.Helper()
	folders := map[string][]string{}
	for dir := range declared {
		if strings.HasPrefix(dir, "pkg/") || strings.HasPrefix(dir, "services/") {
			folders[path.Base(dir)] = append(folders[path.Base(dir)], dir)
		}
	}
	for file, text := range pages {
		for _, found := range goName.FindAllStringSubmatch(text, -1) {
			if dirs := folders[found[1]]; dirs != nil && file != "CHANGELOG.md" { // which names things that are gone
				names++
				is := func(dir string) bool { return declared[dir][found[2]] }
				check.That(t, slices.ContainsFunc(dirs, is), "%s names %s, which is not declared", file, found[0])
			}
		}
	}
	return names
}

// The page about the interfaces lists each status that one of them describes for an error.
func TestProblemsAreListed(t *testing.T) {
	t.Parallel()
	page, statuses := files(t, ".md")["docs/api.md"], 0
	for file, text := range files(t, "httpapi/openapi.json") {
		for _, found := range status.FindAllStringSubmatch(text, -1) {
			statuses++
			check.That(t, regexp.MustCompile(`(?m)^\|[ \d,]* `+found[1]+`\b`).MatchString(page), "%s has the status %s, and docs/api.md has not", file, found[1])
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
	check.That(t, named >= 20, "%d tasks are too few to be all", named)
}

// declare adds the declarations of a file, methods and fields behind their types.
func declare(declared map[string]map[string]bool, dir string, file *ast.File) {
	if declared[dir] == nil {
		declared[dir] = map[string]bool{}
	}
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				receiver := d.Recv.List[0].Type
				ast.Inspect(receiver, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok && !strings.Contains(name, ".") {
						name = id.Name + "." + name
					}
					return true
				})
			}
			declared[dir][name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, id := range s.Names {
						declared[dir][id.Name] = true
					}
				case *ast.TypeSpec:
					declared[dir][s.Name.Name] = true
					ast.Inspect(s.Type, func(n ast.Node) bool {
						if field, ok := n.(*ast.Field); ok {
							for _, id := range field.Names {
								declared[dir][s.Name.Name+"."+id.Name] = true
							}
						}
						return true
					})
				}
			}
		}
	}
}

const module = "github.com/expediter-io/expediter/"

// resolve returns the folder and the name that a link of a comment is about.
func resolve(file *ast.File, dir, first, rest string) (folder, name string) {
	if ast.IsExported(first) {
		return dir, first + rest
	}
	for _, spec := range file.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value) //nolint:errcheck // it was parsed
		if path.Base(imported) == first && rest != "" {
			return strings.TrimPrefix(imported, module), rest[1:]
		}
	}
	return "", ""
}

// allFiles returns the paths of all files.
func allFiles(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for file := range files(t, "") {
		all[file] = true
	}
	return all
}
