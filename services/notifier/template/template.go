package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/services/notifier/channel"
)

const (
	// MaxText bounds each part of a text, in bytes.
	MaxText = 256 << 10

	// maxSubject bounds subjects, in characters: more is not shown anywhere.
	maxSubject = 200
)

// Config says what templates may do.
type Config struct {
	// LinkHosts are the hosts, and their subdomains, that links out of payloads may lead to. Defaults to none.
	LinkHosts []string
}

// Set is a folder of templates that has no mistakes. It may be used by many at once.
type Set struct {
	// byName has, for each name, the parts by locale.
	byName atomic.Pointer[map[string]map[string]parts]
}

// executor is a template of either kind.
type executor interface {
	Execute(w io.Writer, data any) error
}

// parts are one text in one locale. The HTML may be missing.
type parts struct{ subject, text, html executor }

// Text is what is said.
type Text struct {
	// HTML is the content of Text for clients that show HTML. "" is none.
	HTML string

	// Subject is one line.
	Subject string

	// Text is plain.
	Text string
}

// Data is what a template is executed with.
type Data struct {
	// Category is what the user can switch off.
	Category string

	// CreatedAt is when it was decided that the user is notified.
	CreatedAt time.Time

	// EventID is the event.
	EventID string

	// EventType is what happened.
	EventType string

	// Locale is the user's.
	Locale string

	// Payload is the event's. Its numbers are as they were written.
	Payload any

	// RecipientType is the kind of recipient that the user is.
	RecipientType string

	// Unsubscribe is where the user can switch the category off. "" is nowhere.
	Unsubscribe Link

	// UserID is the user.
	UserID string
}

// Names returns the names of all templates, in alphabetical order.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(*s.byName.Load())) }

// Has reports whether there is a template of a name. There is one for the default locale then.
func (s *Set) Has(name string) bool { return (*s.byName.Load())[name] != nil }

// Become makes a set what another one is, for everybody who uses it: from the next text on.
func (s *Set) Become(other *Set) { s.byName.Store(other.byName.Load()) }

// Render makes the text of a message, by its template or, when it names none, by the one of its type of event. A
// digest that has no template is a plain list. unsubscribe is where the user can switch the category off, or "". The error
// names the template and the line.
func (s *Set) Render(m channel.Message, unsubscribe string) (Text, error) {
	name := m.Template
	if name == "" {
		name = m.EventType
	}
	locales := (*s.byName.Load())[name]
	if locales == nil {
		locales = fallback(m)
	}
	if locales == nil {
		return Text{}, fmt.Errorf("template %q: %w", name, ErrNotFound)
	}
	data := Data{
		Category: m.Category, CreatedAt: m.CreatedAt, EventID: m.EventID, EventType: m.EventType, Locale: m.Locale,
		RecipientType: string(m.RecipientType), Unsubscribe: Link(unsubscribe), UserID: m.UserID,
	}
	if len(m.Payload) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(m.Payload))
		decoder.UseNumber()
		if err := decoder.Decode(&data.Payload); err != nil {
			return Text{}, errors.New("the payload is not JSON")
		}
	}
	return find(locales, m.Locale).render(data)
}

// find returns the parts that fit a locale best.
func find(locales map[string]parts, locale string) parts {
	for tag := normalize(locale); tag != ""; {
		if found, ok := locales[tag]; ok {
			return found
		}
		tag = tag[:max(0, strings.LastIndexByte(tag, '-'))]
	}
	return locales[defaultLocale]
}

// normalize writes a tag as files are found by: case does not matter.
func normalize(locale string) string { return strings.ToLower(strings.ReplaceAll(locale, "_", "-")) }

func (p parts) render(data Data) (text Text, err error) {
	for _, part := range []struct {
		into     *string
		executor executor
	}{{&text.Subject, p.subject}, {&text.Text, p.text}, {&text.HTML, p.html}} {
		if part.executor == nil {
			continue
		}
		var out bounded
		if err := part.executor.Execute(&out, data); err != nil {
			return Text{}, err
		}
		*part.into = out.String()
	}
	text.Subject = oneLine(text.Subject)
	return text, nil
}

// bounded is a buffer that takes no more than MaxText bytes.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(data []byte) (int, error) {
	if b.Len()+len(data) > MaxText {
		return 0, ErrTooLong
	}
	return b.Buffer.Write(data) //nolint:wrapcheck // it has none
}
