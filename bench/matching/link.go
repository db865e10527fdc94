package main

import (
	"strings"
	"time"
	"unicode"

	"github.com/expediter-io/expediter/services/enricher/match"
)

// tableScore is how linking two whole tables went with one set of fields.
//
// The truth is the labelled matches of all pairs files, found again in the tables by their letters and digits. Not every
// true link is labelled, so a link between two records without a known partner can be neither right nor wrong here: it is
// unjudged, and Precision leaves it out. PrecisionFloor counts every unjudged link as wrong. A link is wrong when one of
// its records is known to belong to another.
type tableScore struct {
	counts

	Fields         string  `json:"fields"`
	Known          int     `json:"known_links"`
	Links          int     `json:"links"`
	Unjudged       int     `json:"unjudged"`
	SamePhone      int     `json:"unjudged_with_equal_phone"`
	Ambiguous      int     `json:"ambiguous"`
	Precision      float64 `json:"precision"`
	PrecisionFloor float64 `json:"precision_floor"`
	Recall         float64 `json:"recall"`
	F1             float64 `json:"f1"`
}

func linkTables(p *printer, left, right []row, truth []labelled) ([]tableScore, *timing) {
	known := knownLinks(left, right, truth)
	p.linef("\nlinking %d x %d records; %d true links are known from the labelled pairs", len(left), len(right), len(known))
	p.linef("  %-24s %6s %6s %6s %7s %9s %9s %7s %7s   %s",
		"fields", "links", "right", "wrong", "missed", "precision", "(floor)", "recall", "F1",
		"unjudged (with equal phone), ambiguous")
	out := make([]tableScore, 0, len(fieldSets))
	clock := &timing{}
	for _, f := range fieldSets {
		s := link(p, f, left, right, known, clock)
		out = append(out, s)
		p.linef("  %-24s %6d %6d %6d %7d %9.3f %9.3f %7.3f %7.3f   %d (%d), %d", f.name, s.Links, s.Right, s.Wrong, s.Missed,
			s.Precision, s.PrecisionFloor, s.Recall, s.F1, s.Unjudged, s.SamePhone, s.Ambiguous)
	}
	p.linef("\npreparing a place takes %.1f us, comparing a pair %.2f us (%d pairs with all fields)",
		clock.PreparePerPlace, clock.ComparePerPair, clock.Pairs)
	return out, clock
}

func link(p *printer, f fieldSet, left, right []row, known map[int]int, clock *timing) tableScore {
	s := tableScore{Fields: f.name, Known: len(known)}
	start := time.Now()
	a, b := prepareAll(f, left), prepareAll(f, right)
	prepared := time.Now()
	decisions := make([]match.Decision, len(a))
	for i := range a {
		decisions[i] = a[i].Best(b)
	}
	if clock.Pairs == 0 {
		clock.Pairs = len(a) * len(b)
		clock.PreparePerPlace = microseconds(prepared.Sub(start), len(a)+len(b))
		clock.ComparePerPair = microseconds(time.Since(prepared), clock.Pairs)
	}
	owner := map[int]int{}
	for l, r := range known {
		owner[r] = l
	}
	for i, d := range decisions {
		s.judge(p, i, d, left, right, known, owner)
	}
	s.Precision, s.Recall, s.F1 = s.precision(), s.recall(), s.f1()
	s.PrecisionFloor = share(s.Right, s.Links)
	return s
}

func (s *tableScore) judge(p *printer, i int, d match.Decision, left, right []row, known, owner map[int]int) {
	partner, isKnown := known[i]
	if d.Outcome == match.Ambiguous {
		s.Ambiguous++
	}
	found := d.Outcome == match.Found
	if isKnown && (!found || d.Index != partner) {
		s.Missed++
		e := match.Compare(left[i].place, right[partner].place)
		p.mistake("missed", left[i].place, right[partner].place, e)
	}
	if !found {
		return
	}
	s.Links++
	_, taken := owner[d.Index]
	switch {
	case isKnown && d.Index == partner:
		s.Right++
	case isKnown || taken:
		s.Wrong++
		p.mistake("wrong", left[i].place, right[d.Index].place, d.Evidence)
	default:
		s.Unjudged++
		if lastDigits(left[i].place.Phone) == lastDigits(right[d.Index].place.Phone) {
			s.SamePhone++
		} else {
			p.mistake("unjudged", left[i].place, right[d.Index].place, d.Evidence)
		}
	}
}

func prepareAll(f fieldSet, rows []row) []*match.Prepared {
	out := make([]*match.Prepared, len(rows))
	for i, r := range rows {
		out[i] = match.Prepare(f.only(r.place))
	}
	return out
}

// knownLinks finds the records of the labelled matches in the tables, by their letters and digits.
func knownLinks(left, right []row, truth []labelled) map[int]int {
	inLeft, inRight := index(left), index(right)
	out := map[int]int{}
	for _, l := range truth {
		if !l.same {
			continue
		}
		i, okLeft := inLeft[key(l.left)]
		j, okRight := inRight[key(l.right)]
		if okLeft && okRight {
			out[i] = j
		}
	}
	return out
}

func index(rows []row) map[string]int {
	out := make(map[string]int, len(rows))
	for i, r := range rows {
		out[key(r.place)] = i
	}
	return out
}

// key is a record without spaces and punctuation, which the pairs were tokenised by.
func key(p match.Place) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, strings.ToLower(p.Name+p.Address+p.City+lastDigits(p.Phone)))
}

func lastDigits(phone string) string {
	d := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, phone)
	return d[max(0, len(d)-10):]
}
