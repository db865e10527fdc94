package template

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	text "text/template"
	"text/template/parse"
)

const (
	// sharedFolder has the texts that the templates share. It is no template.
	sharedFolder = "_shared"

	// layoutName is the shared text that others stand in, at the place that contentName has in it.
	layoutName  = "layout"
	contentName = "content"
)

// source is a file, and what it is for.
type source struct{ file, locale, channel, part string }

// shelf is where shared texts are found: those for one locale, one channel or "", and one part, txt or html.
type shelf struct{ locale, channel, part string }

// snippet is a shared text, and what it defines.
type snippet struct {
	file  string
	trees []*parse.Tree
}

// loadShared reads the shared texts.
func (p *parser) loadShared() {
	entries, err := fs.ReadDir(p.folder, sharedFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		p.mistakef(sharedFolder, 0, "%v", err)
	}
	p.shared = map[shelf]map[string]snippet{}
	read := map[source]*text.Template{}
	names := map[string]bool{}
	for _, entry := range entries {
		tag, rest, _ := strings.Cut(entry.Name(), ".")
		if tag == "" {
			continue
		}
		s := source{file: sharedFolder + "/" + entry.Name(), locale: normalize(tag)}
		words := strings.Split(rest, ".")
		if len(words) == 3 {
			s.channel, words = words[0], words[1:]
		}
		if len(words) != 2 || words[0] == "" || words[0] == contentName || words[1] != "txt" && words[1] != "html" || entry.IsDir() {
			p.mistakef(s.file, 0, "want <locale>.<name>.txt or <locale>.<name>.html, or <locale>.<channel>.<name> with one of these; "+
				"no name is "+contentName)
			continue
		}
		s.part = words[1]
		if wrong := p.misnamed(tag, s.channel, s.part, false); wrong != "" {
			p.mistakef(s.file, 0, "%s", wrong)
			continue
		}
		t, err := text.New(s.file).Funcs(p.functions).Funcs(map[string]any{inertName: inert("")}).Parse(p.read(s.file))
		if err != nil {
			p.syntax(s.file, err)
			continue
		}
		on, snip := shelf{s.locale, s.channel, s.part}, snippet{file: s.file}
		for _, defined := range t.Templates() {
			snip.trees = append(snip.trees, defined.Tree)
		}
		if p.shared[on] == nil {
			p.shared[on] = map[string]snippet{}
		}
		p.shared[on][words[0]], read[s], names[words[0]+"."+s.part] = snip, t, true
	}
	for s, t := range read {
		p.reviewShared(s, t, names)
	}
}

// reviewShared reviews a shared text. names are those of all, with their part.
func (p *parser) reviewShared(s source, t *text.Template, names map[string]bool) {
	isLayout := strings.HasSuffix(s.file, "."+layoutName+"."+s.part)
	r := &review{parser: p, layout: isLayout, defines: func(name string) bool {
		return names[name+"."+s.part] && name != layoutName || t.Lookup(name) != nil || isLayout && name == contentName
	}}
	for _, defined := range t.Templates() {
		r.isMain = isLayout && defined.Name() == s.file
		r.node(defined.Root, r.isMain)
		stepped(defined.Root)
	}
	if isLayout && !r.hasContent {
		p.mistakef(s.file, 0, `has no place for what it is the layout of: want {{template "content" .}}`)
	}
}

// sharedFor returns the shared texts that fit a file best, by name. The locale goes before the channel.
func (p *parser) sharedFor(s source) map[string]snippet {
	part := s.part
	if part != "html" {
		part = "txt"
	}
	found := map[string]snippet{}
	for _, tag := range slices.Backward(slices.Collect(fitting(s.locale))) {
		maps.Copy(found, p.shared[shelf{tag, "", part}])
		maps.Copy(found, p.shared[shelf{tag, s.channel, part}])
	}
	return found
}

// grown is a template that others can be added to.
type grown[T any] interface {
	AddParseTree(name string, tree *parse.Tree) (T, error)
	Parse(text string) (T, error)
}

// include parses the text of a file among the shared texts, and puts it into their layout if there is one: subjects and what is a whole
// document have none.
func include[T grown[T]](p *parser, t T, s source, body string, tree func(T) *parse.Tree) (T, error) {
	shared := p.sharedFor(s)
	layout, ok := shared[layoutName]
	delete(shared, layoutName)
	if ok {
		shared[""] = layout // for what it defines
	}
	for _, name := range slices.Sorted(maps.Keys(shared)) {
		for _, one := range shared[name].trees {
			as := one.Name
			if as == shared[name].file {
				as = name
			}
			if as == "" {
				continue
			}
			if _, err := t.AddParseTree(as, one.Copy()); err != nil {
				return t, err
			}
		}
	}
	t, err := t.Parse(body)
	if err != nil || !ok || s.part != "txt" && s.part != "html" || strings.Contains(strings.ToLower(body), "<html") {
		return t, err
	}
	_, err = t.AddParseTree(contentName, tree(t))
	for _, one := range layout.trees {
		if one.Name == layout.file && err == nil {
			t, err = t.AddParseTree(s.file, one.Copy())
		}
	}
	return t, err
}

// perChannel is a template by the channel that it is executed for, "" for all others.
type perChannel map[string]executor

// Execute implements executor.
func (c perChannel) Execute(w io.Writer, data any) error {
	if d, ok := data.(Data); ok && c[d.Channel] != nil {
		return c[d.Channel].Execute(w, data)
	}
	return c[""].Execute(w, data)
}

// Name implements executor.
func (c perChannel) Name() string { return c[""].Name() }
