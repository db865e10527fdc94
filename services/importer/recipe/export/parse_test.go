package export_test

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// cook is a parsed file of Cooklang. It is written from the specification, not from the writer.
type cook struct {
	meta     map[string]any
	steps    []step
	notes    []string
	sections int
	cookware int
}

// step is a paragraph: its text with the names of ingredients and nothing in the place of timers, and its marked parts.
type step struct {
	text        string
	ingredients []component
	timers      []component
	comments    []string
}

type component struct{ name, qty, unit, note string }

func parseCook(file string) (*cook, error) {
	rest, ok := strings.CutPrefix(file, "---\n")
	front, body, found := strings.Cut(rest, "\n---\n")
	if !ok || !found {
		return nil, errors.New("no front matter")
	}
	c := &cook{}
	if err := yaml.Unmarshal([]byte(front), &c.meta); err != nil {
		return nil, fmt.Errorf("front matter: %w", err)
	}
	for paragraph := range strings.SplitSeq(body, "\n\n") {
		paragraph = strings.Trim(paragraph, "\n")
		switch {
		case paragraph == "":
		case strings.HasPrefix(paragraph, ">>"):
			key, value, _ := strings.Cut(paragraph[2:], ":")
			c.meta[strings.TrimSpace(key)] = value
		case strings.HasPrefix(paragraph, ">"):
			r := &reader{text: []rune(paragraph[1:])}
			c.notes = append(c.notes, strings.TrimSpace(r.plain()))
		case strings.HasPrefix(paragraph, "="):
			c.sections++
		default:
			c.step(paragraph)
		}
	}
	return c, nil
}

func (c *cook) step(paragraph string) {
	r := &reader{text: []rune(paragraph)}
	var s step
	var text strings.Builder
	for r.at < len(r.text) {
		if comment, ok := r.comment(); ok {
			s.comments = append(s.comments, comment)
			continue
		}
		ch, escaped := r.next()
		if escaped || !strings.ContainsRune("@#~", ch) {
			text.WriteRune(ch)
			continue
		}
		found, ok := r.component()
		switch {
		case !ok:
			text.WriteRune(ch)
		case ch == '@':
			text.WriteString(found.name)
			s.ingredients = append(s.ingredients, found)
		case ch == '#':
			c.cookware++
		default:
			s.timers = append(s.timers, found)
		}
	}
	s.text = strings.TrimSpace(text.String())
	if s.text != "" || len(s.timers) > 0 {
		c.steps = append(c.steps, s)
	}
}

// reader goes through a paragraph.
type reader struct {
	text []rune
	at   int
}

// next returns a character; a backslash takes the meaning of the one after it away.
func (r *reader) next() (ch rune, escaped bool) {
	ch = r.text[r.at]
	r.at++
	if ch == '\\' && r.at < len(r.text) {
		ch = r.text[r.at]
		r.at++
		return ch, true
	}
	return ch, false
}

func (r *reader) starts(text string) bool {
	return strings.HasPrefix(string(r.text[r.at:min(len(r.text), r.at+len(text))]), text)
}

// comment reads "-- to the end of the line" or "[- to the end of it -]".
func (r *reader) comment() (string, bool) {
	end := "\n"
	switch {
	case r.starts("--"):
	case r.starts("[-"):
		end = "-]"
	default:
		return "", false
	}
	r.at += 2
	from := r.at
	for r.at < len(r.text) && !r.starts(end) {
		r.at++
	}
	comment := strings.TrimSpace(string(r.text[from:r.at]))
	r.at = min(len(r.text), r.at+len(end))
	return comment, true
}

func (r *reader) plain() string {
	var b strings.Builder
	for r.at < len(r.text) {
		if _, ok := r.comment(); ok {
			continue
		}
		ch, _ := r.next()
		b.WriteRune(ch)
	}
	return b.String()
}

// until reads up to one of some characters; it goes back and fails when a character of stop comes first, or none at all.
func (r *reader) until(end, stop string) (string, bool) {
	from := r.at
	var b strings.Builder
	for r.at < len(r.text) {
		if _, ok := r.comment(); ok {
			continue
		}
		ch, escaped := r.next()
		switch {
		case !escaped && strings.ContainsRune(end, ch):
			return b.String(), true
		case !escaped && strings.ContainsRune(stop, ch):
			r.at = from
			return "", false
		case escaped && ch == '%':
			b.WriteRune('\uE000') // not the one between quantity and unit
		default:
			b.WriteRune(ch)
		}
	}
	r.at = from
	return "", false
}

// component reads the component behind "@", "#" or "~": "several words{2%cup}(note)", or one word.
func (r *reader) component() (component, bool) {
	var c component
	from := r.at
	if name, ok := r.until("{", "@#~"); ok && strings.TrimLeftFunc(name, unicode.IsSpace) == name {
		if amount, ok := r.until("}", ""); ok {
			c.name = name
			c.qty, c.unit, _ = strings.Cut(amount, "%")
			if r.at < len(r.text) && r.text[r.at] == '(' {
				r.at++
				if note, ok := r.until(")", ""); ok {
					c.note = note
				} else {
					r.at--
				}
			}
			for _, text := range []*string{&c.name, &c.qty, &c.unit, &c.note} {
				*text = strings.ReplaceAll(*text, "\uE000", "%")
			}
			return c, true
		}
	}
	r.at = from
	for r.at < len(r.text) && (unicode.IsLetter(r.text[r.at]) || unicode.IsDigit(r.text[r.at])) {
		c.name += string(r.text[r.at])
		r.at++
	}
	return c, c.name != ""
}
