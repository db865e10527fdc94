package validate

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// forbidden are the printable characters that nats.go refuses in a name.
const forbidden = `"()/,:;<=>?@[\]{}`

// HeaderName returns an error for the name of a header that nats.go refuses to send.
func HeaderName(name string) error {
	refused := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(forbidden, r) }
	if name == "" || strings.ContainsFunc(name, refused) {
		return fmt.Errorf("header %.64q: use a name of printable ASCII, without spaces and without %s", name, forbidden)
	}
	return nil
}

// Header returns an error for a header that nats.go refuses or changes, or on which the server acts.
func Header(name string, values ...string) error {
	if err := HeaderName(name); err != nil {
		return err
	}
	if strings.HasPrefix(strings.ToLower(name), "nats-") {
		return fmt.Errorf("header %.64q: names that start with Nats- are the server's", name)
	}
	for _, value := range values {
		if err := HeaderText(value); err != nil {
			return fmt.Errorf("header %.64q: %w", name, err)
		}
		if strings.Trim(value, " ") != value {
			return fmt.Errorf("header %.64q: spaces at the ends of a value are not kept", name)
		}
	}
	return nil
}

// HeaderText returns an error for a text that a header does not keep.
func HeaderText(text string) error {
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return errors.New("control characters and invalid UTF-8 are not allowed")
	}
	return nil
}
