package console

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/subject"
)

// funcs are the functions that templates have in addition to those of html/template.
func (c *Console) funcs() template.FuncMap {
	return template.FuncMap{
		"ago":      ago,
		"at":       at,
		"badge":    badge,
		"bytes":    size,
		"counted":  counted,
		"endTable": func() template.HTML { return "</tbody></table></div>" },
		"href":     c.href,
		"jobs":     jobsLine,
		"masked":   redact.People,
		"number":   number,
		"page":     func(parts []any) template.URL { return c.href(parts...) },
		"query":    query,
		"refusal":  refusal,
		"shell":    operate.Shell,
		"span":     span,
		"stamp":    stamp,
		"table":    table,
		"token":    readableTokens,
		"static":   func(name string) template.URL { return c.href("static", name, query("v", c.static[name].sum)) },
	}
}

// number writes a whole number with separators of thousands.
func number(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func counted(n any, noun string) string {
	if fmt.Sprint(n) != "1" {
		noun += "s"
	}
	return number(n) + " " + noun
}

// table begins a table that scrolls. The texts are the headings of its columns: "-" begins the heading of one that a telephone has no room
// for, "#" that of a column of figures, and the text behind "|" is a column's note.
func table(label string, columns ...any) template.HTML {
	var head, wide strings.Builder
	number := 0
	for _, column := range columns {
		text, ok := column.(string)
		if !ok {
			continue // a column that this reader does not have
		}
		number++
		text, isWide := strings.CutPrefix(text, "-")
		if isWide {
			fmt.Fprintf(&wide, "wide-%d ", number)
		}
		text, isFigure := strings.CutPrefix(text, "#")
		text, title, _ := strings.Cut(template.HTMLEscapeString(text), "|")
		head.WriteString(`<th scope="col"`)
		if isFigure {
			head.WriteString(` class="num"`)
		}
		if title != "" {
			head.WriteString(` title="` + title + `"`)
		}
		head.WriteString(">" + text + "</th>")
	}
	const form = `<div class="scroll" tabindex="0" role="region" aria-label="%s"><table class="%s"><thead><tr>%s</tr></thead><tbody>`
	return template.HTML(fmt.Sprintf(form, template.HTMLEscapeString(label), &wide, &head)) //nolint:gosec // escaped
}

// size writes a number of bytes in a readable unit.
func size(n any) string {
	var bytes float64
	if _, err := fmt.Sscan(fmt.Sprint(n), &bytes); err != nil {
		return fmt.Sprint(n)
	}
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if bytes < 1024 {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", bytes), ".0") + " " + unit
		}
		bytes /= 1024
	}
	return fmt.Sprintf("%.1f TiB", bytes)
}

// refusal writes the reason that a job cannot be cancelled.
func refusal(err error) string {
	_, why, _ := strings.Cut(err.Error(), " was not cancelled: ")
	return "It cannot be cancelled: " + why
}

// span writes a duration in its largest unit, such as "12 m", with the next unit where that is more exact.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d m", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours())/24)
}

// stateClasses are the colours of states that are not plain: of jobs, workers, imports and records.
var stateClasses = map[string]string{
	"begun": "warn", "broken": "bad", "cancelled": "soft", "completed": "good", "dead": "bad", "done": "good", "drained": "warn",
	"draining": "warn", "failed": "bad", "not ready": "bad", "panicked": "bad", "ready": "good", "retrying": "warn", "running": "good",
	"scheduled": "soft", "stopping": "warn",
}

func badge(state any) template.HTML {
	text := fmt.Sprint(state)
	escaped := template.HTMLEscapeString(text)
	return template.HTML(`<span class="badge ` + stateClasses[text] + `">` + escaped + `</span>`) //nolint:gosec // escaped
}

// readableTokens returns a subject with the ids of which its tokens were made, in quotes, so that a key with a dot can be read.
func readableTokens(full string) string {
	tokens := strings.Split(full, ".")
	for i, encoded := range tokens {
		if id, err := subject.DecodeToken(encoded); err == nil && id != encoded {
			tokens[i] = strconv.Quote(redact.People(id))
		}
	}
	return strings.Join(tokens, ".")
}

// stamp writes a time in UTC, as an element that the script turns into the reader's time; "–" for none.
func stamp(t time.Time) template.HTML {
	layout := "2006-01-02 15:04:05 UTC"
	if time.Since(t).Abs() < 12*time.Hour {
		layout = "15:04:05 UTC"
	}
	return timed(t, t.UTC().Format(layout))
}

// timed writes words for a time, as an element.
func timed(t time.Time, words string) template.HTML {
	if t.IsZero() {
		return "–"
	}
	at := t.UTC().Format(time.RFC3339)
	return template.HTML(`<time datetime="` + at + `" title="` + at + `">` + words + `</time>`) //nolint:gosec // digits and units
}

// ago writes the time since t, or until t; "–" for none.
func ago(t time.Time) template.HTML {
	if d := time.Until(t); d > 0 {
		return timed(t, "in "+span(d))
	}
	return timed(t, span(time.Since(t))+" ago")
}
