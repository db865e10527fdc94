package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/extract/rules/rulestest"
)

// verdicts are how the texts of one source came out.
type verdicts struct {
	Cooking  int `json:"cooking"`
	Refused  int `json:"cooking_refused"`
	Other    int `json:"other"`
	Taken    int `json:"other_taken"`
	Doubtful int `json:"other_taken_doubtful"` // of those, with a warning
}

// measureTalks reads texts (*.txt) and captions of talks in which nobody cooks (*.vtt, *.srt), and counts the recipes.
func measureTalks(p *printer, paths []string) (map[string]*verdicts, error) {
	talks, err := loadTalks(paths)
	if err != nil {
		return nil, err
	}
	out := map[string]*verdicts{}
	for _, t := range talks {
		r, err := rules.New().Extract(context.Background(), t.Input)
		if err != nil && !errors.Is(err, extract.ErrNoRecipe) {
			return nil, fmt.Errorf("extract %s: %w", t.Input.Title, err)
		}
		v := out[t.Source]
		if v == nil {
			v = &verdicts{}
			out[t.Source] = v
		}
		switch {
		case t.Cooking && err != nil:
			v.Refused++
			p.linef("  refused: %s: %v", t.Input.Title, err)
		case !t.Cooking && err == nil:
			v.Taken++
			doubtful := false
			for _, w := range r.Warnings {
				doubtful = doubtful || w.Code == rules.WarnDoubtful
			}
			if doubtful {
				v.Doubtful++
			}
			p.linef("  taken: %s (doubtful %v)", t.Input.Title, doubtful)
		}
		if t.Cooking {
			v.Cooking++
		} else {
			v.Other++
		}
	}
	for source, v := range out {
		p.linef("%s: %d with cooking, %d of them refused; %d others, %d of them made a recipe, %d of those with a warning",
			source, v.Cooking, v.Refused, v.Other, v.Taken, v.Doubtful)
	}
	return out, nil
}

// loadTalks reads files and folders of them; what does not exist has no texts.
func loadTalks(paths []string) ([]rulestest.Text, error) {
	var out []rulestest.Text
	for _, path := range paths {
		names := []string{path}
		if found, err := filepath.Glob(filepath.Join(path, "*.*t*")); err == nil && len(found) > 0 {
			names = found
		}
		for _, name := range names {
			data, err := os.ReadFile(name) //nolint:gosec // the path is the caller's
			switch {
			case errors.Is(err, os.ErrNotExist):
				continue
			case err != nil:
				return nil, fmt.Errorf("read talks: %w", err)
			case filepath.Ext(name) == ".txt":
				out = append(out, rulestest.Read(filepath.Base(name), string(data))...)
				continue
			}
			track, err := caption.Parse(strings.NewReader(string(data)), caption.Options{})
			if err != nil {
				return nil, fmt.Errorf("read the captions of %s: %w", name, err)
			}
			in := extract.Input{Title: filepath.Base(name), Segments: track.Transcript(caption.TranscriptOptions{}).Segments}
			out = append(out, rulestest.Text{Source: filepath.Base(path), Input: in})
		}
	}
	return out, nil
}
