package template

import (
	"errors"
	"fmt"
	html "html/template"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	text "text/template"
)

const (
	// MaxFile bounds one file, in bytes.
	MaxFile = 256 << 10

	// defaultLocale is the one for everybody whose locale there is not.
	defaultLocale = "default"

	inertName = "_inert"
)

// locale is how a file may be called: a language tag, or default.
var localeTag = regexp.MustCompile(`^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*$`)

// Load reads a folder. See [Parse].
func Load(folder string, cfg Config) (*Set, error) {
	set, err := Parse(os.DirFS(folder), cfg)
	if err != nil {
		return nil, fmt.Errorf("templates: %s: %w", folder, err)
	}
	return set, nil
}

// Parse reads templates. The error is an [*Error] with every mistake of every file, unless the folder cannot be read.
func Parse(folder fs.FS, cfg Config) (*Set, error) {
	p := &parser{folder: folder, functions: map[string]any{"link": linker(cfg.LinkHosts), "path": path, inertName: inert}}
	byName := map[string]map[string]parts{}
	entries, err := fs.ReadDir(folder, ".")
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the folder
	}
	for _, entry := range entries {
		switch {
		case strings.HasPrefix(entry.Name(), "."):
		case !isFolder(folder, entry):
			p.mistakef(entry.Name(), 0, "is a file: want one folder for each template")
		default:
			byName[entry.Name()] = p.template(entry.Name())
		}
	}
	if len(p.errs.Mistakes) > 0 {
		p.errs.sort()
		return nil, &p.errs
	}
	set := &Set{}
	set.byName.Store(&byName)
	return set, nil
}

// isFolder reports whether an entry is a folder, or leads to one: Kubernetes mounts them so.
func isFolder(folder fs.FS, entry fs.DirEntry) bool {
	if entry.Type()&fs.ModeSymlink == 0 {
		return entry.IsDir()
	}
	info, err := fs.Stat(folder, entry.Name())
	return err == nil && info.IsDir()
}

type parser struct {
	errs      Error
	folder    fs.FS
	functions map[string]any
}

func (p *parser) mistakef(file string, line int, format string, args ...any) {
	p.errs.Mistakes = append(p.errs.Mistakes, Mistake{File: file, Line: line, Text: fmt.Sprintf(format, args...)})
}

// template reads the folder of one.
func (p *parser) template(name string) map[string]parts {
	entries, err := fs.ReadDir(p.folder, name)
	if err != nil {
		p.mistakef(name, 0, "%v", err)
		return nil
	}
	locales := map[string]parts{}
	for _, entry := range entries {
		file := name + "/" + entry.Name()
		tag, part, _ := strings.Cut(entry.Name(), ".")
		locale := normalize(tag)
		read := locales[locale]
		into := map[string]*executor{"subject": &read.subject, "txt": &read.text, "html": &read.html}[part]
		switch {
		case tag == "":
			continue
		case into == nil || entry.IsDir():
			p.mistakef(file, 0, "want <locale>.subject, <locale>.txt or <locale>.html")
		case !localeTag.MatchString(tag):
			p.mistakef(file, 0, "%q is no locale: want a language tag such as en-GB, or default", tag)
		case *into != nil:
			p.mistakef(file, 0, "is there twice: case does not matter in a locale")
		default:
			*into = p.file(file, part == "html")
			locales[locale] = read
		}
	}
	if _, ok := locales[defaultLocale]; !ok {
		p.mistakef(name, 0, "default.subject and default.txt are missing")
	}
	for locale, read := range locales {
		if read.subject == nil || read.text == nil {
			p.mistakef(name, 0, "%s needs a subject and a txt", locale)
		}
	}
	return locales
}

// file reads one part. It is never nil, so that a file with mistakes is not reported as missing, too.
func (p *parser) file(name string, isHTML bool) executor {
	broken := executor(text.New(name))
	file, err := p.folder.Open(name)
	if err != nil {
		p.mistakef(name, 0, "%v", err)
		return broken
	}
	defer file.Close() //nolint:errcheck // nothing was written
	data, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	switch {
	case err != nil:
		p.mistakef(name, 0, "%v", err)
		return broken
	case len(data) > MaxFile:
		p.mistakef(name, 0, "has more than %d bytes", MaxFile)
		return broken
	}
	body := strings.TrimSuffix(string(data), "\n")
	if isHTML {
		return p.html(name, body, broken)
	}
	t, err := text.New(name).Option("missingkey=error").Funcs(p.functions).Parse(body)
	if err != nil {
		p.syntax(name, err)
		return broken
	}
	for _, defined := range t.Templates() {
		guard(defined.Root)
	}
	return t
}

func (p *parser) html(name, body string, broken executor) executor {
	t, err := html.New(name).Option("missingkey=error").Funcs(p.functions).Parse(body)
	if err != nil {
		p.syntax(name, err)
		return broken
	}
	for _, defined := range t.Templates() {
		if defined.Tree != nil {
			guard(defined.Tree.Root)
		}
	}
	// The first execution finds out what is to be escaped how, and fails when that is unknown. What it prints, and that there
	// is no payload, does not matter.
	if err := t.Execute(&bounded{}, Data{}); err != nil {
		if unsafe, ok := errors.AsType[*html.Error](err); ok {
			line := unsafe.Line
			if line == 0 && unsafe.Node != nil {
				line = 1 + strings.Count(body[:min(int(unsafe.Node.Position()), len(body))], "\n")
			}
			p.mistakef(name, line, "%s", unsafe.Description)
		}
	}
	return t
}

// atLine is how the parser reports where a mistake is.
var atLine = regexp.MustCompile(`^template: .*?:([0-9]+):(?:[0-9]+:)? *(.*)$`)

func (p *parser) syntax(file string, err error) {
	line, said := 0, err.Error()
	if found := atLine.FindStringSubmatch(said); found != nil {
		line, _ = strconv.Atoi(found[1]) //nolint:errcheck // digits
		said = found[2]
	}
	p.mistakef(file, line, "%s", said)
}
