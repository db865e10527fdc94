package page

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/expediter-io/expediter/internal/lazyregexp"
)

// Bounds of the data of a page that is kept or compared. A page that exceeds them is read in part, and reported as
// truncated.
const (
	// maxToken is the longest tag, text or script in bytes. A longer one is read in pieces, as text.
	maxToken = 2 << 20

	// maxOpen is the largest number of open elements. A further element is read as if it had no content.
	maxOpen = 256

	// maxBase bounds the base address of a page, in bytes. The base becomes a part of each address.
	maxBase = 4 << 10

	// maxRoom is roughly the memory, in bytes, for the data of a page, and costOfValue the memory for one value.
	maxRoom     = 32 << 20
	costOfValue = 384
)

// reader reads HTML token by token. It builds no tree, whose size a page could choose. It keeps the open elements, and ends
// them by the rules that matter for text and data.
type reader struct {
	based    bool // the page has named its base address
	column   int  // characters of the line before the current token
	line     int  // lines before the current token
	page     *Page
	parts    map[string]string // the longest texts by element, where only texts are read
	names    map[string]int    // of the open elements, how often
	open     []element         // the innermost last
	named    map[string]thing  // elements by the ids that itemref names
	refers   []reference
	referred map[string]bool // the ids
	room     int             // the rest of maxRoom
	silent   int             // open elements whose text is not shown
	text     []byte          // since the start of the outermost open element with fill
	wanted   int             // open elements with fill
}

// element is an open element.
type element struct {
	begun int               // the start of its text in reader.text
	fill  func(text string) // is called with its text at its end; may be nil
	hides bool              // its text is not shown
	item  thing             // the item that it begins; may be nil
	kind  string            // of a script
	name  string
	named bool // by an itemref
	times int  // how often its text is a value, see item
}

// read reads all tokens. After a token that is too long it continues with a new tokenizer.
func (r *reader) read(page []byte) {
	r.names, r.named, r.referred = map[string]int{}, map[string]thing{}, map[string]bool{}
	r.findReferred(page)
	for {
		z := html.NewTokenizer(bytes.NewReader(page))
		z.SetMaxBuf(maxToken)
		read := 0
		for kind := z.Next(); ; kind = z.Next() {
			read += len(z.Raw())
			if kind == html.ErrorToken {
				break
			}
			r.token(z, kind)
		}
		if !errors.Is(z.Err(), html.ErrBufferExceeded) {
			break
		}
		r.page.Truncated = true
		page = page[read:]
	}
	r.end(0)
	r.refer()
}

// findReferred collects the ids in the page's itemrefs.
func (r *reader) findReferred(page []byte) {
	const name = "itemref"
	found := 0
	for at := 1; at+len(name) <= len(page) && found < maxOpen; at++ {
		// The expression alone would take a second for a large page, most of which has no itemref.
		if page[at]|0x20 != name[0] || !bytes.EqualFold(page[at:at+len(name)], []byte(name)) {
			continue
		}
		m := itemref.FindSubmatch(page[at-1:])
		if m == nil {
			continue
		}
		found++
		at += len(m[0]) - 2 // continues behind the match
		for id := range strings.FieldsSeq(string(m[1]) + string(m[2])) {
			r.referred[id] = true
		}
	}
}

// itemref matches the attribute, with the space before it.
var itemref = lazyregexp.New(`^(?i)\sitemref\s*=\s*(?:"([^"<>]{1,1000})"|'?([^\s"'<>]{1,1000}))`)

func (r *reader) token(z *html.Tokenizer, kind html.TokenType) {
	lines, after := bytes.Count(z.Raw(), []byte("\n")), utf8.RuneCount(z.Raw()[bytes.LastIndexByte(z.Raw(), '\n')+1:])
	defer func() {
		if lines > 0 {
			r.column = 0
		}
		r.line, r.column = r.line+lines, r.column+after
	}()
	switch kind {
	case html.TextToken:
		r.words(z)
	case html.StartTagToken, html.SelfClosingTagToken:
		name, more := z.TagName()
		tag := string(name)
		r.start(tag, attributesOf(z, more), void[tag] || kind == html.SelfClosingTagToken && r.within("svg"))
	case html.EndTagToken:
		name, _ := z.TagName()
		r.endTag(string(name))
	default:
	}
}

// place returns the line and column on the page of an offset in a script that begins with the current token.
func (r *reader) place(script string, at int) string {
	head := script[:at]
	begin, column := strings.LastIndexByte(head, '\n')+1, 1
	if begin == 0 {
		column += r.column
	}
	return fmt.Sprintf("line %d, column %d", r.line+1+strings.Count(head, "\n"), column+utf8.RuneCountInString(head[begin:]))
}

// words appends a text to the text of the open elements, or reads it as data.
func (r *reader) words(z *html.Tokenizer) {
	if last := len(r.open) - 1; last >= 0 && r.open[last].kind == linkedData {
		r.linked(string(z.Raw()))
		return
	}
	if r.wanted == 0 || r.silent > 0 {
		return
	}
	text := z.Text()
	for word := range bytes.FieldsSeq(text) {
		if !bytes.HasPrefix(text, word) || strings.IndexByte(".,;:!?)", word[0]) < 0 { // <b>serve</b>.
			r.text = append(r.text, ' ')
		}
		r.text = append(r.text, word...)
	}
}

// start begins an element.
func (r *reader) start(name string, attrs attributes, empty bool) {
	r.implied(name)
	if breaks[name] {
		r.newline()
	}
	e := element{begun: len(r.text), name: name}
	if r.parts == nil {
		r.facts(&e, attrs)
		r.data(&e, attrs)
	} else if name == "main" || name == "article" {
		e.fill = func(text string) {
			if len(text) > len(r.parts[name]) {
				r.parts[name] = text
			}
		}
	}
	if e.fill != nil {
		r.wanted++
	}
	if e.hides = hidden[name] || r.parts != nil && (asides[name] || attrs.has("hidden")); e.hides {
		r.silent++
	}
	r.open = append(r.open, e)
	r.names[name]++
	if empty || len(r.open) > maxOpen {
		r.page.Truncated = r.page.Truncated || !empty
		r.end(len(r.open) - 1)
	}
}

// implied ends the open elements that the start of an element with this name ends.
func (r *reader) implied(name string) {
	rule := ended[name]
	for i := len(r.open) - 1; i >= 0 && r.isOpen(rule.by) && !rule.within[r.open[i].name]; i-- {
		if rule.by[r.open[i].name] {
			r.end(i)
		}
	}
	if !blocks[name] || r.names["p"] == 0 {
		return
	}
	for i := len(r.open) - 1; i >= 0 && !cells[r.open[i].name]; i-- {
		if r.open[i].name == "p" {
			r.end(i)
			return
		}
	}
}

// endTag ends the element of an end tag, and the elements within it. The end of formatting does not end the blocks
// within it.
func (r *reader) endTag(name string) {
	if name == "body" || name == "html" || r.names[name] == 0 { // elements after the first two belong to the body
		return
	}
	for i, e := range slices.Backward(r.open) {
		at := e.name
		switch {
		case at == name && formatting[name]:
			r.open = slices.Delete(r.open, i, i+1)
			r.finish(e)
			return
		case at == name:
			r.end(i)
			return
		case cells[at] && !tables[name], blocks[at] && !blocks[name] && !formatting[name] && !tables[name]:
			return
		}
	}
}

// isOpen reports whether an element of one of the names is open. Otherwise no open element is looked at, of which there may be many.
func (r *reader) isOpen(names map[string]bool) bool {
	for name := range names {
		if r.names[name] > 0 {
			return true
		}
	}
	return false
}

// end ends the open elements from an index on.
func (r *reader) end(from int) {
	for i := len(r.open) - 1; i >= from; i-- {
		e := r.open[i]
		r.open = r.open[:i]
		r.finish(e)
	}
}

// finish passes on the text of an element, if it is wanted.
func (r *reader) finish(e element) {
	r.names[e.name]--
	if e.hides {
		r.silent--
	}
	if e.fill != nil {
		r.wanted--
		if r.take(max(1, e.times) * (len(r.text) - e.begun)) {
			e.fill(visible(string(r.text[e.begun:])))
		}
	}
	if breaks[e.name] {
		r.newline()
	}
	if r.wanted == 0 {
		r.text = r.text[:0]
	}
}

func (r *reader) newline() {
	if r.wanted > 0 {
		r.text = append(r.text, '\n')
	}
}

// take reserves room for so many bytes, and reports whether there was enough.
func (r *reader) take(size int) bool {
	if r.room < size {
		r.page.Truncated = true
		return false
	}
	r.room -= size
	return true
}

func (r *reader) within(name string) bool {
	return slices.ContainsFunc(r.open, func(e element) bool { return e.name == name })
}

// plain returns the visible text of a piece of HTML, with its line breaks.
func plain(piece string) string {
	out := ""
	r := reader{page: &Page{address: &url.URL{}}, room: maxRoom, wanted: 1, open: []element{{fill: func(text string) { out = text }}}}
	r.read([]byte(piece))
	return out
}

// visible drops the line breaks and spaces that a browser does not show.
func visible(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = oneLine(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// attributes are the attributes of a tag that are used.
type attributes map[string]string

func attributesOf(z *html.Tokenizer, more bool) attributes {
	var out attributes
	for more {
		var name, value []byte
		name, value, more = z.TagAttr()
		if used[string(name)] && out == nil {
			out = attributes{}
		}
		if used[string(name)] && !out.has(string(name)) {
			out[string(name)] = string(value)
		}
	}
	return out
}

func (a attributes) has(name string) bool {
	_, has := a[name]
	return has
}

func set(names string) map[string]bool {
	out := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		out[name] = true
	}
	return out
}

var (
	used = set("content data datetime default hidden href http-equiv id itemprop itemref itemscope itemtype kind label lang name property " +
		"rel src srclang type value")

	// void has the elements without content, hidden the elements whose content is not shown, asides those of no part of the main text, breaks
	// the elements on separate lines.
	void   = set("area base br col embed hr img input link meta param source track wbr")
	hidden = set("script style template")
	asides = set("aside button dialog footer iframe menu nav noembed noframes noscript object select svg textarea title")
	breaks = set("br dd div dt h1 h2 h3 h4 h5 li ol p section td tr ul")

	// blocks has the elements that end an open paragraph. The end tag of an outer element that is no block does not end
	// them.
	blocks = set("address article aside blockquote center details dd dialog dir div dl dt fieldset figcaption figure footer form " +
		"h1 h2 h3 h4 h5 h6 header hr li main menu nav ol p pre section summary table ul")
	formatting = set("a b big code em font i nobr s small strike strong tt u")

	// cells has the elements that, from inside, only tags of tables end.
	cells  = set("caption table td template th")
	tables = set("caption table tbody td template tfoot th thead tr")

	// ended has, by the name of the element that starts, the elements that it ends, and the elements within which these
	// are looked for.
	ended = map[string]struct{ by, within map[string]bool }{
		"dd": {set("dd dt"), set("dl table td th")}, "dt": {set("dd dt"), set("dl table td th")},
		"li":     {set("li"), set("menu ol table td th ul")},
		"option": {set("option"), set("select datalist")},
		"td":     {set("td th"), set("table tr")}, "th": {set("td th"), set("table tr")}, "tr": {set("td th tr"), set("table")},
		"tbody": {set("tbody td tfoot th thead tr"), set("table")}, "tfoot": {set("tbody td tfoot th thead tr"), set("table")},
	}
)
