package ask

import (
	"strings"

	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Bounds of the parts other than the transcript, in bytes, and in entries for chapters.
const (
	maxTitle       = 500
	maxDescription = 32 << 10
	maxChapters    = 200
)

// Digest is the part of a source that the service gets.
type Digest struct {
	// Chapters and Transcript have a line for each part, "[12.34s] text", or without the stamp when there are no times.
	Chapters, Transcript string
	// Title is one line, Description has as many as the source.
	Title, Description string
	// Cut reports whether a part was too long, Instructed whether sentences were left out because they address a model.
	Cut, Instructed bool
	// Timed reports whether the transcript has stamps.
	Timed bool
}

// NewDigest makes the digest of a source. It cuts the transcript between two segments, to at most so many bytes.
func NewDigest(in extract.Input, maxTranscript int) Digest {
	d := Digest{Timed: len(in.Segments) > 0 && !in.Untimed}
	d.Title = d.line(in.Title, maxTitle)
	d.Description = d.description(in.Description)
	d.Chapters = d.chapters(in.Chapters)
	d.Transcript = d.transcript(in.Segments, maxTranscript)
	return d
}

// Warnings returns warnings about the digest for the reader of the recipe.
func (d Digest) Warnings() []recipe.Warning {
	var out []recipe.Warning
	if d.Cut {
		out = append(out, recipe.Warning{Code: extract.WarnSourceCut, Text: "The source is longer than is read; its end was left out."})
	}
	if d.Instructed {
		out = append(out, recipe.Warning{
			Code: extract.WarnInstructions, Text: "The source gives instructions to a model; those sentences were left out.",
		})
	}
	return out
}

// line returns a bounded line, or nothing when it speaks to a model.
func (d *Digest) line(text string, most int) string {
	if len(text) > most {
		text, d.Cut = words.Cut(text, most), true
	}
	text = strings.Join(strings.Fields(words.Plain(text)), " ")
	if words.Speaks(text) {
		d.Instructed = true
		return ""
	}
	return text
}

func (d *Digest) description(text string) string {
	if len(text) > maxDescription {
		text, d.Cut = words.Cut(text, maxDescription), true
	}
	var b strings.Builder
	for line := range strings.Lines(extract.PlainText(text)) {
		b.WriteString(d.line(line, maxDescription) + "\n")
	}
	return strings.TrimSpace(b.String())
}

func (d *Digest) chapters(chapters []extract.Chapter) string {
	if len(chapters) > maxChapters {
		chapters, d.Cut = chapters[:maxChapters], true
	}
	segments := make([]caption.Segment, 0, len(chapters))
	for _, c := range chapters {
		if title := d.line(c.Title, maxTitle); title != "" {
			segments = append(segments, caption.Segment{Start: max(0, c.Start), Text: title})
		}
	}
	return render(segments, true)
}

// transcript leaves out segments that address a model, by themselves or together with the segment before.
func (d *Digest) transcript(segments []caption.Segment, most int) string {
	const stamp = len("[000000.00s] \n")
	lines := make([]caption.Segment, 0, len(segments))
	size := 0
	for _, s := range segments {
		text := strings.Join(strings.Fields(words.Plain(words.Cut(s.Text, most))), " ")
		if text == "" {
			continue
		}
		if size += len(text) + stamp; size > most {
			d.Cut = true
			break
		}
		lines = append(lines, caption.Segment{Start: max(0, s.Start), Text: text})
	}
	kept := lines[:0:0]
	before := ""
	for i, suspect := range suspects(lines) {
		text := lines[i].Text
		alone := suspect && words.Speaks(text)
		if alone || suspect && before != "" && words.Speaks(before+" "+text) {
			if !alone {
				kept = kept[:len(kept)-1]
			}
			d.Instructed, before = true, ""
			continue
		}
		kept, before = append(kept, lines[i]), text
	}
	return render(kept, d.Timed)
}

// suspects reports which lines have to be examined one by one: the lines of a stretch that addresses a model as a whole.
// Examining takes longer than all other work, and hardly any stretch needs it. Each stretch begins with the last line of
// the one before.
func suspects(lines []caption.Segment) []bool {
	const stretch = 3000
	out := make([]bool, len(lines))
	for from := 0; from < len(lines); {
		var all strings.Builder
		end := from
		for end < len(lines) && (end == from || all.Len()+len(lines[end].Text) < stretch) {
			all.WriteString(lines[end].Text + " ")
			end++
		}
		if all.Len() >= stretch || words.Speaks(all.String()) {
			for i := from; i < min(end+1, len(lines)); i++ {
				out[i] = true
			}
		}
		if end == len(lines) {
			break
		}
		from = max(from+1, end-1)
	}
	return out
}

// render writes a line for each segment, in the form of the importer's API.
func render(segments []caption.Segment, timed bool) string {
	var b strings.Builder
	_ = caption.Transcript{Segments: segments, Timed: timed}.WriteText(&b) // a builder takes everything
	return b.String()
}
