package notifier

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel/email"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// What strangers write into payloads and addresses comes out of a mail server as text: no header, no recipient, no markup and no
// link is made of it.
func TestPayloadsStayTextInTheMailThatArrives(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t)).watched()
	directory := p.directory(
		contracts.Recipient{RecipientType: "ADMIN", UserID: "ada", Addresses: map[string]string{"email": "ada@example.org"}},
		contracts.Recipient{RecipientType: "ADMIN", UserID: "two", Addresses: map[string]string{"email": "two@example.org, mallory@example.org"}},
	)
	eve := contracts.Recipient{RecipientType: "ADMIN", UserID: "eve", Addresses: map[string]string{"email": "eve@example.org>\r\nRCPT TO:<mallory@example.org"}}
	check.Contains(t, directory.Put(t.Context(), eve), "/addresses/email")
	type letter struct {
		to  string
		raw []byte
	}
	letters := make(chan letter, 10)
	far := newFar(t, 0)
	far.read = func(to string, raw []byte) error {
		letters <- letter{to, raw}
		return nil
	}
	n := p.start(&pigeon{}, func(c *Config) {
		c.Rules = writeRules(t, "{version: 1, events: {X: {ADMIN: {scope: all, channels: [email]}}}}")
		c.ChannelConfig = ChannelConfig{
			EmailFrom: "Expediter <notify@example.com>", EmailSecurity: email.Plain, EmailServer: far.mail,
			Templates: writeTexts(t, "X", "Table for {{.Payload.name}}", "{{.Payload.name}} {{.Payload.url}} {{link .Payload.url}}",
				`<p title="{{.Payload.name}}">{{.Payload.name}}</p><a href="{{.Payload.url}}">more</a>{{link .Payload.url}}`),
		}
	})
	payload, err := json.Marshal(map[string]string{
		"name": "Bob\r\nBcc: mallory@example.org\r\n\r\n.\r\nMAIL FROM:<x@example.org>\" onload=\"alert(1)<script>alert(2)</script>\u2028X-Evil: 1",
		"url":  "javascript:alert(3)//https://evil.example/x",
	})
	check.OK(t, err)
	p.publish(event("evil", "X", func(e *contracts.Event) { e.Payload = payload }))
	for key, d := range p.settled(2) {
		want := deliveries.Bounced
		if strings.HasSuffix(key, ".ada") {
			want = deliveries.Sent
		}
		check.That(t, d.State == want, "%s is %+v, want %s", key, d, want)
	}
	check.Is(t, n.Stop(), nil)
	check.Require(t, len(letters) == 1, "%d letters, want 1", len(letters))
	got := <-letters
	check.Same(t, "it went to", got.to, "ada@example.org")
	msg, err := mail.ReadMessage(bytes.NewReader(got.raw))
	check.Require(t, err == nil, "%q: %v", got.raw, err)
	want := []string{"Auto-Submitted", "Content-Type", "Date", "From", "Message-Id", "Mime-Version", "Subject", "To"}
	check.Equal(t, want, slices.Sorted(maps.Keys(msg.Header)))
	for kind, part := range parts(t, msg) {
		for _, bad := range []string{"<script", `" onload=`, `href="javascript`, "https://evil.example", `href="https://evil`} {
			if strings.Contains(part, bad) && (kind == "text/html" || strings.HasPrefix(bad, "https")) {
				t.Errorf("%s has %s: %s", kind, bad, part)
			}
		}
		check.That(t, strings.Contains(part, "Bob") && strings.Contains(part, "alert(2)"), "%s does not say what it was to say: %s", kind, part)
	}
}

// parts are those of a mail, by their type.
func parts(t *testing.T, msg *mail.Message) map[string]string {
	t.Helper()
	_, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	check.OK(t, err)
	found := map[string]string{}
	reader := multipart.NewReader(msg.Body, params["boundary"])
	for {
		part, err := reader.NextRawPart()
		if err == io.EOF { //nolint:errorlint // as it is documented
			break
		}
		check.OK(t, err)
		body := check.Must(io.ReadAll(quotedprintable.NewReader(part)))(t)
		kind, _, err := mime.ParseMediaType(part.Header.Get("Content-Type"))
		check.OK(t, err)
		found[kind] = string(body)
	}
	check.Require(t, len(found) == 2, "the mail has the parts %v, want text and HTML", found)
	return found
}
