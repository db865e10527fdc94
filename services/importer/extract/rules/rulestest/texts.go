// Package rulestest reads texts with a label: whether somebody cooks in them.
package rulestest

import (
	"strings"
	"time"

	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
)

// Text is a source, and whether somebody cooks in it.
type Text struct {
	// Cooking reports whether somebody cooks in it.
	Cooking bool
	// Source is the origin of the text.
	Source string
	// Input is the input of an extractor.
	Input extract.Input
}

// Read reads data in which "## cooking: TITLE" or "## other: TITLE" begins a text, a line with ">" is part of its description,
// and any other line is a caption of four seconds. The text's source is the part of the title after " | ", or else source.
func Read(source, data string) []Text {
	texts := strings.Split("\n"+data, "\n## ")[1:]
	out := make([]Text, 0, len(texts))
	for _, text := range texts {
		kind, rest, _ := strings.Cut(text, ": ")
		title, body, _ := strings.Cut(rest, "\n")
		t := Text{Cooking: kind == "cooking", Source: source}
		if before, after, ok := strings.Cut(title, " | "); ok {
			title, t.Source = before, after
		}
		t.Input.Title = title
		for line := range strings.Lines(body) {
			if written, ok := strings.CutPrefix(line, ">"); ok {
				t.Input.Description += strings.TrimSpace(written) + "\n"
				continue
			}
			at := time.Duration(len(t.Input.Segments)) * 4 * time.Second
			t.Input.Segments = append(t.Input.Segments, caption.Segment{Start: at, Dur: 4 * time.Second, Text: strings.TrimSpace(line)})
		}
		out = append(out, t)
	}
	return out
}
