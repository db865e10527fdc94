// Package redact takes secrets out of the addresses of a configuration before they are shown: in errors, answers, logs and dead
// letters. It also bounds the texts that are shown, and calls the methods of values that users hand us, of errors, of values of panics,
// of log handlers: none of them ends the process, whatever it does, but by a method that never returns or that overflows its stack.
package redact

import (
	"errors"
	"net/url"
	"strings"

	"github.com/expediter-io/expediter/internal/lazyregexp"
)

// address matches URLs in a text.
var address = lazyregexp.New(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"'<>]*`)

// reach matches the addresses of people: e-mail addresses, and telephone numbers in the form of E.164.
var reach = lazyregexp.New(`(?:"[^"]{0,64}"|[\pL\pN._%+-]+)@[\pL\pN-]+(?:\.[\pL\pN-]+)+|\+[0-9]{7,15}\b`)

// URL returns an address, or a list of addresses separated by commas, without users, passwords, queries and fragments. An address need not
// be valid: all before the last @ is dropped.
func URL(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = "", text
	}
	if end := strings.IndexAny(rest, "?#"); end >= 0 && !strings.Contains(rest[end:], "@") {
		rest = rest[:end]
	}
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	if end := strings.IndexAny(rest, "?#"); end >= 0 {
		rest = rest[:end]
	}
	if !found {
		return rest
	}
	return scheme + "://" + rest
}

// Text returns a text without the secrets of the addresses in it.
func Text(text string) string { return address.ReplaceAllStringFunc(text, URL) }

// People returns a text without the secrets of the addresses in it, as Text does, and without e-mail addresses and telephone
// numbers.
func People(text string) string { return reach.ReplaceAllString(Text(text), "…") }

// Clip returns the first limit bytes of a text, without a character that is cut and without bytes that are no UTF-8.
func Clip(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

// Shorten returns a text of up to limit bytes as it is, and a longer one clipped, with an ellipsis.
func Shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return Clip(text, limit) + "…"
}

// Error returns an error that wraps err, and whose text is that of err without the secrets of the addresses in it. nil stays nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	text := Value(err)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		text = failed.Op + " " + URL(failed.URL) + ": " + Value(failed.Err)
		if failed.Op == "parse" { // its reason repeats a part of the address, maybe of the password
			text = "the address is not a URL"
		}
	}
	return &redacted{err: err, text: Text(text)}
}

type redacted struct {
	err  error
	text string
}

// Error implements error.
func (r *redacted) Error() string { return r.text }

// Unwrap returns the error with its secrets, for comparisons.
func (r *redacted) Unwrap() error { return r.err }
