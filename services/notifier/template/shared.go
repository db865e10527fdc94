package template

import (
	"embed"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	text "text/template"
	"text/template/parse"

	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/locale"
)

const (
	// sharedFolder has the texts that the templates share. It is no template.
	sharedFolder = "_shared"

	// layoutName is the shared text around other texts, which replace contentName in it.
	layoutName  = "layout"
	contentName = "content"
)

// source is a file with its locale, channel and part.
type source struct{ file, locale, channel, part string }

// sharedKey is the key of the shared texts for one locale, one channel or "", and one part, txt or html.
type sharedKey struct{ locale, channel, part string }

// snippet is a shared text, and the templates that it defines.
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
	p.shared = map[sharedKey]map[string]snippet{}
	read := map[source]*text.Template{}
	names := map[string]bool{}
	for _, entry := range entries {
		tag, rest, _ := strings.Cut(entry.Name(), ".")
		if tag == "" {
			continue
		}
		s := source{file: sharedFolder + "/" + entry.Name(), locale: locale.Normalize(tag)}
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
		on, snip := sharedKey{s.locale, s.channel, s.part}, snippet{file: s.file}
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

// reviewShared reviews a shared text. names has the names of all shared texts, with their part.
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
		p.mistakef(s.file, 0, `has no place for the content: want {{template "content" .}}`)
	}
}

// sharedFor returns the shared texts that fit a file best, by name. The locale counts more than the channel.
func (p *parser) sharedFor(s source) map[string]snippet {
	part := s.part
	if part != "html" {
		part = "txt"
	}
	found := map[string]snippet{}
	for _, tag := range slices.Backward(slices.Collect(locale.Fitting(s.locale))) {
		maps.Copy(found, p.shared[sharedKey{tag, "", part}])
		maps.Copy(found, p.shared[sharedKey{tag, s.channel, part}])
	}
	return found
}

// grown is a template to which other templates can be added.
type grown[T any] interface {
	AddParseTree(name string, tree *parse.Tree) (T, error)
	Parse(text string) (T, error)
}

// include parses the text of a file among the shared texts, and puts it into their layout if there is one: subjects and whole
// documents have none.
func include[T grown[T]](p *parser, t T, s source, body string, tree func(T) *parse.Tree) (T, error) {
	shared := p.sharedFor(s)
	layout, ok := shared[layoutName]
	delete(shared, layoutName)
	if ok {
		shared[""] = layout // for its definitions
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

// perChannel has a template for each channel, "" for all others.
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

// Kind is the kind of a channel, by the parts of a text that it shows.
type Kind string

// The kinds of channels.
const (
	// Mail shows a subject, a text and, if there is one, HTML.
	Mail Kind = "mail"
	// Push shows a title and a text, and has a link, an icon and data.
	Push Kind = "push"
	// SMS shows a text.
	SMS Kind = "sms"
)

// executor is a template of either kind.
type executor interface {
	Execute(w io.Writer, data any) error
	Name() string
}

// parts has the parts of a text in one locale, for one channel or for all channels. Each may be missing.
type parts struct {
	subject, text, html executor
	push                *push

	locale string // of those that were found
}

// over returns the parts of p, with the parts of general in place of missing ones.
func (p parts) over(general parts) parts {
	for _, part := range []struct{ into, from *executor }{
		{&p.subject, &general.subject}, {&p.text, &general.text}, {&p.html, &general.html},
	} {
		if *part.into == nil {
			*part.into = *part.from
		}
	}
	return p
}

// lacks returns the missing parts that a channel of a kind needs, "" when there are all.
func (p parts) lacks(kind Kind) string {
	hasTitle, hasBody := p.subject != nil, p.text != nil
	if kind == Push && p.push != nil {
		hasTitle, hasBody = hasTitle || p.push.title != nil, hasBody || p.push.body != nil
	}
	switch {
	case hasTitle && hasBody, kind == SMS && hasBody:
		return ""
	case kind == SMS:
		return "a txt"
	case kind == Push:
		return "a title and a body, or a subject and a txt"
	}
	return "a subject and a txt"
}

// texts has the texts of one template.
type texts struct {
	by      map[string]map[string]parts // by locale, and by channel, "" for all channels
	choices map[string]locale.Choice    // by channel with its own files, and by ""
}

// of returns the parts of a locale for a channel.
func (t texts) of(tag, on string) parts {
	p := t.by[tag][on].over(t.by[tag][""])
	p.locale = tag
	return p
}

// find returns the parts for a channel in the locale that fits a reader best.
func (t texts) find(reader, on string, kind Kind) (parts, bool) {
	choice, own := t.choices[on]
	if !own {
		choice = t.choices[""]
	}
	p := t.of(choice.Best(reader), on)
	return p, p.lacks(kind) == ""
}

// among returns the choice among the locales that have a text for a channel.
func (t texts) among(inDefault, on string) locale.Choice {
	var tags []string
	for tag, by := range t.by {
		_, own := by[on]
		if _, common := by[""]; own || common {
			tags = append(tags, tag)
		}
	}
	return locale.Among(inDefault, tags...)
}

// complete reports the parts that a template lacks: each locale needs all parts that a channel with files in it shows, and default
// has to have a text for each channel of the others. It makes the choices among the locales.
func (p *parser) complete(name string, all texts) {
	used := map[string]bool{"": len(all.by) == 0}
	for _, by := range all.by {
		for channel := range by {
			used[channel] = true
		}
	}
	for _, channel := range slices.Sorted(maps.Keys(used)) {
		all.choices[channel] = all.among(p.language, channel)
		_, there := all.by[locale.Default][channel]
		switch {
		case there, all.of(locale.Default, channel).lacks(p.kind(channel)) == "", !used[channel]:
		case channel == "":
			p.mistakef(name, 0, "default.subject and default.txt are missing")
		default:
			p.mistakef(name, 0, "other locales have no text for %s: default.%[1]s.txt, or default.subject and default.txt, are missing", channel)
		}
	}
	for _, locale := range slices.Sorted(maps.Keys(all.by)) {
		for _, channel := range slices.Sorted(maps.Keys(all.by[locale])) {
			if lacks := all.of(locale, channel).lacks(p.kind(channel)); lacks != "" {
				p.mistakef(name, 0, "%s needs %s", strings.TrimSuffix(locale+"."+channel, "."), lacks)
			}
		}
	}
}

// builtin has the text of digests that have none of their own: a plain list, in English.
//
//go:embed builtin
var builtin embed.FS

var digestText = sync.OnceValues(func() (*Set, error) {
	folder, err := fs.Sub(builtin, "builtin")
	if err != nil {
		return nil, err
	}
	return Parse(folder, Config{})
})

// fallback returns the text for a message without a template; only digests have one.
func fallback(m channel.Message) texts {
	if m.EventType != channel.EventTypeDigest {
		return texts{}
	}
	set, err := digestText()
	if err != nil {
		return texts{}
	}
	return (*set.byName.Load())["digest"]
}
