package main

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/services/enricher/match"
)

// pairScore is how one set of fields did on one file of pairs.
type pairScore struct {
	rig.Score

	File    string `json:"file"`
	Fields  string `json:"fields"`
	Pairs   int    `json:"pairs"`
	Matches int    `json:"matches"`
	// Abstained are the pairs of either kind that came out AMBIGUOUS.
	AbstainedSame  int `json:"abstained_same"`
	AbstainedOther int `json:"abstained_other"`
	// F1Half counts a score of 0.5 and more as a match.
	F1Half float64 `json:"f1_at_half"`
	// LogLoss is the mean surprise at the labels, in nats.
	LogLoss float64 `json:"log_loss"`
}

func measure(p *printer, dir string) (report, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return report{}, fmt.Errorf("look for pairs: %w", err)
	}
	if len(files) == 0 {
		p.linef("no *.jsonl in %s: skipped (give --data DIR)", dir)
		return report{OK: true, Skipped: true}, nil
	}
	r := report{OK: true, Model: match.ModelVersion}
	p.linef("model %s, FOUND from a score of %.2f, NOT_FOUND below %.2f, AMBIGUOUS between",
		match.ModelVersion, match.FoundScore, match.NotFoundScore)
	for _, f := range files {
		pairs, err := readPairs(f)
		if err != nil {
			return report{}, err
		}
		r.Pairs = append(r.Pairs, scoreFile(p, filepath.Base(f), pairs)...)
	}
	return r, nil
}

func scoreFile(p *printer, name string, pairs []labelled) []pairScore {
	note := ""
	if strings.Contains(name, "train") {
		note = " (the weights were fitted on these)"
	}
	p.linef("\n%s%s", name, note)
	p.linef("  %-24s %6s %7s %9s %7s %7s   %s", "fields", "pairs", "matches", "precision", "recall", "F1",
		"wrong/missed, abstained on matches/others, F1 at 0.5, log-loss")
	out := make([]pairScore, 0, len(fieldSets))
	for _, f := range fieldSets {
		s := scorePairs(p, f, pairs)
		s.File = name
		out = append(out, s)
		p.linef("  %-24s %6d %7d %9.3f %7.3f %7.3f   %d/%d, %d/%d, %.3f, %.3f", f.name, s.Pairs, s.Matches, s.Precision, s.Recall, s.F1,
			s.Wrong, s.Missed, s.AbstainedSame, s.AbstainedOther, s.F1Half, s.LogLoss)
	}
	return out
}

func scorePairs(p *printer, f fieldSet, pairs []labelled) pairScore {
	s := pairScore{Fields: f.name, Pairs: len(pairs)}
	var all, half rig.Counts
	for _, l := range pairs {
		a, b := f.only(l.left), f.only(l.right)
		d := match.Best(a, []match.Place{b})
		all.Add(d.Outcome == match.Found, l.same)
		s.decide(p, d, l.same, a, b)
		half.Add(d.Score >= 0.5, l.same)
		chance := d.Score
		if l.same {
			s.Matches++
		} else {
			chance = 1 - d.Score
		}
		s.LogLoss -= math.Log(max(chance, 1e-6)) / float64(len(pairs))
	}
	s.Score, s.F1Half = all.Score(), half.Score().F1
	return s
}

func (s *pairScore) decide(p *printer, d match.Decision, same bool, a, b match.Place) {
	switch {
	case d.Outcome == match.Ambiguous && same:
		s.AbstainedSame++
		p.mistake("abstained", a, b, d.Evidence)
	case d.Outcome == match.Ambiguous:
		s.AbstainedOther++
		p.mistake("undecided", a, b, d.Evidence)
	case d.Outcome == match.Found && !same:
		p.mistake("wrong", a, b, d.Evidence)
	case d.Outcome == match.NotFound && same:
		p.mistake("missed", a, b, d.Evidence)
	}
}
