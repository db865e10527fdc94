package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/source/sourcetest"
)

// pages are how pages with recipes came out, which were written by hand in the forms that pages have.
type pages struct {
	Pages int `json:"pages"`
	Whole int `json:"whole"` // with every fact right, and no other
	// Facts counts titles, ingredients, steps, times and so on.
	Facts rig.Score `json:"facts"`
}

func measurePages(p *printer) (*pages, error) {
	list, err := sourcetest.Pages()
	if err != nil {
		return nil, fmt.Errorf("load pages: %w", err)
	}
	out := &pages{Pages: len(list)}
	var total rig.Counts
	for _, page := range list {
		got, err := page.Read(context.Background())
		if _, refused := errors.AsType[*source.Error](err); err != nil && !refused {
			return nil, fmt.Errorf("read a page: %w", err)
		}
		c := judgeFacts(got, page.Want)
		total.Sum(c)
		if c.Wrong+c.Missed == 0 {
			out.Whole++
		} else {
			p.linef("  page %s: %d facts missed, %d wrong", page.Name, c.Missed, c.Wrong)
		}
	}
	out.Facts = total.Score()
	p.linef("%d pages, %d of them whole; facts: %d right, %d wrong, %d missed", out.Pages, out.Whole, total.Right, total.Wrong, total.Missed)
	return out, nil
}

// judgeFacts compares the facts of a recipe with those that a person reads on the page.
func judgeFacts(got, want []string) (c rig.Counts) {
	left := slices.Clone(got)
	for _, fact := range want {
		at := slices.Index(left, fact)
		c.Add(at >= 0, true)
		if at >= 0 {
			left = slices.Delete(left, at, at+1)
		}
	}
	c.Wrong += len(left)
	return c
}
