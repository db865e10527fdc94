package page

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

const (
	cakeBrief = "Cake\n2|cup|flour\n1||egg\nMix.\nBake."
	cakeData  = `{"@type":"Recipe","name":"Cake",` + whole + `}`
)

// item is a recipe in microdata: an ingredient and a step are in what is given, in the order of cakeBrief.
func item(parts string) string {
	return `<article itemscope itemtype="https://schema.org/Recipe"><meta itemprop=name content=Cake>` + parts + `</article>`
}

// Tags that are missing or out of order end elements where browsers end them.
func TestTagsOutOfOrder(t *testing.T) {
	t.Parallel()
	ingredients := `<i itemprop=recipeIngredient>2 cups flour</i><i itemprop=recipeIngredient>1 egg</i>`
	for name, parts := range map[string]string{
		"paragraphs":           ingredients + `<p itemprop=recipeInstructions>Mix.<p itemprop=recipeInstructions>Bake.<div>Not this</div>`,
		"formatting around":    `<b><p itemprop=recipeIngredient>2 cups</b> flour</p><b itemprop=recipeIngredient>1 egg</b>` + `<p itemprop=recipeInstructions><b>Mix.</p><p itemprop=recipeInstructions>Bake.</b></p>`,
		"an end of no element": `</div></b></p>` + ingredients + `<div itemprop=recipeInstructions></span>Mix.</b><br>Bake.</div>`,
		"cells":                `<table><tr><td itemprop=recipeIngredient>2 cups flour</div><th itemprop=recipeIngredient>1 egg<tr><td itemprop=recipeInstructions>Mix.<p>Bake.</table>`,
		"an end behind cells":  `<div><table><tr><td>x</div>` + ingredients + `</table></div><div itemprop=recipeInstructions>Mix.<br/>Bake.</div>`,
		"definitions":          `<dl><dt itemprop=recipeIngredient>2 cups flour<dd>x<dt itemprop=recipeIngredient>1 egg</dl><ol itemprop=recipeInstructions><li>Mix.<li>Bake.</ol>`,
		"lists in lists":       `<ul><li>x<ul><li itemprop=recipeIngredient>2 cups flour</ul><li itemprop=recipeIngredient>1 egg</ul><ol itemprop=recipeInstructions><li>Mix.<ul><li>Bake.</ul></ol>`,
		"an end of the body":   ingredients + `</body></html><p itemprop=recipeInstructions>Mix.<br>Bake.`,
		"what is not shown":    ingredients + `<p itemprop=recipeInstructions><script>x</script>Mix.<template><p>x</p></template><style>x</style><br>Bake.`,
	} {
		r, ok := parse(t, item(parts)).Recipe()
		if !ok || brief(r) != cakeBrief {
			t.Errorf("%s: %t\n%s", name, ok, brief(r))
		}
	}
}

// A page cannot make its reader keep more than so much: what is beyond is left out, and said to be.
func TestBounds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxToken+1)
	for name, test := range map[string]struct{ body, want string }{
		"an attribute":     {`<img src="` + long + `">` + script(cakeData), cakeBrief},
		"attributes":       {`<p ` + strings.Repeat("a ", maxToken) + `>` + script(cakeData), cakeBrief},
		"a script":         {`<script>` + long + `</script>` + script(cakeData), cakeBrief},
		"a comment":        {`<!--` + long + `-->` + script(cakeData), cakeBrief},
		"values":           {script(cakeData) + script(`[`+strings.Repeat(`{"@type":"Recipe"},`, maxRoom/costOfValue)+`0]`), cakeBrief},
		"elements":         {script(cakeData) + strings.Repeat(`<b><div>`, 100_000), cakeBrief},
		"nested items":     {script(cakeData) + strings.Repeat(`<div itemscope itemprop=x>`, 100_000), cakeBrief},
		"nested texts":     {script(cakeData) + item(strings.Repeat(`<div itemprop=x>`, 200)+strings.Repeat("x ", 500_000)), cakeBrief},
		"names":            {script(cakeData) + item(`<i itemprop="`+strings.Repeat("x ", 900_000)+`">x</i>`), cakeBrief},
		"addresses":        {script(cakeData) + item(strings.Repeat(`<img itemprop=x src="`+strings.Repeat("y", 1000)+`">`, 40_000)), cakeBrief},
		"types":            {script(cakeData) + `<p itemscope itemtype="` + strings.Repeat("x ", 900_000) + `">`, cakeBrief},
		"attributes twice": {script(cakeData) + `<p ` + strings.Repeat("itemprop ", 100_000) + strings.Repeat(">", maxToken), cakeBrief},
	} {
		p := parse(t, test.body)
		r, ok := p.Recipe()
		check.That(t, ok && brief(r) == test.want && p.Truncated != (name == "attributes twice"), "%s: %t, truncated %t", name, ok, p.Truncated)
	}
	p := parse(t, strings.Repeat(`<base href="a/b/"><base>`, 1000)+`<track src=x.vtt>`)
	check.Equal(t, "https://example.com/a/b/x.vtt", p.Tracks[0].URL)
	p = parse(t, script(`[{"@type":"Recipe","name":"Cake",`+whole+`,"author":[`+strings.Repeat(`{"@id":"#y"},`, 20_000)+`0]},`+strings.Repeat(`{"@id":"#x","@type":"T"},`, 10_000)+`0]`))
	_, ok := p.Recipe()
	check.That(t, ok, "many references: no recipe")
}

// FuzzReader: whatever a page holds, all that was opened is closed, and what is kept has a bound.
func FuzzReader(f *testing.F) {
	f.Add(script(cakeData))
	f.Add(item(`<b><p itemprop=name>x</b><table><td itemprop="a b">1<td>2</table><a itemprop=url href="?x">y</a>`))
	f.Add(`<svg><title>x</title><path/></svg><title>y<base href="//z"><track src=x><html lang=x>`)
	f.Add("<p itemscope><template itemprop=a><li><li></template></p><plaintext>")
	f.Fuzz(func(t *testing.T, body string) {
		p := &Page{address: &url.URL{Scheme: "https", Host: "example.com"}}
		r := reader{page: p, room: maxRoom}
		r.read([]byte(body))
		check.Require(t, len(r.open) == 0 && r.wanted == 0 && r.silent == 0 && r.room >= 0 && len(r.text) == 0,
			"open %d, wanted %d, silent %d, room %d", len(r.open), r.wanted, r.silent, r.room)
		if found, ok := p.Recipe(); ok {
			_ = fmt.Sprint(found)
		}
		text := plain(body)
		check.Require(t, !strings.Contains(text, "\n\n") && text == strings.TrimSpace(text), "%q", text)
	})
}
