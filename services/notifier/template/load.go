package template

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	html "html/template"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	text "text/template"
	"text/template/parse"

	"github.com/expediter-io/expediter/internal/channels"
	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/services/notifier/internal/locale"
)

const (
	// MaxFile bounds one file, in bytes.
	MaxFile = 256 << 10

	inertName = "_inert"
)

// localeTag matches the locale in a file name: a language tag, or default.
var localeTag = lazyregexp.New(`^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*$`)

// Channels returns the channels without code that have texts, and further channels that show pushes.
func Channels(pushes ...string) map[string]Kind {
	kinds := map[string]Kind{}
	for _, name := range pushes {
		kinds[name] = Push
	}
	for _, c := range channels.All() {
		if c.Text != "" {
			kinds[c.Name] = Kind(c.Text)
		}
	}
	return kinds
}

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
	p := &parser{folder: folder, functions: boundedFunctions(), kinds: cfg.Channels, language: cmp.Or(cfg.Language, "en")}
	p.functions["link"], p.functions["path"] = linker(cfg.LinkHosts), path
	if p.kinds == nil {
		p.kinds = Channels()
	}
	p.loadShared()
	byName := map[string]texts{}
	entries, err := fs.ReadDir(folder, ".")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		switch {
		case strings.HasPrefix(entry.Name(), "."), entry.Name() == sharedFolder:
		case !isFolder(folder, entry):
			p.mistakef(entry.Name(), 0, "is a file: want one folder for each template")
		default:
			byName[entry.Name()] = p.template(entry.Name())
		}
	}
	if len(p.errs.Mistakes) > 0 {
		slices.SortStableFunc(p.errs.Mistakes, func(a, b Mistake) int { return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line) })
		return nil, &p.errs
	}
	set := &Set{kinds: p.kinds, language: p.language}
	set.byName.Store(&byName)
	return set, nil
}

// isFolder reports whether an entry is a folder, or a link to one, as Kubernetes mounts them.
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
	kinds     map[string]Kind
	language  string // of default
	shared    map[sharedKey]map[string]snippet
}

// kind returns the kind of a channel. An unknown channel shows the parts of a mail.
func (p *parser) kind(channel string) Kind { return cmp.Or(p.kinds[channel], Mail) }

func (p *parser) mistakef(file string, line int, format string, args ...any) {
	m := Mistake{File: file, Line: line, Text: fmt.Sprintf(format, args...)}
	if !slices.Contains(p.errs.Mistakes, m) { // a text that is shared, or for several channels, is read several times
		p.errs.Mistakes = append(p.errs.Mistakes, m)
	}
}

// template reads the folder of a template.
func (p *parser) template(name string) texts {
	entries, err := fs.ReadDir(p.folder, name)
	if err != nil {
		p.mistakef(name, 0, "%v", err)
		return texts{}
	}
	all := texts{by: map[string]map[string]parts{}, choices: map[string]locale.Choice{}}
	for _, entry := range entries {
		file := name + "/" + entry.Name()
		tag, part, _ := strings.Cut(entry.Name(), ".")
		if tag == "" {
			continue
		}
		channel, its, found := strings.Cut(part, ".")
		if found {
			part = its
		} else {
			channel = ""
		}
		if wrong := p.misnamed(tag, channel, part, entry.IsDir()); wrong != "" {
			p.mistakef(file, 0, "%s", wrong)
			continue
		}
		of := locale.Normalize(tag)
		read := all.by[of][channel]
		into := map[string]*executor{"subject": &read.subject, "txt": &read.text, "html": &read.html}[part]
		switch {
		case into == nil && read.push == nil:
			read.push = p.push(source{file, of, channel, part}, p.read(file))
		case into != nil && *into == nil:
			*into = p.file(source{file, of, channel, part})
		default:
			p.mistakef(file, 0, "is there twice: case and old codes do not matter in a locale")
			continue
		}
		if all.by[of] == nil {
			all.by[of] = map[string]parts{}
		}
		all.by[of][channel] = read
	}
	p.complete(name, all)
	return all
}

// misnamed returns the problem with the name of a file, "" for none.
func (p *parser) misnamed(tag, channel, part string, isFolder bool) string {
	kind, known := p.kinds[channel]
	switch {
	case isFolder, !slices.Contains([]string{"subject", "txt", "html", "json"}, part):
		return "want <locale>.subject, <locale>.txt or <locale>.html, or <locale>.<channel> with one of these or .json"
	case !localeTag.MatchString(tag):
		return fmt.Sprintf("%q is no locale: want a language tag such as en-GB, or default", tag)
	case channel != "" && !known:
		return fmt.Sprintf("there is no channel %q: want %s", channel, strings.Join(slices.Sorted(maps.Keys(p.kinds)), ", "))
	case part == "json" && kind != Push, part == "html" && channel != "" && kind != Mail:
		return fmt.Sprintf("%s is not for %s", part, cmp.Or(channel, "all channels"))
	}
	return ""
}

// read reads a file, "" when that is a mistake.
func (p *parser) read(name string) string {
	data, err := private.ReadFS(p.folder, name, MaxFile)
	if err != nil {
		p.mistakef(name, 0, "%v", err)
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(data), "\ufeff"), "\n")
}

// file reads one part. It never returns nil, so that a file with mistakes is not also reported as missing.
func (p *parser) file(s source) executor {
	body := p.read(s.file)
	variants := perChannel{"": p.variant(s, body)}
	for on := range p.shared {
		if s.channel == "" && on.channel != "" && variants[on.channel] == nil {
			of := s
			of.channel = on.channel
			variants[on.channel] = p.variant(of, body)
		}
	}
	if len(variants) == 1 {
		return variants[""]
	}
	return variants
}

// variant parses one part for one channel.
func (p *parser) variant(s source, body string) executor {
	if s.part == "html" {
		return p.html(s, body)
	}
	t := text.New(s.file).Option("missingkey=error").Funcs(p.functions).Funcs(map[string]any{inertName: inert(string(mark))})
	return p.parse(t, s, body)
}

// parse parses a template of plain text.
func (p *parser) parse(t *text.Template, s source, body string) executor {
	parsed, err := include(p, t, s, body, func(t *text.Template) *parse.Tree { return t.Tree })
	if err != nil {
		p.syntax(s.file, err)
		return t
	}
	for _, defined := range parsed.Templates() {
		p.own(s, defined.Tree, func(name string) bool { return parsed.Lookup(name) != nil })
	}
	return parsed
}

// own reviews a template in the file itself, but not shared templates, which were reviewed before. defines is nil when the caller
// checks for missing templates in another way.
func (p *parser) own(s source, tree *parse.Tree, defines func(name string) bool) {
	if tree == nil || tree.ParseName != s.file {
		return
	}
	r := &review{parser: p, defines: defines, isMain: tree.Name == s.file}
	r.node(tree.Root, r.isMain)
	stepped(tree.Root)
}

func (p *parser) html(s source, body string) executor {
	t := html.New(s.file).Option("missingkey=error").Funcs(p.functions).Funcs(map[string]any{inertName: inert(breaker)})
	t, err := include(p, t, s, body, func(t *html.Template) *parse.Tree { return t.Tree })
	if err != nil {
		p.syntax(s.file, err)
		return text.New(s.file)
	}
	for _, defined := range t.Templates() {
		p.own(s, defined.Tree, nil)
	}
	// The first execution determines the escaping of each value, and fails when that is unknown. Its output and the
	// missing payload do not matter.
	if err := t.Execute(newBounded(), Data{}); err != nil {
		if errors.Is(err, ErrTooManySteps) || errors.Is(err, ErrTooSlow) {
			p.mistakef(s.file, 0, "%v", err)
		}
		if unsafe, ok := errors.AsType[*html.Error](err); ok {
			file, line := s.file, unsafe.Line
			if unsafe.Node != nil {
				file, line = place(unsafe.Node)
			}
			p.mistakef(file, line, "%s", unsafe.Description)
		}
	}
	return t
}

// atLine matches the place of a mistake in an error of the parser.
var atLine = lazyregexp.New(`^template: .*?:([0-9]+):(?:[0-9]+:)? *(.*)$`)

func (p *parser) syntax(file string, err error) {
	line, said := 0, err.Error()
	if found := atLine.FindStringSubmatch(said); found != nil {
		line, _ = strconv.Atoi(found[1]) // digits
		said = found[2]
	}
	p.mistakef(file, line, "%s", said)
}

// maxFolder bounds the files of a folder that are compared. A larger folder was not meant for templates.
const maxFolder = 10_000

// Version identifies the contents of a folder, mistakes and files that cannot be read included: the same names and contents have the same
// version. It reads every file of every template, of at most MaxFile bytes each.
func Version(folder string) string {
	sum := sha256.New()
	root := os.DirFS(folder)
	for _, pattern := range []string{"*", "*/*"} {
		names, _ := fs.Glob(root, pattern) // the pattern is right
		for _, name := range names[:min(len(names), maxFolder)] {
			if !strings.HasPrefix(name, ".") {
				data, _ := private.ReadFS(root, name, MaxFile) // none of a folder
				sum.Write(fmt.Appendf(nil, "%q %d\n%s", name, len(data), data))
			}
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
