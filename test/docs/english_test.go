package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// unclear are patterns that hide the subject of a sentence, and words that better ones have replaced. Each match is a
// mistake: name the holder, the caller, the waiter, the worker, or use the word of ARCHITECTURE.md.
var unclear = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\bwho(?:m|so)?ever\b`),
	regexp.MustCompile(`(?:^|[.:;!?)] )Who\b`),
	regexp.MustCompile(`(?:^|[.:;!?)] )What [^.?]*(?:\.|$)`), // but no question
	regexp.MustCompile(`(?i)\b(?:by|for|from|of|to|with) who\b`),
	retired,
}

// retired are words that better ones have replaced, in sentences and in names.
var retired = regexp.MustCompile(`(?i)\b(?:bur(?:y|ies|ied)|excus(?:e|es|ed)|forgiven?|hir(?:e|es|ed)|insist(?:s|ed)?|nudg(?:e|es|ed)|vigils?)\b`)

// metaphors are plain words in sentences, and in names had to be decoded: they stood for stores, records, permits and contexts.
var metaphors = regexp.MustCompile(`(?i)\b(?:books?|desks?|ledgers?|punctual|seats?|shel(?:f|ves))\b`)

// humps are the ends of the words of a name, each before the beginning of the next.
var humps = []*regexp.Regexp{regexp.MustCompile(`([a-z0-9])([A-Z])`), regexp.MustCompile(`([A-Z])([A-Z][a-z])`), regexp.MustCompile(`([A-Za-z0-9])_()`)}

// words returns the words of a name.
func words(name string) string {
	for _, hump := range humps {
		name = hump.ReplaceAllString(name, "$1 $2")
	}
	return name
}

var (
	fenced = regexp.MustCompile("(?s)```.*?```")
	inline = regexp.MustCompile("`[^`\n]*`")
	hashed = regexp.MustCompile(`(?m)(?:^\s*#.*\n)+`) // a comment of a configuration
)

// mistakes returns the matches of unclear patterns in a text, each with the words around it.
func mistakes(text string) []string {
	const around = 30 // bytes
	text = strings.Join(strings.Fields(text), " ")
	var found []string
	for _, pattern := range unclear {
		for _, at := range pattern.FindAllStringIndex(text, -1) {
			found = append(found, fmt.Sprintf("%q", text[max(0, at[0]-around):min(len(text), at[1]+around)]))
		}
	}
	return found
}

func TestSentencesNameTheirSubjects(t *testing.T) {
	t.Parallel()
	comments, documents, settings, help := 0, 0, 0, false
	for path, text := range files(t, ".md") {
		documents++
		help = help || strings.HasSuffix(path, "/cli/help.md")
		for paragraph := range strings.SplitSeq(inline.ReplaceAllString(fenced.ReplaceAllString(text, ""), ""), "\n\n") {
			for _, mistake := range mistakes(paragraph) {
				t.Errorf("%s: %s", path, mistake)
			}
		}
	}
	for path, text := range files(t, ".conf") {
		for _, comment := range hashed.FindAllString(text, -1) {
			settings++
			for _, mistake := range mistakes(strings.ReplaceAll(comment, "#", "")) {
				t.Errorf("%s: %s", path, mistake)
			}
		}
	}
	for path, text := range files(t, ".go") {
		set, file := parse(t, path, text)
		for _, group := range file.Comments {
			comments++
			for _, mistake := range mistakes(group.Text()) {
				t.Errorf("%s: %s", set.Position(group.Pos()), mistake)
			}
		}
	}
	check.That(t, comments >= 5000 && documents >= 10 && settings >= 30 && help,
		"%d comments, %d documents (help of commands: %t) and %d comments of settings are too few to be all", comments, documents, help, settings)
}

func TestNamesUseNoRetiredWord(t *testing.T) {
	t.Parallel()
	names := 0
	for path, text := range files(t, ".go") {
		set, file := parse(t, path, text)
		ast.Inspect(file, func(n ast.Node) bool {
			name, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			names++
			if text := words(name.Name); retired.MatchString(text) || metaphors.MatchString(text) {
				t.Errorf("%s: %s: use the word of ARCHITECTURE.md", set.Position(name.Pos()), name.Name)
			}
			return true
		})
	}
	check.Same(t, "words", words("errBuriedInAShelf_of2HTTPBooks"), "err Buried In A Shelf of2 HTTP Books")
	check.That(t, names >= 300_000, "%d names are too few to be all", names)
}

func TestBooleanFunctionsReportWhether(t *testing.T) {
	t.Parallel()
	functions := 0
	for path, text := range files(t, ".go") {
		set, file := parse(t, path, text)
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Doc == nil || function.Type.Results.NumFields() != 1 {
				continue
			}
			if result, ok := function.Type.Results.List[0].Type.(*ast.Ident); !ok || result.Name != "bool" {
				continue
			}
			functions++
			if doc := strings.Join(strings.Fields(function.Doc.Text()), " "); !strings.Contains(doc, "reports whether") {
				t.Errorf("%s: the comment of %s does not say what the function reports: %q", set.Position(function.Pos()),
					function.Name.Name, doc)
			}
		}
	}
	check.That(t, functions >= 100, "%d functions are too few to be all", functions)
}

func parse(t *testing.T, path, text string) (*token.FileSet, *ast.File) {
	t.Helper()
	set := token.NewFileSet()
	file := check.Must(parser.ParseFile(set, path, text, parser.ParseComments|parser.SkipObjectResolution))(t)
	return set, file
}

// blankReturn is a return after a blank line that no comment precedes.
var blankReturn = regexp.MustCompile(`(?m)^\t+[^/\s].*\n\n\t+return\b.*$`)

// All modules have one layout, and the linters have no rule for this part of it: no blank line stands before a return.
func TestReturnsFollowTheirStatements(t *testing.T) {
	t.Parallel()
	returns := 0
	for path, text := range files(t, ".go") {
		returns += strings.Count(text, "\treturn")
		for _, found := range blankReturn.FindAllStringIndex(text, -1) {
			line := 2 + strings.Count(text[:found[1]], "\n") - 1
			t.Errorf("%s:%d: a blank line stands before the return", path, line)
		}
	}
	check.That(t, returns >= 10000, "%d returns are too few to be all", returns)
}
