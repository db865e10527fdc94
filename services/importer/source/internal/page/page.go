// Package page reads web pages: the recipe that a page holds as schema.org data, in JSON-LD or microdata, and the caption
// tracks of its videos.
package page

import (
	"bytes"
	"cmp"
	"net/url"
	"strings"

	"github.com/expediter-io/expediter/internal/lazyregexp"
)

// Page is the content of a page.
type Page struct {
	// Title, Description and Author are from the page's metadata.
	Title, Description, Author string
	// Language is the attribute lang of the page, or else the language in the metadata.
	Language string
	// Tracks are the caption tracks of its videos, in order.
	Tracks []Track
	// Truncated reports whether a part of the page was not read.
	Truncated bool
	// Refresh is the address to which a meta element leads browsers; may be the page's own, or empty.
	Refresh string
	// Remark is the last comment that is no note, for [recipe.Recipe.Remark].
	Remark string
	// Faults are the first mistakes in the page's data, with their lines and columns.
	Faults []string

	address *url.URL   // the base of others
	own     []*url.URL // of the page: the address that was asked for, and those that it names
	heading string     // its first h1 with text
	things  []thing
	byID    map[string][]thing // nil until named
	html    []byte
}

// Track is a <track> of a <video>.
type Track struct {
	// URL is the address of the file.
	URL string
	// Language is the attribute srclang.
	Language string
	// Default reports whether the page would show the track by default.
	Default bool
}

const maxTracks = 100

// Parse reads a page in UTF-8, or JSON-LD without a page, as recipe.Recipe.JSONLD writes it.
func Parse(text []byte, address *url.URL) *Page {
	p := &Page{address: address, own: []*url.URL{address}}
	r := reader{page: p, room: maxRoom}
	if data := bytes.TrimSpace(text); len(data) > 0 && (data[0] == '{' || data[0] == '[') {
		r.linked(string(text))
	} else {
		p.html = text
		r.read(text)
	}
	p.Title, p.Description = oneLine(p.Title), strings.TrimSpace(p.Description)
	return p
}

// Text returns the visible text of the main part of a page, line by line: of its longest <main>, or else <article>, or else of all of the
// page. It leaves out navigation, asides and forms' controls. It reads the page again.
func (p *Page) Text() string {
	parts := map[string]string{}
	r := reader{page: &Page{}, parts: parts, room: maxRoom, wanted: 1, open: []element{{fill: func(text string) { parts[""] = text }}}}
	r.read(p.html)
	return cmp.Or(parts["main"], parts["article"], parts[""])
}

// linkedData is the type of the scripts that hold JSON-LD.
const linkedData = "application/ld+json"

// facts records the metadata in the tag of an element.
func (r *reader) facts(e *element, attrs attributes) {
	p := r.page
	switch e.name {
	case "html":
		p.Language = cmp.Or(p.Language, attrs["lang"])
	case "base":
		if base, err := p.address.Parse(attrs["href"]); err == nil && attrs.has("href") && len(attrs["href"]) <= maxBase && !r.based {
			p.address, r.based = base, true
		}
	case "title":
		if p.Title == "" && !r.within("svg") {
			e.fill = func(text string) { p.Title = text }
		}
	case "h1":
		e.fill = func(text string) { p.heading = cmp.Or(p.heading, text) }
	case "meta":
		p.meta(attrs)
	case "link":
		if strings.EqualFold(strings.TrimSpace(attrs["rel"]), "canonical") {
			p.names(attrs["href"])
		}
	case "script":
		kind, _, _ := strings.Cut(attrs["type"], ";")
		e.kind = strings.ToLower(strings.TrimSpace(kind))
	case "track":
		p.track(attrs)
	default:
	}
}

// linked adds the things of a script of JSON-LD, unless there is no room for them.
func (r *reader) linked(script string) {
	values := strings.Count(script, ",") + strings.Count(script, "[") + strings.Count(script, "{")
	if r.take(2*len(script) + costOfValue*values) {
		things, deep, faults := linked(script, r.place)
		r.page.things, r.page.Truncated = append(r.page.things, things...), r.page.Truncated || deep
		r.page.Faults = append(r.page.Faults, faults[:min(len(faults), maxFaults-len(r.page.Faults))]...)
	}
}

// refresh matches the content of a meta element that leads to another page: 0; url='/cake'.
var refresh = lazyregexp.New(`(?i)^\s*[\d.]+\s*[;,]\s*(?:url\s*=\s*)?["']?([^\s"']+)`)

func (p *Page) meta(attrs attributes) {
	content := attrs["content"]
	if to := refresh.FindStringSubmatch(content); to != nil && strings.EqualFold(attrs["http-equiv"], "refresh") {
		if address, err := p.address.Parse(to[1]); err == nil {
			p.Refresh = address.String()
		}
	}
	switch strings.ToLower(attrs["property"] + attrs["name"]) {
	case "description":
		p.Description = content
	case "og:description":
		p.Description = cmp.Or(p.Description, content)
	case "og:title":
		p.Title = content
	case "og:url":
		p.names(content)
	case "author":
		p.Author = oneLine(content)
	default:
	}
}

// names adds an address by which the page calls itself.
func (p *Page) names(address string) {
	const most = 10
	if u, err := p.address.Parse(strings.TrimSpace(address)); err == nil && address != "" && len(p.own) < most {
		p.own = append(p.own, u)
	}
}

func (p *Page) track(attrs attributes) {
	kind := strings.ToLower(attrs["kind"])
	if kind != "" && kind != "subtitles" && kind != "captions" || attrs["src"] == "" || len(p.Tracks) == maxTracks {
		return
	}
	address, err := p.address.Parse(strings.TrimSpace(attrs["src"]))
	if err != nil {
		return
	}
	p.Tracks = append(p.Tracks, Track{URL: address.String(), Language: attrs["srclang"], Default: attrs.has("default")})
}

// Choose returns the track to read: the first that exists of the track in the wanted language, which may be empty, in the
// page's language, the default track, the English track, and the first track.
func (p *Page) Choose(wanted string) (Track, bool) {
	wanted = base(wanted)
	own := base(p.Language)
	for _, fits := range []func(Track) bool{
		func(t Track) bool { return wanted != "" && base(t.Language) == wanted },
		func(t Track) bool { return own != "" && base(t.Language) == own },
		func(t Track) bool { return t.Default },
		func(t Track) bool { return base(t.Language) == "en" },
		func(Track) bool { return true },
	} {
		for _, t := range p.Tracks {
			if fits(t) {
				return t, true
			}
		}
	}
	return Track{}, false
}

func base(language string) string {
	language, _, _ = strings.Cut(strings.ToLower(language), "-")
	return language
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
