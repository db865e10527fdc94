package rules

import (
	"cmp"
	"regexp"
	"sync"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// facts are the servings and times in a line.
type facts struct {
	servings string
	times    recipe.Times
	found    bool
	sure     bool // it is not an order such as "bake 20 minutes"
	all      bool // the line has nothing else
}

// bareMinutes matches "15m", which are minutes beside a label.
var bareMinutes = lazyregexp.New(`(\d) ?m\b`)

// readFacts reads a line in a language, such as "Prep time: 10 minutes | Serves 4".
func readFacts(text, language string) facts {
	f := facts{all: true}
	text = bareMinutes.ReplaceAllString(text, "$1 min")
	if len(text) > 400 {
		return facts{}
	}
	ws, bare := measure.Split(text), 0
	for i := 0; i < len(ws); {
		used := f.fact(ws, i, text, language)
		if d, n := measure.ReadDuration(ws, i); used == 0 && f.servings != "" { // "4 people, 30 minutes"
			bare, used = cmp.Or(bare, d.Max), n
		}
		if used == 0 {
			used = 1
			f.all = f.all && (isMark(ws[i]) || said("about", ws, i) > 0)
		}
		i += used
	}
	if f.all = f.all && f.found; f.all {
		f.times.TotalSec = cmp.Or(f.times.TotalSec, bare)
	}
	return f
}

// labelAt returns the kind of the words at i that precede a fact.
func labelAt(ws []words.Word, i int) (kind string, used int) {
	for _, k := range []string{"serves", "prep", "cook", "total"} {
		if n := said(k, ws, i); n > used {
			kind, used = k, n
		}
	}
	return kind, used
}

// fact reads "Prep time: 10 minutes", "makes 12 cookies" or "4 people", and returns the number of its words.
func (f *facts) fact(ws []words.Word, i int, text, language string) int {
	kind, n := labelAt(ws, i)
	at := i + n
	for n > 0 && at < len(ws) && (isMark(ws[at]) || said("about", ws, at) > 0) {
		at += max(1, said("about", ws, at))
	}
	if at == len(ws) {
		return 0
	}
	if field := map[string]*int{"prep": &f.times.PrepSec, "cook": &f.times.CookSec, "total": &f.times.TotalSec}[kind]; field != nil {
		read := measure.SplitIn(language, text[ws[at].Start:])
		d, used := measure.ReadDuration(read, 0)
		if used == 0 || d.Max == 0 {
			return 0
		}
		if n, more := measure.ReadNumber(read, used); more > 0 && !n.Vague && read[used].Kind == words.Digits && peopleAt(read, used+more) == 0 {
			return 0 // "1 hour 30 xyz" may be more than an hour
		}
		used = until(ws, at, read[used-1].End)
		*field, f.found, f.sure = d.Max, true, f.sure || n > 1 || at > i+n && ws[i+n].Text == ":"
		return at + used - i
	}
	if used := f.yield(ws, at, kind, text, language); used > 0 {
		return at + used - i
	}
	return 0
}

// until returns the number of words from word at up to the offset end behind its beginning: a language may take words apart or together.
func until(ws []words.Word, at, end int) (used int) {
	for at+used < len(ws) && ws[at+used].Start < ws[at].Start+end {
		used++
	}
	return used
}

// yield reads "4 people" or, after a label, "12 cookies" and "12".
func (f *facts) yield(ws []words.Word, at int, kind, text, language string) int {
	number, used := measure.ReadNumber(ws, at)
	if used == 0 || number.Vague {
		return 0
	}
	read := measure.SplitIn(language, text[ws[at].Start:]) // "4 à 6 personnes"
	if _, n := measure.ReadNumber(read, 0); n > 0 {
		used = max(used, until(ws, at, read[n-1].End))
	}
	people := peopleAt(ws, at+used)
	if people == 0 && kind == "" {
		return 0
	}
	end := at + used
	for people == 0 && end < len(ws) && names(ws, end) { // "12 cookies"
		end++
	}
	if end-at-used > 3 {
		end = at + used
	}
	switch next := end + people; {
	case people == 0 && end == at+used && end < len(ws) && ws[end].Kind == words.Digits, // "2 9-inch pies"
		kind == "" && names(ws, next): // "3 parts oil"
		return 0
	}
	f.servings, f.found, f.sure = cmp.Or(f.servings, words.Join(ws[at:end])), true, true
	return end + people - at
}

// names reports whether the word at i may belong to what is counted before it.
func names(ws []words.Word, i int) bool {
	if i >= len(ws) || ws[i].Kind != words.Letters || said("about", ws, i) > 0 {
		return false
	}
	_, label := labelAt(ws, i)
	return label == 0
}

// portions matches a word for portions at the beginning of a longer one.
var portions = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^` + anyOf("portions", true)) })

// peopleAt returns the number of words at i that mean people or portions.
func peopleAt(ws []words.Word, i int) int {
	if n := said("people", ws, i); n > 0 || i >= len(ws) || !portions().MatchString(ws[i].Text) {
		return n
	}
	return 1
}

// addTo adds to a recipe what it does not have.
func (f *facts) addTo(r *recipe.Recipe) {
	r.Servings = cmp.Or(r.Servings, f.servings)
	t := &r.Times
	t.PrepSec, t.CookSec = cmp.Or(t.PrepSec, f.times.PrepSec), cmp.Or(t.CookSec, f.times.CookSec)
	t.TotalSec = cmp.Or(t.TotalSec, f.times.TotalSec)
}
