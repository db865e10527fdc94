package page

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"
)

// Page is what there is on a page.
type Page struct {
	// Title, Description and Author are what the page says of itself.
	Title, Description, Author string
	// Language is the attribute lang of the page, or what stands for it.
	Language string
	// Tracks are the caption tracks of its videos, in order.
	Tracks []Track

	address *url.URL
	things  []thing
}

// Track is a <track> of a <video>.
type Track struct {
	// URL is where the file is.
	URL string
	// Language is the attribute srclang, and Label the attribute label.
	Language, Label string
	// Default says that the page would show it.
	Default bool
}

const maxTracks = 100

// Parse reads a page. The content type is the header, which may name the encoding; the page itself may as well.
func Parse(body []byte, contentType string, address *url.URL) (*Page, error) {
	decoded, err := charset.NewReader(bytes.NewReader(body), contentType)
	if err != nil {
		return nil, fmt.Errorf("page: find the encoding: %w", err)
	}
	text, err := io.ReadAll(decoded)
	if err != nil {
		return nil, fmt.Errorf("page: decode: %w", err)
	}
	root, err := html.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	p := &Page{address: address}
	for node := range root.Descendants() {
		if node.Type == html.ElementNode {
			p.element(node)
		}
	}
	p.Title, p.Description = oneLine(p.Title), strings.TrimSpace(p.Description)
	return p, nil
}

func (p *Page) element(node *html.Node) {
	switch node.DataAtom {
	case atom.Html:
		p.Language = attribute(node, "lang")
	case atom.Base:
		if base, err := p.address.Parse(attribute(node, "href")); err == nil {
			p.address = base
		}
	case atom.Title:
		if p.Title == "" && node.Namespace == "" {
			p.Title = plain(node)
		}
	case atom.Meta:
		p.meta(node)
	case atom.Script:
		kind, _, _ := strings.Cut(attribute(node, "type"), ";")
		if strings.EqualFold(strings.TrimSpace(kind), "application/ld+json") {
			p.things = append(p.things, linked(rawText(node))...)
		}
	case atom.Track:
		p.track(node)
	default:
	}
	if isScope(node) && !hasAttribute(node, "itemprop") {
		p.things = append(p.things, microdata(node, p.address))
	}
}

func (p *Page) meta(node *html.Node) {
	content := attribute(node, "content")
	switch strings.ToLower(attribute(node, "property") + attribute(node, "name")) {
	case "description":
		p.Description = content
	case "og:description":
		if p.Description == "" {
			p.Description = content
		}
	case "og:title":
		p.Title = content
	case "author":
		p.Author = oneLine(content)
	default:
	}
}

func (p *Page) track(node *html.Node) {
	kind := strings.ToLower(attribute(node, "kind"))
	address, err := p.address.Parse(strings.TrimSpace(attribute(node, "src")))
	if kind != "" && kind != "subtitles" && kind != "captions" || err != nil || attribute(node, "src") == "" || len(p.Tracks) == maxTracks {
		return
	}
	p.Tracks = append(p.Tracks, Track{
		URL: address.String(), Language: attribute(node, "srclang"), Label: oneLine(attribute(node, "label")),
		Default: hasAttribute(node, "default"),
	})
}

// Choose returns the track to read: the page's own language, then what the page would show, then English, then the first.
func (p *Page) Choose() (Track, bool) {
	own := base(p.Language)
	for _, fits := range []func(Track) bool{
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

func attribute(node *html.Node, name string) string {
	for _, a := range node.Attr {
		if a.Namespace == "" && a.Key == name {
			return a.Val
		}
	}
	return ""
}

func hasAttribute(node *html.Node, name string) bool {
	for _, a := range node.Attr {
		if a.Namespace == "" && a.Key == name {
			return true
		}
	}
	return false
}

// rawText is the text of an element that holds nothing else.
func rawText(node *html.Node) string {
	var b strings.Builder
	for child := range node.ChildNodes() {
		if child.Type == html.TextNode {
			b.WriteString(child.Data)
		}
	}
	return b.String()
}

// plain is the text of an element as a reader sees it: what begins on a line of its own does so here.
func plain(node *html.Node) string {
	var b strings.Builder
	writePlain(&b, node)
	var lines []string
	for line := range strings.Lines(b.String()) {
		if line = oneLine(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func writePlain(b *strings.Builder, node *html.Node) {
	for child := range node.ChildNodes() {
		switch {
		case child.Type == html.TextNode:
			for word := range strings.FieldsSeq(child.Data) {
				b.WriteByte(' ')
				b.WriteString(word)
			}
		case child.Type != html.ElementNode:
		case child.DataAtom == atom.Script, child.DataAtom == atom.Style, child.DataAtom == atom.Template:
		case breaks[child.DataAtom]:
			b.WriteByte('\n')
			writePlain(b, child)
			b.WriteByte('\n')
		default:
			writePlain(b, child)
		}
	}
}

var breaks = map[atom.Atom]bool{
	atom.Br: true, atom.Dd: true, atom.Div: true, atom.Dt: true, atom.H1: true, atom.H2: true, atom.H3: true, atom.H4: true, atom.H5: true,
	atom.Li: true, atom.Ol: true, atom.P: true, atom.Section: true, atom.Td: true, atom.Tr: true, atom.Ul: true,
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
