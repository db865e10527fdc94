package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/expediter-io/expediter/services/enricher/match"
)

type record struct {
	Addr  string `json:"addr"`
	City  string `json:"city"`
	Name  string `json:"name"`
	Phone string `json:"phone"`
}

type pair struct {
	Label int    `json:"label"`
	Left  record `json:"left"`
	Right record `json:"right"`
}

// sample is one observed pair.
type sample struct {
	values map[int]float64 // by index of priors
	label  float64
	weight float64
	plain  bool // a labelled pair as given, or without its telephone, or with name and city only
}

// masks lists the sets of fields that a sample keeps, because the weights have to hold when fields are missing.
var masks = []struct{ addr, city, phone bool }{
	{true, true, true},
	{true, true, false},
	{false, true, false},
	{true, false, false},
	{false, true, true},
	{true, false, true},
}

// extraWeight is the weight of all pairs made of records that do not belong together, relative to that of the
// labelled ones.
const extraWeight = 0.5

func readPairs(path string) ([]pair, error) {
	f, err := os.Open(path) //nolint:gosec // the path is the caller's
	if err != nil {
		return nil, fmt.Errorf("read pairs: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	var out []pair
	for s := bufio.NewScanner(f); s.Scan(); {
		var p pair
		if err := json.Unmarshal(s.Bytes(), &p); err != nil {
			return nil, fmt.Errorf("read pair %d of %s: %w", len(out)+1, path, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// prepare observes every labelled pair under every mask, and the pairs that follow from the labels: a record whose match
// is known matches no other record of the other source.
func prepare(pairs []pair) []sample {
	index := map[string]int{}
	for i, p := range priors {
		index[p.name] = i
	}
	var out []sample
	for _, p := range pairs {
		for m := range masks {
			s := observe(index, p.Left, p.Right, m)
			s.label, s.weight, s.plain = float64(p.Label), 1/float64(len(masks)), m < 3
			out = append(out, s)
		}
	}
	return append(out, strangers(index, pairs)...)
}

func strangers(index map[string]int, pairs []pair) []sample {
	var out []sample
	var rights []record
	seen := map[record]bool{}
	for _, p := range pairs {
		if !seen[p.Right] {
			seen[p.Right] = true
			rights = append(rights, p.Right)
		}
	}
	for _, p := range pairs {
		if p.Label == 0 {
			continue
		}
		for _, r := range rights {
			if r == p.Right {
				continue
			}
			for _, m := range []int{0, 1, 2} {
				out = append(out, observe(index, p.Left, r, m))
			}
		}
	}
	for i := range out {
		out[i].weight = extraWeight * float64(len(pairs)) / float64(len(out))
	}
	return out
}

func observe(index map[string]int, left, right record, m int) sample {
	e := match.Compare(place(left, m), place(right, m))
	s := sample{values: map[int]float64{index[baseName]: 1}}
	for _, f := range e.Features {
		s.values[index[f.Name]] = f.Value
	}
	return s
}

func place(r record, m int) match.Place {
	p := match.Place{Name: r.Name}
	if masks[m].addr {
		p.Address = r.Addr
	}
	if masks[m].city {
		p.City = r.City
	}
	if masks[m].phone {
		p.Phone = r.Phone
	}
	return p
}
