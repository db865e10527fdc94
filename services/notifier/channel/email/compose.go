package email

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	netmail "net/mail"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// compose makes the mail: the same in every try.
func (e *Email) compose(m channel.Message, to *netmail.Address, text template.Text, unsubscribe string) (*mail.Msg, error) {
	msg := mail.NewMsg(mail.WithNoDefaultUserAgent())
	msg.FromMailAddress(e.from)
	msg.AddToMailAddress(to)
	msg.SetMessageIDWithValue(m.ID + "@" + e.from.Address[strings.LastIndexByte(e.from.Address, '@')+1:])
	msg.SetBoundary(boundary(text))
	msg.SetDateWithValue(m.FirstAttempt) // filters distrust a mail that is older than its way explains
	msg.Subject(text.Subject)
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: nobody's out-of-office answers it
	if unsubscribe != "" {
		if err := msg.SetListUnsubscribeOneClick(unsubscribe); err != nil {
			return nil, fmt.Errorf("the address to unsubscribe at: %w", err)
		}
	}
	msg.SetBodyString(mail.TypeTextPlain, text.Text)
	if text.HTML != "" {
		msg.AddAlternativeString(mail.TypeTextHTML, text.HTML)
	}
	return msg, nil
}

// boundary separates the parts: the same in every try, and nothing that a part can hold, being made of both.
func boundary(text template.Text) string {
	sum := sha256.Sum256([]byte(text.Text + "\x00" + text.HTML))
	return "part_" + hex.EncodeToString(sum[:16])
}
