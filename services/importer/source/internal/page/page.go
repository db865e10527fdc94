// Package page reads web pages: the recipe that a page holds as schema.org data, in JSON-LD or microdata, and the caption
// tracks of its videos.
package page

import (
	"cmp"
	"net/url"
	"strings"
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

	address *url.URL
	things  []thing
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

// Parse reads a page in UTF-8.
func Parse(text []byte, address *url.URL) *Page {
	p := &Page{address: address}
	r := reader{page: p, room: maxRoom}
	r.read(text)
	p.Title, p.Description = oneLine(p.Title), strings.TrimSpace(p.Description)
	return p
}

// linkedData is the type of the scripts that hold JSON-LD.
const linkedData = "application/ld+json"

// facts records the metadata in the tag of an element.
func (r *reader) facts(e *element, attrs attributes) {
	p := r.page
	switch e.name {
	case "html":
		p.Language = cmp.Or(p.Language, attrs.get("lang"))
	case "base":
		if base, err := p.address.Parse(attrs.get("href")); err == nil && attrs.has("href") && len(attrs.get("href")) <= maxBase && !r.based {
			p.address, r.based = base, true
		}
	case "title":
		if p.Title == "" && !r.within("svg") {
			e.fill = func(text string) { p.Title = text }
		}
	case "meta":
		p.meta(attrs)
	case "script":
		kind, _, _ := strings.Cut(attrs.get("type"), ";")
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
		things, deep := linked(script)
		r.page.things, r.page.Truncated = append(r.page.things, things...), r.page.Truncated || deep
	}
}

func (p *Page) meta(attrs attributes) {
	content := attrs.get("content")
	switch strings.ToLower(attrs.get("property") + attrs.get("name")) {
	case "description":
		p.Description = content
	case "og:description":
		p.Description = cmp.Or(p.Description, content)
	case "og:title":
		p.Title = content
	case "author":
		p.Author = oneLine(content)
	default:
	}
}

func (p *Page) track(attrs attributes) {
	kind := strings.ToLower(attrs.get("kind"))
	if kind != "" && kind != "subtitles" && kind != "captions" || attrs.get("src") == "" || len(p.Tracks) == maxTracks {
		return
	}
	address, err := p.address.Parse(strings.TrimSpace(attrs.get("src")))
	if err != nil {
		return
	}
	p.Tracks = append(p.Tracks, Track{URL: address.String(), Language: attrs.get("srclang"), Default: attrs.has("default")})
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

// repair makes valid JSON of a script that is nearly JSON. It mends mistakes of many pages: unescaped line breaks, tabs and
// quotes in strings, escapes that JSON does not have, comments, and commas after the last value. Valid JSON keeps its
// meaning.
func repair(script string) string {
	var b strings.Builder
	inText := false
	for i := 0; i < len(script); i++ {
		switch c := script[i]; {
		case inText && c == '\\':
			if size := escape(script[i:]); size > 0 {
				b.WriteString(script[i : i+size])
				i += size - 1
			}
		case c == '"' && inText && !endsText(script[i+1:]):
			b.WriteString(`\"`)
		case c == '"':
			inText = !inText
			b.WriteByte(c)
		case inText && c == '\n':
			b.WriteString(`\n`)
		case c < ' ':
			b.WriteByte(' ')
		case inText:
			b.WriteByte(c)
		case c == '/' && comment(script[i:]) > 0:
			i += comment(script[i:]) - 1
		case c == ',':
			text, ends := separators(script[i:])
			if !ends {
				b.WriteString(text)
			}
			i += len(text) - 1
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// escape returns the length of the JSON escape at the start of a text, 0 when there is none.
func escape(text string) int {
	switch {
	case len(text) < 2 || strings.IndexByte(`"\/bfnrtu`, text[1]) < 0:
		return 0
	case text[1] != 'u':
		return 2
	case len(text) >= 6 && strings.Trim(text[2:6], "0123456789abcdefABCDEF") == "":
		return 6
	default:
		return 0
	}
}

// endsText reports whether a quote before the text ends a string, because the text continues the list or object.
func endsText(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n")
	if after, ok := strings.CutPrefix(text, ","); ok {
		after = strings.TrimLeft(after, " \t\r\n")
		return after == "" || strings.IndexByte(`"{[]}-0123456789/`, after[0]) >= 0
	}
	return text == "" || strings.IndexByte(`:]}/`, text[0]) >= 0
}

// separators returns the commas and spaces at the start of a text, and reports whether no value of the list follows
// them.
func separators(text string) (all string, ends bool) {
	rest := strings.TrimLeft(text, " \t\r\n,")
	return text[:len(text)-len(rest)], rest == "" || rest[0] == '}' || rest[0] == ']'
}

// comment returns the length of the comment at the start of a text, 0 when there is none.
func comment(text string) int {
	end, size := "\n", 0
	switch {
	case strings.HasPrefix(text, "/*"):
		end, size = "*/", 2
	case !strings.HasPrefix(text, "//"):
		return 0
	}
	if i := strings.Index(text[size:], end); i >= 0 {
		return size + i + len(end)
	}
	return len(text)
}
