package template

import (
	"embed"
	"io"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// Kind is what a channel shows of a text.
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

// parts are a text in one locale, for one channel or for all of them. Each may be missing.
type parts struct {
	subject, text, html executor
	push                *push

	locale string // of those that were found
}

// over returns the parts of p and, where it has none, those of general.
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

// lacks returns what a channel of a kind needs beside the parts, "" when it has all.
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

// texts are those of one template: by locale, and by the channel that they are for, "" for all.
type texts map[string]map[string]parts

// find returns the parts for the channel of that name in the locale that fits best, of those that have all that the channel needs.
func (t texts) find(locale, name string, kind Kind) (parts, bool) {
	for tag := range fitting(locale) {
		if p := t[tag][name].over(t[tag][""]); p.lacks(kind) == "" {
			p.locale = tag
			return p, true
		}
	}
	return parts{}, false
}

// fitting yields the tags of files that fit a locale, the best first.
func fitting(locale string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for tag := normalize(locale); tag != ""; tag = tag[:max(0, strings.LastIndexByte(tag, '-'))] {
			if !yield(tag) {
				return
			}
		}
		yield(defaultLocale)
	}
}

// normalize writes a tag as files are found by: case does not matter.
func normalize(locale string) string { return strings.ToLower(strings.ReplaceAll(locale, "_", "-")) }

// complete reports what a template lacks: each locale needs all that a channel with files in it shows, and default what the others
// have.
func (p *parser) complete(name string, all texts) {
	used := map[string]bool{"": len(all) == 0}
	for _, by := range all {
		for channel := range by {
			used[channel] = true
		}
	}
	for _, channel := range slices.Sorted(maps.Keys(used)) {
		_, there := all[defaultLocale][channel]
		_, found := all.find(defaultLocale, channel, p.kind(channel))
		switch {
		case there, found, !used[channel]:
		case channel == "":
			p.mistakef(name, 0, "default.subject and default.txt are missing")
		default:
			p.mistakef(name, 0, "other locales have no text for %s: default.%[1]s.txt, or default.subject and default.txt, are missing", channel)
		}
	}
	for _, locale := range slices.Sorted(maps.Keys(all)) {
		by := all[locale]
		for _, channel := range slices.Sorted(maps.Keys(by)) {
			if lacks := by[channel].over(by[""]).lacks(p.kind(channel)); lacks != "" {
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
		return nil, err //nolint:wrapcheck // cannot fail
	}
	return Parse(folder, Config{})
})

// fallback returns the text for a message whose template there is not: digests have one.
func fallback(m channel.Message) texts {
	if m.EventType != contracts.EventTypeDigest {
		return nil
	}
	set, err := digestText()
	if err != nil {
		return nil
	}
	return (*set.byName.Load())["digest"]
}
