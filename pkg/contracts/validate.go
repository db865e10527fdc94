package contracts

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/internal/strictjson"
	"github.com/expediter-io/expediter/internal/subject"
)

// Bounds of single fields, in bytes of UTF-8.
const (
	// MaxText bounds names, addresses, messages and other free text of one line.
	MaxText = 1024
	// MaxURL bounds URLs.
	MaxURL = 2048
	// MaxName bounds names that programs choose: providers, channels, codes, reasons, types.
	MaxName = subject.MaxName
)

// Mistakes collects the failing fields of one message or request.
type Mistakes []FieldError

// Add adds a field if it is wrong. Fields after the first 1,000 are dropped.
func (m *Mistakes) Add(wrong bool, path, problem string) {
	if wrong && len(*m) < strictjson.MaxProblems {
		*m = append(*m, FieldError{Path: path, Problem: problem})
	}
}

// In returns a *ValidationError with all fields for a type of message or request, or nil when there are none.
func (m Mistakes) In(typeName string) error {
	if len(m) == 0 {
		return nil
	}
	return &ValidationError{Type: typeName, Fields: m}
}

// Mistake returns the *ValidationError for one failing field.
func Mistake(typeName, path, problem string) error { return Mistakes{{path, problem}}.In(typeName) }

// checks collects the failing fields of one message.
type checks struct{ Mistakes }

func (c *checks) add(path, problem string) { c.Add(true, path, problem) }

// over reports whether there are more than most of the things, and adds a problem if so.
func (c *checks) over(path string, n, most int, things string) bool {
	if n <= most {
		return false
	}
	c.add(path, fmt.Sprintf("has %d %s, at most %d", n, things, most))
	return true
}

// nest adds the problems that another Validate found, below a path.
func (c *checks) nest(path string, err error) {
	invalid, ok := errors.AsType[*ValidationError](err)
	if !ok {
		return
	}
	for _, field := range invalid.Fields {
		c.add(path+field.Path, field.Problem)
	}
}

// id checks an identifier from outside. Any text up to a bound is valid, because it is encoded before it becomes part of a subject or a
// key. U+FFFD is refused: it would make two different broken ids the same.
func (c *checks) id(path, id string) {
	c.Add(id == "", path, "is required")
	c.optionalID(path, id)
}

func (c *checks) optionalID(path, id string) {
	switch {
	case c.over(path, len(id), MaxID, "bytes"):
	case !utf8.ValidString(id), strings.ContainsRune(id, utf8.RuneError):
		c.add(path, "is not valid Unicode")
	}
}

// fileID checks an id that programs may use to name a file or a folder.
func (c *checks) fileID(path, id string) {
	c.id(path, id)
	c.Add(strings.ContainsAny(id, `/\`) || strings.Contains(id, "..") || strings.ContainsFunc(id, unicode.IsControl),
		path, `must not contain "/", "\", ".." or control characters`)
}

func (c *checks) requiredText(path, text string) {
	if strings.TrimSpace(text) == "" {
		c.add(path, "is required")
		return
	}
	c.text(path, text)
}

func (c *checks) text(path, text string) {
	switch {
	case c.over(path, len(text), MaxText, "bytes"):
	case !utf8.ValidString(text):
		c.add(path, "is not valid UTF-8")
	}
}

// name checks a name that a program chose: letters, digits, '_' and '-', so that it is a token without encoding.
func (c *checks) name(path, name string) {
	c.Add(name == "", path, "is required")
	c.optionalName(path, name)
}

func (c *checks) optionalName(path, name string) {
	if name != "" && (len(name) > MaxName || !subject.IsSafeToken(name)) {
		c.add(path, fmt.Sprintf("must be 1 to %d of A-Z, a-z, 0-9, '_' and '-'", MaxName))
	}
}

func (c *checks) oneOf(path, value string, allowed ...string) {
	switch {
	case slices.Contains(allowed, value):
	case value == "":
		c.add(path, "is required")
	default:
		c.add(path, "must be one of "+strings.Join(allowed, ", "))
	}
}

// url checks an absolute http or https URL without credentials.
func (c *checks) url(path, raw string) {
	if c.over(path, len(raw), MaxURL, "bytes") || isPlainURL(raw) {
		return
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil ||
		strings.ContainsFunc(raw, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		c.add(path, "must be an absolute http or https URL without user name and password")
	}
}

// isPlainURL reports whether a URL has only https, a host and a path, without a port, a query or an escape. Nearly all URLs do, and need
// no parsing.
func isPlainURL(raw string) bool {
	rest, ok := strings.CutPrefix(raw, "https://")
	for i := range len(rest) {
		c := rest[i]
		isWord := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z'
		if !isWord && (i == 0 || strings.IndexByte("-._/", c) < 0) {
			return false
		}
	}
	return ok && rest != ""
}

// source checks a URL, or the name of a file by its content.
func (c *checks) source(path, raw string) {
	if !strings.HasPrefix(raw, fileScheme+":") || len(raw) > MaxURL {
		c.url(path, raw)
	} else if _, err := ParseFileURL(raw); err != nil {
		c.add(path, "must name a file as ni:///sha-256;… does, with 43 characters of base64url and at most a ?name=")
	}
}

// timestamp refuses the years and offsets that RFC 3339 cannot write, in the zone of the time or in UTC.
func (c *checks) timestamp(path string, t time.Time) {
	if t.IsZero() {
		return
	}
	year, utc := t.Year(), t.UTC().Year()
	if min(year, utc) < 1 || max(year, utc) > 9999 {
		c.add(path, fmt.Sprintf("has year %d, in UTC %d, want 1 to 9999", year, utc))
		return
	}
	_, offset := t.Zone() // time.Parse takes +24:00, which MarshalJSON does not write
	c.Add(max(offset, -offset) >= 24*60*60, path, "is a day or more from UTC, want at most 23:59")
}

func (c *checks) requiredTime(path string, t time.Time) {
	c.Add(t.IsZero(), path, "is required")
	c.timestamp(path, t)
}

// opaque checks a part of a message that only the message's reader understands. The message is one level more.
func (c *checks) opaque(path string, raw json.RawMessage) {
	if len(raw) == 0 {
		return
	}
	if problem := strictjson.Check(raw, strictjson.MaxDepth-1); problem != nil {
		c.add(path+problem.Path, problem.Text)
	}
}

var (
	// ErrInvalid is returned when a message, a header set or a value breaks its contract.
	// Every *ValidationError matches it with errors.Is.
	ErrInvalid = errors.New("contracts: invalid")

	// ErrTooLarge is returned when a body is longer than its type allows.
	// The error is a *ValidationError as well; nothing of the body was decoded.
	ErrTooLarge = errors.New("contracts: body too large")

	// ErrEventMismatch is returned when another event has been published under the same id. The earlier event stands: a
	// different event needs its own id.
	ErrEventMismatch = errors.New("contracts: another event was published under this id: one that differs needs its own id")

	// ErrEmptyToken is returned when an id that must become part of a subject or a key is empty.
	ErrEmptyToken = subject.ErrEmpty

	// ErrTokenTooLong is returned when an id is longer than MaxID bytes.
	ErrTokenTooLong = subject.ErrTooLong

	// ErrTokenMalformed is returned when a token was not made by EncodeToken, or when a name that a program chose (a provider, a channel) is
	// not itself a short token.
	ErrTokenMalformed = subject.ErrMalformed
)

// errorFields is the number of fields that ValidationError.Error lists; Fields has all.
const errorFields = 20

// FieldError is a problem with one field.
type FieldError struct {
	// Path is a JSON Pointer (RFC 6901) to the field, "" for the whole document. Names from the sender are cut after 64
	// bytes.
	Path string `json:"path"`
	// Problem is a phrase that follows the path in a sentence, such as "is required".
	Problem string `json:"problem"`
}

// ValidationError names every field of one message that breaks its contract. It matches ErrInvalid.
type ValidationError struct {
	// Type is the Go name of the message, such as "EnrichRequest".
	Type string `json:"type"`
	// Fields holds the failing fields in the order in which they were found, at most 1,000.
	Fields []FieldError `json:"fields"`

	cause error
}

// Error lists the failing fields in one line; more than 20 are counted instead.
func (e *ValidationError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "contracts: invalid %s:", e.Type)
	for i, field := range e.Fields {
		if i == errorFields {
			fmt.Fprintf(&b, "; and %d more", len(e.Fields)-i)
			break
		}
		if i > 0 {
			b.WriteByte(';')
		}
		path := field.Path
		path = cmp.Or(path, "body")
		b.WriteByte(' ')
		b.WriteString(path)
		b.WriteByte(' ')
		b.WriteString(field.Problem)
	}
	return b.String()
}

// Is reports whether target is ErrInvalid.
func (e *ValidationError) Is(target error) bool { return target == ErrInvalid }

// Unwrap returns the sentinel behind the error, such as ErrTooLarge, or nil.
func (e *ValidationError) Unwrap() error { return e.cause }

// PublishError is returned for an event that the stream did not acknowledge.
type PublishError struct {
	// Attempts is the number of attempts.
	Attempts int
	// Cause is the error of the last attempt. It matches ErrEventMismatch, or the error of the context that has ended.
	Cause error
	// EventID is the id of the event.
	EventID string
	// Subject is the subject that it was published to.
	Subject string
	// Unsure reports whether the stream may have the event nevertheless.
	Unsure bool
}

// Error names the event, with a long id cut, the number of attempts and the cause.
func (e *PublishError) Error() string {
	text := fmt.Sprintf("contracts: event %.80q was not acknowledged in %d tries", e.EventID, e.Attempts)
	if e.Unsure {
		text += ", and may be in the stream all the same"
	}
	return text + ": " + e.Cause.Error()
}

// Unwrap returns the cause.
func (e *PublishError) Unwrap() error { return e.Cause }
