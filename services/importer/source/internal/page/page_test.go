package page

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func address(t testing.TB) *url.URL {
	t.Helper()
	u, err := url.Parse("https://example.com/cake")
	check.OK(t, err)
	return u
}

func parse(t testing.TB, body string) *Page {
	t.Helper()
	p, err := Parse([]byte(body), "text/html; charset=utf-8", address(t))
	check.OK(t, err)
	return p
}

func script(data string) string {
	return `<html lang="en"><head><title> A  page </title><script type="application/ld+json">` + data + `</script></head><body></body></html>`
}

// brief is a recipe in a line each.
func brief(r *recipe.Recipe) string {
	lines := []string{r.Title}
	for _, i := range r.Ingredients {
		lines = append(lines, strings.Join([]string{string(i.Qty), i.Unit, i.Item}, "|"))
	}
	for _, s := range r.Steps {
		lines = append(lines, s.Text)
	}
	return strings.Join(lines, "\n")
}

const whole = `"recipeIngredient":["2 cups flour","1 egg"],"recipeInstructions":"Mix.\nBake."`

func TestRecipeOfPage(t *testing.T) {
	t.Parallel()
	const cake = "Cake\n2|cup|flour\n1||egg\nMix.\nBake."
	for name, test := range map[string]struct{ page, want string }{
		"plain":             {script(`{"@type":"Recipe","name":"Cake",` + whole + `}`), cake},
		"several types":     {script(`{"@type":["Thing","http://schema.org/Recipe"],"name":"Cake",` + whole + `}`), cake},
		"in a graph":        {script(`{"@context":"https://schema.org","@graph":[{"@type":"WebPage"},{"@type":"Recipe","name":"Cake",` + whole + `}]}`), cake},
		"in an array":       {script(`[{"@type":"WebSite"},[{"@type":"Recipe","name":"Cake",` + whole + `}]]`), cake},
		"as main entity":    {script(`{"@type":"WebPage","mainEntity":{"@type":"Recipe","name":"Cake",` + whole + `}}`), cake},
		"in a comment":      {script(`<!-- {"@type":"Recipe","name":"Cake",` + whole + `} -->`), cake},
		"in CDATA":          {script("//<![CDATA[\n{\"@type\":\"Recipe\",\"name\":\"Cake\"," + whole + "};\n//]]>"), cake},
		"with line breaks":  {script("{\"@type\":\"Recipe\",\"name\":\"Ca\nke\"," + whole + "}"), strings.Replace(cake, "Cake", "Ca ke", 1)},
		"behind a bad one":  {script(`{"@type":`) + script(`{"@type":"Recipe","name":"Cake",`+whole+`}`), cake},
		"named by the page": {script(`{"@type":"Recipe",` + whole + `}`), strings.Replace(cake, "Cake", "A page", 1)},
		"with markup":       {script(`{"@type":"Recipe","name":"Mac &amp;amp; <b>cheese</b>","recipeIngredient":["2 cups <i>flour</i>"],"recipeInstructions":"<ol><li>Mix.</li><li>Bake &amp; eat.</li></ol>"}`), "Mac & cheese\n2|cup|flour\nMix.\nBake & eat."},
		"with numbers":      {script(`{"@type":"Recipe","name":"Cake","ingredients":"2 cups flour\n1 egg","recipeInstructions":["1. Mix.","Step 2: Bake."]}`), cake},
		"with steps":        {script(`{"@type":"Recipe","name":"Cake","recipeIngredient":["2 cups flour","1 egg"],"recipeInstructions":[{"@type":"HowToStep","name":"Mixing","text":"Mix."},{"@type":"HowToStep","itemListElement":[{"@type":"HowToDirection","text":"Bake."}]}]}`), cake},
		"with sections":     {script(`{"@type":"Recipe","name":"Cake","recipeIngredient":["2 cups flour","1 egg"],"recipeInstructions":[{"@type":"HowToSection","name":"Batter","itemListElement":[{"@type":"HowToStep","text":"Mix."}]},{"@type":"HowToSection","itemListElement":{"@type":"HowToStep","text":"Bake."}}]}`), cake},
		"with a list":       {script(`{"@type":"Recipe","name":"Cake","recipeIngredient":["2 cups flour","1 egg"],"recipeInstructions":{"@type":"ItemList","itemListElement":[{"@type":"ListItem","position":1,"name":"Mix."},"Bake."]}}`), cake},
		"microdata": {`<div itemscope itemtype="https://schema.org/Recipe"><h1 itemprop="name">Cake</h1><ul><li itemprop="recipeIngredient">2 cups flour<li itemprop="recipeIngredient">1 egg</ul>
			<div itemprop="author" itemscope itemtype="https://schema.org/Person"><b itemprop="name">Cook</b></div>
			<ol itemprop="recipeInstructions"><li>Mix.</li><li>Bake.</li></ol></div>`, cake},
		"microdata of steps": {`<section><article itemscope itemtype="http://schema.org/Recipe"><meta itemprop="name" content="Cake"><span itemprop="ingredients">2 cups flour</span><span itemprop="ingredients">1 egg</span>
			<p itemprop="recipeInstructions" itemscope itemtype="http://schema.org/HowToStep"><span itemprop="text">Mix.</span></p>
			<p itemprop="recipeInstructions" itemscope itemtype="http://schema.org/HowToStep"><span itemprop="text">Bake.</span></p></article></section>`, cake},
		"none":             {script(`{"@type":"Article","name":"Cake"}`), ""},
		"a type like it":   {script(`{"@type":"RecipeCollection","name":"Cake"}`), ""},
		"only a script":    {`<script type="text/javascript">{"@type":"Recipe","name":"Cake",` + whole + `}</script>`, ""},
		"half a recipe":    {script(`{"@type":"Recipe","name":"Cake","recipeIngredient":["2 cups flour"]}`), "Cake\n2|cup|flour"},
		"the whole one":    {script(`[{"@type":"Recipe","name":"Pie"},{"@type":"Recipe","name":"Cake",` + whole + `}]`), cake},
		"the page's own":   {script(`[{"@type":"Recipe","name":"Pie",` + whole + `,"url":"/pie"},{"@type":"Recipe","name":"Cake",` + whole + `,"mainEntityOfPage":{"@id":"https://example.com/cake#x"}}]`), cake},
		"the first of two": {script(`{"@type":"ItemList","itemListElement":[{"@type":"ListItem","item":{"@type":"Recipe","name":"Cake",` + whole + `}},{"@type":"ListItem","item":{"@type":"Recipe","name":"Pie",` + whole + `}}]}`), cake},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if r, ok := parse(t, test.page).Recipe(); ok {
				got = brief(r)
				if several := len(r.Warnings) > 0; several != (name == "the first of two") {
					t.Errorf("warnings %v", r.Warnings)
				}
			}
			check.Equal(t, test.want, got)
		})
	}
}

func TestFactsOfPage(t *testing.T) {
	t.Parallel()
	p := parse(t, script(`{"@graph":[{"@type":"Person","@id":"#cook","name":"A Cook"},{"@type":"Recipe","name":"Cake","inLanguage":"en-GB","author":{"@id":"#cook"},
		"recipeYield":["4","4 servings"],"prepTime":"PT20M","cookTime":"PT1H","totalTime":"P0DT1H20M","description":"Soft &amp; light",`+whole+`}]}`))
	r, ok := p.Recipe()
	if !ok {
		t.Fatal("no recipe")
	}
	if r.Servings != "4 servings" || r.Times != (recipe.Times{PrepSec: 1200, CookSec: 3600, TotalSec: 4800}) || r.Description != "Soft & light" ||
		r.Language != "en-GB" || p.Author != "A Cook" {
		t.Errorf("servings %q, times %+v, description %q, language %q, author %q", r.Servings, r.Times, r.Description, r.Language, p.Author)
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"PT1H30M": 5400, "PT90M": 5400, "pt45m": 2700, "P1D": 86400, "P1DT12H": 129600, "PT0.5H": 1800, "PT1,5H": 5400, "P0Y0M0DT0H35M0.000S": 2100,
		"PT30S": 30, "P1W": 604800, " PT5M ": 300,
		"": 0, "P": 0, "PT": 0, "30 minutes": 0, "PT-5M": 0, "PT5": 0, "P1M": 0, "PT1H30": 0, "P2W": 0, "PT999999999999999999H": 0, "PTM": 0, "PT1e9H": 0,
	} {
		if got := seconds(text); got != want {
			t.Errorf("%q is %d seconds: want %d", text, got, want)
		}
	}
}

func TestEncodings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ contentType, body string }{
		"header":     {"text/html; charset=iso-8859-1", "<title>Cr\xe8me</title>"},
		"meta":       {"text/html", "<meta charset=\"windows-1252\"><title>Cr\xe8me</title>"},
		"byte order": {"text/html", "\xef\xbb\xbf<title>Crème</title>"},
		"UTF-8":      {"text/html; charset=UTF-8", "<title>Crème</title>"},
		"nonsense":   {"text/html; charset=nonsense", "<meta charset=utf-8><title>Crème</title>"},
	} {
		p, err := Parse([]byte(test.body), test.contentType, address(t))
		if err != nil || p.Title != "Crème" {
			t.Errorf("%s: title %q, error %v", name, p.Title, err)
		}
	}
}

func TestTracks(t *testing.T) {
	t.Parallel()
	choose := func(body string) string {
		track, _ := parse(t, body).Choose()
		return strings.TrimPrefix(track.URL, "https://example.com/")
	}
	const video = `<video><track kind=captions srclang=de src=de.vtt><track srclang=en src="/en.vtt"><track kind=descriptions srclang=fr src=no.vtt><track kind=subtitles srclang=fr src=fr.vtt default></video>`
	for body, want := range map[string]string{
		video: "fr.vtt", `<html lang="de-AT">` + video: "de.vtt", `<html lang="it">` + video: "fr.vtt",
		strings.Replace(video, " default", "", 1): "en.vtt", `<video><track src=x.vtt></video>`: "x.vtt",
		`<base href="https://cdn.example.com/a/">` + `<video><track src=x.vtt></video>`: "https://cdn.example.com/a/x.vtt",
		`<video src=a.mp4></video>`: "", `<video><track></video>`: "",
	} {
		if got := choose(body); got != want {
			t.Errorf("%s\nchose %q: want %q", body, got, want)
		}
	}
}

// Pages are made by strangers: whatever they hold, reading them ends, and soon.
func TestHostilePages(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"deep elements":  strings.Repeat("<div>", 100_000) + script(`{"@type":"Recipe"}`),
		"deep data":      script(`{"@graph":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`),
		"deep things":    script(strings.Repeat(`{"@type":"Recipe","recipeInstructions":[`, 2000) + strings.Repeat("]}", 2000)),
		"deep microdata": strings.Repeat(`<b itemscope itemprop=x>`, 500),
		"many steps":     script(`{"@type":"Recipe","recipeInstructions":"` + strings.Repeat(`Mix.\n`, 200_000) + `"}`),
		"many tracks":    "<video>" + strings.Repeat("<track src=x>", 10_000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := Parse([]byte(body), "text/html", address(t))
			if err != nil {
				return
			}
			if r, ok := p.Recipe(); ok && len(r.Steps) > recipe.MaxSteps+1 || len(p.Tracks) > maxTracks {
				t.Errorf("%d steps and %d tracks: want them bounded", len(r.Steps), len(p.Tracks))
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(script(`{"@type":"Recipe","name":"Cake","totalTime":"PT1H",`+whole+`}`)), "text/html")
	f.Add([]byte(`<div itemscope itemtype="https://schema.org/Recipe"><i itemprop="recipeInstructions">x</i></div><track src=%zz>`), "text/html; charset=gbk")
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		began := time.Now()
		p, err := Parse(body, contentType, address(t))
		if err != nil {
			return
		}
		p.Choose()
		if r, ok := p.Recipe(); ok && r.Times.TotalSec < 0 {
			t.Errorf("total %d", r.Times.TotalSec)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%d bytes took %s", len(body), took)
		}
	})
}
