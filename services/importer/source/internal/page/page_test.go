package page

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
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
	return check.Must(url.Parse("https://example.com/cake"))(t)
}

func parse(t testing.TB, body string) *Page {
	t.Helper()
	return Parse([]byte(body), address(t))
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

// The language of the page decides about numbers and words; what it leaves open is marked.
func TestLanguageOfPage(t *testing.T) {
	t.Parallel()
	const recipes = `{"@type":"Recipe","name":"x","totalTime":"%s","recipeIngredient":["1,250 kg Kartoffeln","1.500 ml Wasser"],"recipeInstructions":"%s"}`
	for _, c := range []struct{ language, time, step, want string }{
		{"de", "eineinhalb Stunden", "Zwei Stunden ruhen lassen.", "5400 7200 1 1/4 kilogram Kartoffeln [] 1500 milliliter Wasser []"},
		{"es-ES", "una hora y media", "Hornear dos horas y media.", "5400 9000 1 1/4 kilogram Kartoffeln [] 1500 milliliter Wasser []"},
		{"", "полтора часа", "Варить два часа.", "5400 7200 1 1/4 kilogram Kartoffeln [] 1500 milliliter Wasser []"},
		{"en", "1 hour", "Rest for one and a half hours.", "3600 5400   1,250 kg Kartoffeln [qty]   1.500 ml Wasser [qty]"},
	} {
		page := strings.Replace(script(fmt.Sprintf(recipes, c.time, c.step)), `lang="en"`, `lang="`+c.language+`"`, 1)
		r, ok := parse(t, page).Recipe()
		check.Require(t, ok && len(r.Ingredients) == 2 && len(r.Steps) == 1 && len(r.Steps[0].Times) == 1, "%s: %+v", c.language, r)
		got := fmt.Sprint(r.Times.TotalSec, r.Steps[0].Times[0].MaxSec)
		for _, i := range r.Ingredients {
			got += fmt.Sprintf(" %s %s %s %v", i.Qty, i.Unit, i.Item, i.Unverified)
		}
		check.Equal(t, got, c.want, c.language)
	}
}

const ingredientsAndSteps = `"recipeIngredient":["2 cups flour","1 egg"],"recipeInstructions":"Mix.\nBake."`

func TestRecipeOfPage(t *testing.T) {
	t.Parallel()
	const cake = "Cake\n2|cup|flour\n1||egg\nMix.\nBake."
	for name, test := range map[string]struct{ page, want string }{
		"plain":             {script(`{"@type":"Recipe","name":"Cake",` + ingredientsAndSteps + `}`), cake},
		"in an array":       {script(`[{"@type":"WebSite"},[{"@type":"Recipe","name":"Cake",` + ingredientsAndSteps + `}]]`), cake},
		"as main entity":    {script(`{"@type":"WebPage","mainEntity":{"@type":"Recipe","name":"Cake",` + ingredientsAndSteps + `}}`), cake},
		"named by the page": {script(`{"@type":"Recipe",` + ingredientsAndSteps + `}`), strings.Replace(cake, "Cake", "A page", 1)},
		"with steps":        {script(`{"@type":"Recipe","name":"Cake","recipeIngredient":["2 cups flour","1 egg"],"recipeInstructions":[{"@type":"HowToStep","name":"Mixing","text":"Mix."},{"@type":"HowToStep","itemListElement":[{"@type":"HowToDirection","text":"Bake."}]}]}`), strings.Replace(cake, "Mix", "Mixing: Mix", 1)},
		"with sections":     {script(`{"@type":"Recipe","name":"Cake","recipeIngredient":["2 cups flour","1 egg"],"recipeInstructions":[{"@type":"HowToSection","name":"Batter","itemListElement":[{"@type":"HowToStep","text":"Mix."}]},{"@type":"HowToSection","itemListElement":{"@type":"HowToStep","text":"Bake."}}]}`), strings.Replace(cake, "Mix", "Batter: Mix", 1)},
		"microdata": {`<div itemscope itemtype="https://schema.org/Recipe"><h1 itemprop="name">Cake</h1><ul><li itemprop="recipeIngredient">2 cups flour<li itemprop="recipeIngredient">1 egg</ul>
			<div itemprop="author" itemscope itemtype="https://schema.org/Person"><b itemprop="name">Cook</b></div>
			<ol itemprop="recipeInstructions"><li>Mix.</li><li>Bake.</li></ol></div>`, cake},
		"microdata of steps": {`<section><article itemscope itemtype="http://schema.org/Recipe"><meta itemprop="name" content="Cake"><span itemprop="ingredients">2 cups flour</span><span itemprop="ingredients">1 egg</span>
			<p itemprop="recipeInstructions" itemscope itemtype="http://schema.org/HowToStep"><span itemprop="text">Mix.</span></p>
			<p itemprop="recipeInstructions" itemscope itemtype="http://schema.org/HowToStep"><span itemprop="text">Bake.</span></p></article></section>`, cake},
		"itemref":          {`<ul id=list><li itemprop=recipeIngredient>2 cups flour<li itemprop=recipeIngredient>1 egg</ul><div itemscope itemtype="https://schema.org/Recipe" itemref="list way"><h1 itemprop=name>Cake</h1></div><ol><li id=way itemprop=recipeInstructions>Mix.<br>Bake.</ol>`, cake},
		"none":             {script(`{"@type":"Article","name":"Cake"}`), ""},
		"only a script":    {`<script type="text/javascript">{"@type":"Recipe","name":"Cake",` + ingredientsAndSteps + `}</script>`, ""},
		"half a recipe":    {script(`{"@type":"Recipe","name":"Cake","recipeIngredient":["2 cups flour"]}`), "Cake\n2|cup|flour"},
		"the whole one":    {script(`[{"@type":"Recipe","name":"Pie"},{"@type":"Recipe","name":"Cake",` + ingredientsAndSteps + `}]`), cake},
		"the page's own":   {script(`[{"@type":"Recipe","name":"Pie",` + ingredientsAndSteps + `,"url":"/pie"},{"@type":"Recipe","name":"Cake",` + ingredientsAndSteps + `,"mainEntityOfPage":{"@id":"https://example.com/cake#x"}}]`), cake},
		"the first of two": {script(`{"@type":"ItemList","itemListElement":[{"@type":"ListItem","item":{"@type":"Recipe","name":"Cakes",` + ingredientsAndSteps + `}},{"@type":"ListItem","item":{"@type":"Recipe","name":"Pie",` + ingredientsAndSteps + `}}]}`), strings.Replace(cake, "Cake", "Cakes", 1)},
	} {
		got := ""
		if r, ok := parse(t, test.page).Recipe(); ok {
			got = brief(r)
			check.That(t, (len(r.Warnings) > 0) == (name == "the first of two"), "%s: warnings %v", name, r.Warnings)
		}
		check.Equal(t, got, test.want, name)
	}
}

// What a page says about the dish is read in the forms that pages have: texts, lists, things and references.
func TestDetailsOfPage(t *testing.T) {
	t.Parallel()
	ld := func(graph, more string) string {
		return script(`{"@graph":[` + graph + `{"@type":"Recipe","name":"Cake",` + more + `,` + ingredientsAndSteps + `}]}`)
	}
	tip := `{"@type":"HowToTip","text":"Use cold butter."}`
	for name, test := range map[string]struct {
		page string
		want recipe.Details
	}{
		"texts": {
			ld("", `"image":"/a.jpg","author":"A. Cook","keywords":"quick, vegan,","recipeCategory":"Soups, stews","recipeCuisine":"Thai"`),
			recipe.Details{
				Image: "https://example.com/a.jpg", Authors: []string{"A. Cook"}, Keywords: []string{"quick", "vegan"},
				Categories: []string{"Soups, stews"}, Cuisines: []string{"Thai"},
			},
		},
		"lists": {
			ld("", `"image":["data:image/png;base64,AA","//cdn.example/b.jpg","/c.jpg"],"author":[{"name":"A. Cook"},{"@type":"Organization","name":"B &amp; C"}],
				"keywords":["سريع، نباتي",{"@type":"DefinedTerm","name":"Käse"}],"recipeCategory":["Dessert","Dessert",""],"recipecuisine":["Deutsch","ไทย"]`),
			recipe.Details{
				Image: "https://cdn.example/b.jpg", Authors: []string{"A. Cook", "B & C"}, Keywords: []string{"سريع", "نباتي", "Käse"},
				Categories: []string{"Dessert"}, Cuisines: []string{"Deutsch", "ไทย"},
			},
		},
		"things": {
			ld("", `"image":{"@type":"ImageObject","url":"https://example.com/d.jpg"},"video":{"@type":"VideoObject","embedUrl":"https://video.example/e"},
				"nutrition":{"@type":"NutritionInformation","calories":{"@type":"Energy","value":270,"unitText":"kcal"},"fatContent":"9,5 g","proteincontent":7,"sugarContent":"","x":"y"}`),
			recipe.Details{
				Image: "https://example.com/d.jpg", Video: "https://video.example/e",
				Nutrition: map[string]string{"calories": "270 kcal", "fatContent": "9,5 g", "proteinContent": "7"},
			},
		},
		"references": {
			ld(`{"@type":"WebPage","@id":"#i"},{"@type":"ImageObject","@id":"#i","contentUrl":"/f.jpg"},{"@type":"Person","@id":"#p","name":"Кухар"},`,
				`"image":{"@id":"#i"},"author":[{"@id":"#p"},{"@id":"#none"}]`),
			recipe.Details{Image: "https://example.com/f.jpg", Authors: []string{"Кухар"}},
		},
		"other addresses": {
			ld("", `"image":["javascript:alert(1)","https://a:b@example.com/g.jpg","file:///g.jpg","#g","http://[::1"],"thumbnailUrl":"http://example.com/h.jpg"`),
			recipe.Details{Image: "http://example.com/h.jpg"},
		},
		"notes": {
			ld("", `"author":"A. Cook","comment":["Keeps for a week.",{"@type":"Comment","text":"Freeze <b>it</b>."},{"text":"Gut.","author":{"name":"A. Cook"}},
				{"text":"Loved it!","author":{"name":"A reader"}},{"text":"So so.","creator":"B"}]`),
			recipe.Details{Authors: []string{"A. Cook"}, Notes: []string{"Keeps for a week.", "Freeze it.", "Gut."}},
		},
		"tips": {
			script(`{"@type":"Recipe","name":"Cake","recipeIngredient":["2 cups flour","1 egg"],"recipeInstructions":[` + tip + `,{"@type":"HowToSection","itemListElement":[
				{"@type":"HowToStep","itemListElement":[{"@type":"HowToDirection","text":"Mix."},{"@type":"HowToTip","text":"Do not knead."}]}]},
				{"@type":"HowToStep","text":"Bake.","itemListElement":[{"@type":"HowToTip","text":"Bake."}]}]}`),
			recipe.Details{Notes: []string{"Use cold butter.", "Do not knead."}},
		},
		"microdata": {
			item(`<i itemprop=recipeIngredient>2 cups flour</i><i itemprop=recipeIngredient>1 egg</i><p itemprop=recipeInstructions>Mix.<br>Bake.</p>
				<img itemprop=image src=k.jpg><b itemprop=author>A. Cook</b><b itemprop=recipeCategory>Dolci</b><b itemprop=keywords>veloce, facile</b><p itemprop=comment>Si conserva.</p>
				<div itemprop=nutrition itemscope itemtype="https://schema.org/NutritionInformation"><b itemprop=calories>120 kcal</b></div>`),
			recipe.Details{
				Image: "https://example.com/k.jpg", Authors: []string{"A. Cook"}, Categories: []string{"Dolci"}, Keywords: []string{"veloce", "facile"},
				Notes: []string{"Si conserva."}, Nutrition: map[string]string{"calories": "120 kcal"},
			},
		},
	} {
		r, ok := parse(t, test.page).Recipe()
		check.Require(t, ok, "%s: no recipe", name)
		check.Equal(t, r.Details, test.want)
		check.Equal(t, brief(r), cakeBrief, name)
	}
}

// A clip gives its step the time in the video, also behind the heading of a section, and no other value does.
func TestTimesOfSteps(t *testing.T) {
	t.Parallel()
	for video, want := range map[string]string{
		`{"@type":"Clip","startOffset":12.5,"endOffset":30}`: "12.5-30", `[{"@type":"Clip","startOffset":"0"}]`: "0-", `{"endOffset":30}`: "-",
		`{"startOffset":"soon"}`: "-", `"https://video.example/"`: "-",
	} {
		r, _ := parse(t, script(`{"@type":"Recipe","recipeInstructions":{"@type":"HowToSection","name":"Batter","itemListElement":[{"@type":"HowToStep","text":"Mix.","video":`+
			video+`}]}}`)).Recipe()
		check.Require(t, len(r.Steps) == 1 && r.Steps[0].Text == "Batter: Mix.", "steps %v", r.Steps)
		got := ""
		for i, at := range []*float64{r.Steps[0].Timestamp, r.Steps[0].End} {
			if got += []string{"", "-"}[i]; at != nil {
				got += fmt.Sprint(*at)
			}
		}
		check.Equal(t, got, want, video)
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"PT1H30M": 5400, "PT90M": 5400, "pt45m": 2700, "P1D": 86400, "P1DT12H": 129600, "PT0.5H": 1800, "PT1,5H": 5400, "P0Y0M0DT0H35M0.000S": 2100,
		"PT30S": 30, "P1W": 604800, " PT5M ": 300, "PT0D0H30M": 1800, "P0DT1H": 3600, "PT32 M": 1920, "PT20 Mins": 1200, "PT 1 hour 5 minutes": 3900, "P T15M": 900,
		"20 minutes": 1200, "1 hr 20 mins": 4800, "1h30m": 5400, "20 Minuten": 1200, "2 Std. 10 Min.": 7800, "1 heure 30": 5400, "40 мин": 2400, "20-30 minutes": 1800, "1 1/2 hours": 5400,
		"an hour": 3600, "1:30": 5400, "90m": 5400, "0 minutes": 0, "1 semaine": -1, "1 mois": -1, "1 Stunde": 3600, "00:45:30": 2730,
		"": 0, "P": 0, "PT": 0, "PT0M": 0,
		"PT-5M": -1, "PT5": -1, "P1M": -1, "PT1H30": -1, "P2W": -1, "P010D": -1, "PT999999999999999999H": -1, "PTM": -1, "PT1e9H": -1, "ages": -1, "45": -1, "1:75": -1, "P1Y": -1,
	} {
		got, ok := seconds(text, "")
		if !ok && got == 0 {
			got = -1
		}
		check.Equal(t, got, want, fmt.Sprintf("%q is seconds", text))
	}
}

// Of several recipes, the one is read that the page is about, and a page that does not say which gives a warning.
func TestRecipeOfSeveral(t *testing.T) {
	t.Parallel()
	one := func(name, more string) string {
		return `{"@type":"Recipe","name":"` + name + `",` + more + ingredientsAndSteps + `}`
	}
	two := func(pie, cake string) string { return script("[" + one("Pie", pie) + "," + one("Cake", cake) + "]") }
	for name, test := range map[string]struct{ page, want string }{
		"scheme, www and slash": {two(`"url":"https://example.com/pie",`, `"url":"http://www.EXAMPLE.com/cake/",`), "Cake"},
		"query and fragment":    {two(`"@id":"/pie#r",`, `"@id":"https://example.com/cake?utm_source=x#r",`), "Cake"},
		"main entity of a page": {two(`"mainEntityOfPage":{"@id":"/pie"},`, `"mainEntityOfPage":{"@type":"WebPage","url":"/cake"},`), "Cake"},
		"canonical":             {`<link rel=canonical href="//www.example.com/kuchen/">` + two(`"url":"/torte",`, `"url":"/kuchen",`), "Cake"},
		"og:url":                {`<meta property="og:url" content="https://example.com/gateau">` + two(`"url":"/tarte",`, `"url":"/gateau",`), "Cake"},
		"queries differ":        {`<link rel=canonical href="/r?id=2">` + two(`"url":"/r?id=1",`, `"url":"/r?id=2",`), "Cake"},
		"behind a base":         {`<base href="https://cdn.example/">` + two(`"url":"https://example.com/pie",`, `"url":"https://example.com/cake",`), "Cake"},
		"main entity by id":     {script(`{"@graph":[{"@type":"WebPage","mainEntity":{"@id":"#b"}},` + one("Pie", `"@id":"#a",`) + `,` + one("Tart", `"@id":"#b",`) + `]}`), "Tart"},
		"main entity":           {script(`[` + one("Pie", "") + `,{"@type":"WebPage","mainEntity":` + one("Tart", "") + `}]`), "Tart"},
		"title":                 {`<meta property="og:title" content="Mum's crème brûlée | Blog">` + script("["+one("Pie", "")+","+one("Crème brûlée", "")+"]"), "Crème brûlée"},
		"headline":              {script(`{"@graph":[{"@type":"BlogPosting","headline":"עוגת שוקולד של סבתא"},` + one("Pie", "") + `,` + one("עוגת שוקולד", "") + `]}`), "עוגת שוקולד"},
		"the longer name":       {`<link rel=canonical href="/creme-brulee-tarte">` + script("["+one("Crème brûlée", "")+","+one("Crème brûlée Tarte", "")+"]"), "Crème brûlée Tarte"},
		"its own half":          {script(`[` + one("Pie", `"url":"/pie",`) + `,{"@type":"Recipe","name":"Cake","url":"/cake","recipeIngredient":["1 egg"]}]`), "Cake"},
		"itself twice":          {script(one("Tart", "")) + item(`<i itemprop=recipeIngredient>2 cups flour</i><i itemprop=recipeIngredient>1 egg</i><p itemprop=recipeInstructions>Mix.<p itemprop=recipeInstructions>Bake.`) + script(one("cake", "")), "Cake"},
		"all of them":           {two(`"mainEntityOfPage":"/cake",`, `"mainEntityOfPage":"/cake",`) + `<title>x</title>`, "Cake"},
		"none of them":          {script("[" + one("Soupe", `"url":"/soupe",`) + "," + one("Tarte", `"url":"/tarte",`) + "]"), "? Soupe"},
		"ids of the page":       {script("[" + one("Sopa", `"@id":"#a",`) + "," + one("Tarta", "") + "]"), "? Sopa"},
	} {
		r, _ := parse(t, test.page).Recipe()
		got := r.Title
		if len(r.Warnings) > 0 {
			got = "? " + got
			check.Contains(t, r.Warnings[0].Text, "has 2 recipes", r.Title)
		}
		check.Equal(t, got, test.want, name)
	}
}

// Steps have no labels, in any language, and a list that says its steps several times gives them once.
func TestSteps(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		`[{"name":"Die Zwiebeln in feine…","text":"Die Zwiebeln in feine Würfel schneiden."},{"name":"1. Kochen","text":"Kochen"}]`: "Die Zwiebeln in feine Würfel schneiden.|Kochen",
		`["1. Adım: Doğrayın.","Adım 2 - Kavurun."]`: "Doğrayın.|Kavurun.", `["만드는 법","1단계: 끓인다.","2단계","넣는다."]`: "끓인다.|넣는다.",
		`["ขั้นตอนที่ ๑","ล้างข้าว"]`: "ล้างข้าว", `["步骤1：洗米。","第二步：煮饭。"]`: "洗米。|煮饭。", `["手順1","切る。","切る。"]`: "切る。", `"①切る。②焼く。"`: "切る。|焼く。",
		`["चरण १","पकाएं।"]`: "पकाएं।", `["Trinn 2: Kok.","6. lépés: Tálald.","Βήμα 8: Σερβίρετε."]`: "Kok.|Tálald.|Σερβίρετε.", `["Paso uno","Pelar.","2"]`: "Pelar.",
		`["Pela.","Hierve.","Pela.","Hierve.","Pela.","Hierve."]`: "Pela.|Hierve.", `["A.","A.","B.","B."]`: "A.|B.", `["Fold.","Chill.","Fold.","Chill.","Bake."]`: "Fold.|Chill.|Fold.|Chill.|Bake.",
		`["Schälen.","Kochen.","Schälen. Kochen."]`: "Schälen.|Kochen.", `[{"@type":"HowToSection","name":"Masa","itemListElement":["Mezclar.","Reposar."]},"Mezclar.","Reposar."]`: "Masa: Mezclar.|Reposar.",
		`"<b>Step 1</b><br>Mix <b>the</b> eggs.<br><strong>Step 2:</strong> Bake.<h3><b>For the sauce</b></h3>Boil."`: "Mix the eggs.|Bake.|For the sauce: Boil.",
		`["2 eggs go first.","10 minutes later, stir.","Day 1: Soak.","- Peel."]`:                                     "2 eggs go first.|10 minutes later, stir.|Day 1: Soak.|Peel.",
	} {
		r, _ := parse(t, script(`{"@type":"Recipe","recipeInstructions":`+list+`}`)).Recipe()
		_, got, _ := strings.Cut(strings.ReplaceAll(brief(r), "\n", "|"), "|")
		check.Equal(t, got, want, list)
	}
}

// Parts that are not read are reported, and parts that are read are whole.
func TestNothingIsDroppedInSilence(t *testing.T) {
	t.Parallel()
	long := strings.TrimSpace(strings.Repeat("Whisk until smooth. ", 150))
	deep := strings.Repeat(`{"@type":"HowToSection","itemListElement":[`, 30) + `"Bake."` + strings.Repeat("]}", 30)
	item := `<div itemscope itemtype="https://schema.org/Recipe"><b itemprop="recipeIngredient">1 egg</b>` +
		strings.Repeat(`<div itemprop="recipeInstructions" itemscope itemtype="https://schema.org/HowToSection">`, 30) + `Bake.`
	for name, test := range map[string]struct {
		page, has string
		truncated bool
	}{
		"the long name of a step": {script(`{"@type":"Recipe","recipeInstructions":[{"@type":"HowToStep","name":"` + long + `","text":"Bake."}]}`), long[:len(long)-1] + ": Bake.", false},
		"deep data":               {script(`{"@type":"Recipe","recipeInstructions":["Mix.",` + deep + `]}`), "Mix.", true},
		"deep microdata":          {item, "", true},
	} {
		p := parse(t, test.page)
		r, ok := p.Recipe()
		if !ok || p.Truncated != test.truncated || !strings.Contains(brief(r), test.has) {
			t.Errorf("%s: truncated %t, recipe %.200s", name, p.Truncated, brief(r))
		}
	}
}

// A script that is nearly JSON is read where it has one meaning, and its faults are listed with their places.
func TestLenient(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		// One meaning.
		"[\"a\nb\tc\"]": `[["a\nb c"]]`, `["a 9" pan", "b"]`: `[["a 9\" pan","b"]]`, `["it\'s \x41 \u00e9"]`: `[["it's A é"]]`,
		`{"a":[1,2,],}`: `[{"a":[1,2]}]`, `{"a":1,,}`: `[{"a":1}]`, "{/* c */\"a\": // d\n1}": `[{"a":1}]`,
		`["a "b", c"]`: `[["a \"b\", c"]]`, `{'a': 'it's', b: "it's"}`: `[{"a":"it's","b":"it's"}]`, `['a "b"', 'cooks' "c"']`: `[["a \"b\"","cooks' \"c\""]]`,
		"//<![CDATA[\n[1];\n//]]>": `[[1]]`, `/*<![CDATA[*/ [[1]] /*]]>*/`: `[[[1]]]`, "<!--\n[1]\n-->": `[[1]]`, "//<![CDATA[ [1] //]]>": `[[1]]`,
		"\ufeff[1]\u00a0": `[[1]]`, "var x = {\"a\":1};": `[{"a":1}]`, `[1] {"a":2}`: `[[1],{"a":2}]`, `["350\°F"]`: `[["350°F"]]`,
		`{"t":"Mix "a", "b" and c","n":1}`: `[{"n":1,"t":"Mix \"a\", \"b\" and c"}]`, "[\"a\x00b\x1f\"]": `[["a b "]]`, "/*": `null`,
		// None, or more than one.
		`{"a":NaN,"b":1}`: `[{"b":1}]; 1:6 "a" has "NaN"`, "{\"b\":1,\n \"a\": undefined }": `[{"b":1}]; 2:7 "a" has "undefined"`,
		`["½ \d", "1\2 cup", "1\ 2"]`: `[["½ \\d"]]; 1:5 a backslash; 1:10 "" has "\"1\\2 cup\""; 1:21 "" has "\"1\\ 2\""`,
		`["1 egg" "2 cups"]`:          `[["1 egg","2 cups"]]; 1:10 a comma`, `["1 egg, "2 cups", "b"]`: `[["b"]]; 1:2 "" has`, `["1 egg""2 cups", "b"]`: `[["b"]]; 1:2 "" has`,
		`["1 egg", 2 cups", "b"]`: `[["b"]]; 1:2 "" has`, `["Add "salt", "oil" and more", "b"]`: `[["b"]]; 1:2 "" has; 1:15 "" has`,
		`{"y":1,5,"b":2}`: `[{"b":2}]; 1:8 the name`, `{"y":4 servings,"b":2}`: `[{"b":2}]; 1:6 "y" has "4 servings"`, `{"y":04,"b":010}`: `[{}]; 1:6 "y" has "04"; 1:13 "b" has "010"`,
		`{"a":"x" "b":"y"}`: `[{"a":"x","b":"y"}]; 1:10 a comma`, `{"a":{{ x | y: "1, 2" }},"b":1}`: `[{"a":{},"b":1}]; 1:7 the name`,
		`{"a":"x,"b":"y"}`: `[{"b":"y"}]; 1:6 a text of "a"`, `{"a":{"n":"x},"b":"y"}`: `[{"a":{}}]; 1:11 "n" has; 1:23 the data; 1:23 the data`,
		`{"a":["x","y}`: `[{"a":["x"]}]; 1:11 "a" has; 1:14 the data; 1:14 the data`, `{"b":1,"a":12`: `[{"b":1}]; 1:12 "a" has; 1:14 the data`, `["a`: `[[]]; 1:2 "" has; 1:4 the data`,
		`{"a":["x","y"},"b":1}`: `[{"a":["x","y"],"b":1}]; 1:14 a } is typed`, `[{"a":["x"},"b":1}]`: `[[{"a":["x"],"b":1}]]; 1:11 a } is typed`, `{"c":{"a":["x"},"b":1}`: `[{"b":1,"c":{"a":["x"]}}]; 1:15 a ] is missing`, `[1/2]`: `[[]]; 1:2 "" has "1/2"`, `{"a":["x","b":1}`: `[{"a":["x"],"b":1}]; 1:11 a ] is missing; 1:11 a comma`,
	} {
		l := lenient{text: script, place: func(at int) string { return (&reader{}).place(script, at) }}
		got := []string{encoded(t, l.values())}
		for _, fault := range l.faults {
			got = append(got, strings.NewReplacer("line ", "", ", column ", ":", ": ", " ").Replace(fault))
		}
		lines := strings.Split(want, "; ")
		for i := range got {
			if i > 0 && i < len(lines) && strings.HasPrefix(got[i], lines[i]) {
				got[i] = lines[i]
			}
		}
		check.Equal(t, got, lines)
	}
}

// encoded returns values as JSON, without the marks of damage.
func encoded(t *testing.T, values any) string {
	t.Helper()
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	check.OK(t, encoder.Encode(values))
	return strings.TrimSpace(regexp.MustCompile(`"\\u0000damaged":"(?:[^"\\]|\\.)*",?`).ReplaceAllString(b.String(), ""))
}

func TestTracks(t *testing.T) {
	t.Parallel()
	choose := func(body string) string {
		body, wanted, _ := strings.Cut(body, "?want=")
		track, _ := parse(t, body).Choose(wanted)
		return strings.TrimPrefix(track.URL, "https://example.com/")
	}
	const video = `<video><track kind=captions srclang=de src=de.vtt><track srclang=en src="/en.vtt"><track kind=descriptions srclang=fr src=no.vtt><track kind=subtitles srclang=fr src=fr.vtt default></video>`
	for body, want := range map[string]string{
		video: "fr.vtt", video + "?want=en-GB": "en.vtt", video + "?want=he": "fr.vtt", `<html lang="de-AT">` + video: "de.vtt", `<html lang="it">` + video: "fr.vtt",
		strings.Replace(video, " default", "", 1): "en.vtt", `<video><track src=x.vtt></video>`: "x.vtt",
		`<base href="https://cdn.example.com/a/">` + `<video><track src=x.vtt></video>`: "https://cdn.example.com/a/x.vtt",
		`<video src=a.mp4></video>`: "", `<video><track></video>`: "",
	} {
		check.Equal(t, choose(body), want, fmt.Sprintf("%s chose", body))
	}
}

// The lenient reader agrees with encoding/json about valid JSON, unless it reports a fault, and ends soon with any text.
func FuzzLenient(f *testing.F) {
	f.Add("{\"a\": [\"x\ny \\\" 9\\\" \\u00e9 \\'\", 1, /* c */ {}, NaN], 'b': \"x, \"c\": 2 ]]> } // e")
	f.Fuzz(func(t *testing.T, script string) {
		began := time.Now()
		l := lenient{text: script, place: func(at int) string { return (&reader{}).place(script, at) }}
		got := l.values()
		check.That(t, time.Since(began) < time.Minute && len(l.faults) <= maxFaults, "%d bytes took %s", len(script), time.Since(began))
		want, whole := decode(script)
		want = slices.DeleteFunc(want, func(v any) bool { // of several values, those that can hold a recipe are read
			switch v.(type) {
			case map[string]any, []any:
				return false
			}
			return true
		})
		check.That(t, !whole || l.count > 0 || len(want) == 0 || reflect.DeepEqual(want, got), "%q is %v, want %v", script, got, want)
	})
}

const (
	cakeBrief = "Cake\n2|cup|flour\n1||egg\nMix.\nBake."
	cakeData  = `{"@type":"Recipe","name":"Cake",` + ingredientsAndSteps + `}`
)

// item is a recipe in microdata with the given parts: an ingredient and a step, in the order of cakeBrief.
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
		"hidden elements":      ingredients + `<p itemprop=recipeInstructions><script>x</script>Mix.<template><p>x</p></template><style>x</style><br>Bake.`,
	} {
		r, ok := parse(t, item(parts)).Recipe()
		if !ok || brief(r) != cakeBrief {
			t.Errorf("%s: %t\n%s", name, ok, brief(r))
		}
	}
}

// The memory for a page has bounds: parts beyond them are left out, and the page is reported as truncated.
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
	check.Equal(t, p.Tracks[0].URL, "https://example.com/a/b/x.vtt")
	p = parse(t, script(`[{"@type":"Recipe","name":"Cake",`+ingredientsAndSteps+`,"author":[`+strings.Repeat(`{"@id":"#y"},`, 20_000)+`0]},`+strings.Repeat(`{"@id":"#x","@type":"T"},`, 10_000)+`0]`))
	_, ok := p.Recipe()
	check.That(t, ok, "many references: no recipe")
}

// FuzzReader: whatever a page holds, all open elements are closed, and the kept data has a bound.
func FuzzReader(f *testing.F) {
	f.Add(script(cakeData))
	f.Add(item(`<div id=a itemscope itemprop=recipeInstructions itemref="a b"><div id=b itemscope itemprop=itemListElement itemref=a>x`))
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
