package template

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/locale"
	"github.com/expediter-io/expediter/services/notifier/internal/schedule"
)

const (
	// MaxText bounds each part of a text, and each value that goes into one, in bytes.
	MaxText = 256 << 10

	// MaxSteps bounds the steps of a template for one part: the texts and values that it prints, the turns of its loops and
	// the templates that it calls.
	MaxSteps = 20_000

	// MaxTime bounds the time of a template for one part.
	MaxTime = 2 * time.Second

	// maxSubject bounds subjects, in characters: more is not shown anywhere.
	maxSubject = 200
)

// Config configures templates.
type Config struct {
	// Channels are the channels by name for which a text may have separate parts, each with its kind. Defaults to email, sms
	// and webpush.
	Channels map[string]Kind

	// Language is the language of the texts in default, and of their plurals. Defaults to en.
	Language string

	// LinkHosts are the hosts to which, with their subdomains, links from payloads may lead. Defaults to none.
	LinkHosts []string
}

// Set is a folder of templates that has no mistakes. It is safe for concurrent use.
type Set struct {
	byName   atomic.Pointer[map[string]texts]
	kinds    map[string]Kind
	language string
}

// Text is the text of a message.
type Text struct {
	// Data is JSON for the application that shows a push. nil is none.
	Data json.RawMessage

	// HTML is the content of Text for clients that show HTML. "" is none.
	HTML string

	// Icon is the address of the picture of a push. "" is none.
	Icon string

	// Subject is one line. The text of an SMS may have none.
	Subject string

	// Text is the plain text.
	Text string

	// URL is the address that a push leads to. "" is none.
	URL string
}

// Data is the data that a template is executed with.
type Data struct {
	// Category is the group of messages that the user can switch off.
	Category string

	// Channel is the channel that the text is for.
	Channel string

	// CreatedAt is the time at which the notification was planned, in the user's zone.
	CreatedAt time.Time

	// EventID is the id of the event.
	EventID string

	// EventType is the type of the event.
	EventType string

	// Locale is the locale of the user.
	Locale string

	// Payload is the payload of the event. Its numbers are kept as written.
	Payload any

	// Preferences is the link to the page of the user's preferences. "" is none.
	Preferences Link

	// RecipientType is the kind of recipient that the user is.
	RecipientType string

	// TimeZone is the IANA name of the user's zone. "" means that it is not known; then UTC is used.
	TimeZone string

	// Unsubscribe is the link with which the user can switch the category off. "" is none.
	Unsubscribe Link

	// UserID is the id of the user.
	UserID string

	language string // of the text
}

// Names returns the names of all templates, in alphabetical order.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(*s.byName.Load())) }

// Locales returns the locales that a template has texts for, as files are named, in alphabetical order: default alone for a template
// that does not exist.
func (s *Set) Locales(name string) []string {
	if all := (*s.byName.Load())[name]; len(all.by) > 0 {
		return slices.Sorted(maps.Keys(all.by))
	}
	return []string{locale.Default}
}

// Channels yields the channels for which a text may have separate parts, in alphabetical order, each with its kind.
func (s *Set) Channels() iter.Seq2[string, Kind] {
	return func(yield func(string, Kind) bool) {
		for _, name := range slices.Sorted(maps.Keys(s.kinds)) {
			if !yield(name, s.kinds[name]) {
				return
			}
		}
	}
}

// Has reports whether there is a template with a name, with all parts that some channels need. Then it has them in
// the default locale.
func (s *Set) Has(name string, channels ...string) bool {
	all, found := (*s.byName.Load())[name]
	for _, on := range channels {
		if found {
			found = all.of(locale.Default, on).lacks(s.kind(on)) == ""
		}
	}
	return found
}

// kind is that of a channel. An unknown channel shows the parts of a mail.
func (s *Set) kind(on string) Kind { return cmp.Or(s.kinds[on], Mail) }

// Become replaces the templates of a set by the templates of another set, from the next text on.
func (s *Set) Become(other *Set) { s.byName.Store(other.byName.Load()) }

// Render makes the text of a message for a channel, by its template or, when it names none, by the template of its type of
// event. A digest without a template is a plain list. unsubscribe is the link with which the user can switch the category off,
// or "". The error is a [*channel.Error] that names the template and the line.
func (s *Set) Render(m channel.Message, on, unsubscribe string) (Text, error) {
	text, err := s.render(m, on, unsubscribe)
	if err == nil {
		return text, nil
	}
	kind := channel.KindRejected
	if errors.Is(err, ErrNotFound) {
		kind = channel.KindMisconfigured
	}
	return Text{}, &channel.Error{Cause: err, Channel: on, Detail: "no text", Kind: kind}
}

func (s *Set) render(m channel.Message, on, unsubscribe string) (Text, error) {
	name := cmp.Or(m.Template, m.EventType)
	all := (*s.byName.Load())[name]
	if all.by == nil {
		all = fallback(m)
	}
	kind := s.kind(on)
	found, ok := all.find(m.Locale, on, kind)
	if !ok {
		return Text{}, fmt.Errorf("template %q for %s: %w", name, on, ErrNotFound)
	}
	if found.locale == locale.Default {
		found.locale = s.language
	}
	at, err := schedule.In(m.TimeZone, m.CreatedAt)
	if err != nil { // this machine does not know the zone
		m.TimeZone, at = "", m.CreatedAt.UTC()
	}
	data := Data{
		Category: m.Category, Channel: on, CreatedAt: at, EventID: m.EventID, EventType: m.EventType, Locale: m.Locale,
		Preferences: Link(m.Preferences), RecipientType: string(m.RecipientType), TimeZone: m.TimeZone, Unsubscribe: Link(unsubscribe),
		UserID:   m.UserID,
		language: found.locale,
	}
	if len(m.Payload) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(m.Payload))
		decoder.UseNumber()
		if err := decoder.Decode(&data.Payload); err != nil {
			return Text{}, errors.New("the payload is not JSON")
		}
	}
	text, err := found.render(kind, data)
	if m.Test && err == nil {
		text.Subject = testMark + text.Subject
		if kind == SMS {
			text.Text = testMark + text.Text
		}
	}
	return text, err
}

// render executes the parts that a channel shows.
func (p parts) render(kind Kind, data Data) (text Text, err error) {
	separator := ""
	switch kind {
	case Mail:
		separator = breaker
	case SMS:
		separator = " " // the breaker would make the message longer
	case Push:
		if p.push != nil {
			p.subject, p.text = cmp.Or(p.push.title, p.subject), cmp.Or(p.push.body, p.text)
			err = p.push.render(&text, data)
		}
	}
	for _, part := range []struct {
		into     *string
		executor executor
	}{{&text.Subject, p.subject}, {&text.Text, p.text}} {
		if part.executor != nil && err == nil {
			*part.into, err = execute(part.executor, data)
			*part.into = strings.ReplaceAll(*part.into, string(mark), separator)
		}
	}
	text.Subject = oneLine(text.Subject)
	if kind == Mail && p.html != nil && err == nil {
		text.HTML, err = execute(p.html, data)
	}
	if err != nil {
		return Text{}, err
	}
	return text, nil
}

// testMark precedes the subject of a test message, or its text when it shows no subject.
const testMark = "[test] "

// execute returns the output of a template.
func execute(e executor, data Data) (string, error) {
	out := newBounded()
	switch err := e.Execute(out, data); {
	case errors.Is(err, ErrTooManySteps), errors.Is(err, ErrTooLong), errors.Is(err, ErrTooSlow): // none of which names the template
		return "", fmt.Errorf("template %s: %w", e.Name(), err)
	case err != nil:
		return "", err
	}
	return out.String(), nil
}

var (
	// ErrNotFound is returned when there is no template of a name.
	ErrNotFound = errors.New("there is no such template")

	// ErrTooLong is returned when a text would be longer than MaxText.
	ErrTooLong = fmt.Errorf("the text, or a value in it, has more than %d bytes", MaxText)

	// ErrTooManySteps is returned when a template takes more than MaxSteps.
	ErrTooManySteps = fmt.Errorf("it takes more than %d steps: it loops, or calls itself", MaxSteps)

	// ErrTooSlow is returned when a template takes more than MaxTime.
	ErrTooSlow = fmt.Errorf("it takes longer than %s", MaxTime)
)

// Mistake is a mistake in a folder of templates.
type Mistake struct {
	// File is the path of the file within the folder.
	File string

	// Line is the line in the file, 0 for the whole file.
	Line int

	// Text describes the mistake.
	Text string
}

// Error is returned for a folder with mistakes.
type Error struct {
	// Mistakes are all mistakes, by file and line.
	Mistakes []Mistake
}

// Error returns the mistakes, one in a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = fmt.Sprintf("%s:%d: %s", m.File, m.Line, m.Text)
		if m.Line == 0 {
			lines[i] = m.File + ": " + m.Text
		}
	}
	return strings.Join(lines, "\n")
}
