package worker

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func sampleLetter() DeadLetter {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	return DeadLetter{
		Attempts: 3, Consumer: "cook", DeadAt: at.Add(time.Hour), Deliveries: 5, EnqueuedAt: at,
		Error: "EOF 7", Header: map[string][]string{"a": {"b", "c"}}, ID: "id-1", MaxAttempts: 3,
		Payload: []byte("\x00\xff{"), Reason: ReasonExhausted, Sequence: 42, Signature: "EOF #", Stack: "s",
		Stream: "JOBS", Subject: "jobs.1", Worker: "w",
	}
}

// golden is a letter that every later version must read. Never change it: add another.
const golden = `{"attempts":3,"consumer":"cook","deadAt":"2026-01-02T04:04:05.000000006Z","deliveries":5,` +
	`"enqueuedAt":"2026-01-02T03:04:05.000000006Z","error":"EOF 7","header":{"a":["b","c"]},"id":"id-1","maxAttempts":3,` +
	`"payload":"AP97","reason":"exhausted","sequence":42,"signature":"EOF #","stack":"s","stream":"JOBS",` +
	`"subject":"jobs.1","worker":"w"}`

func TestDeadLetterKeepsItsWireForm(t *testing.T) {
	t.Parallel()
	data := check.Must(json.Marshal(sampleLetter()))(t)
	check.Equal(t, string(data), golden)
	letter := check.Must(ParseDeadLetter([]byte(golden)))(t)
	check.Equal(t, letter, sampleLetter())
}

func TestDeadLetterIsPackedWhenItWouldNotFit(t *testing.T) {
	t.Parallel()
	letter := sampleLetter()
	letter.Payload = bytes.Repeat([]byte("tomato "), 10_000)
	data := check.Must(letter.encode(10_000))(t)
	check.That(t, len(data) <= 10_000, "%d bytes, want at most 10000", len(data))
	parsed, err := ParseDeadLetter(data)
	check.OK(t, err)
	check.Equal(t, parsed, letter)
	// A payload that packing does not shrink stays as it is, and is stored in parts.
	_, _ = rand.Read(letter.Payload)
	data, err = letter.encode(10_000)
	check.That(t, err == nil && !bytes.Contains(data, []byte(`"payloadEncoding"`)), "%v; packed a payload that only grows by it", err)
}

func TestMessageIDNamesTheJobAndItsStream(t *testing.T) {
	t.Parallel()
	one, again := sampleLetter(), sampleLetter()
	again.DeadAt, again.Error, again.Worker = time.Now(), "other", "other"
	check.That(t, one.messageID() == again.messageID(), "the same job has two message IDs")
	again.EnqueuedAt = again.EnqueuedAt.Add(1)
	check.That(t, one.messageID() != again.messageID(), "a job of a recreated stream has the old one's message ID")
}

func FuzzParseDeadLetter(f *testing.F) {
	f.Add([]byte(golden))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"stream":"s","subject":"s","payloadEncoding":"gzip","payload":"AAAA"}`))
	f.Add([]byte(`{"stream":"s","subject":"s","payloadEncoding":"zip"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		letter, err := ParseDeadLetter(data)
		if err != nil {
			check.That(t, errors.Is(err, ErrDeadLetter), "%v is not an ErrDeadLetter", err)
			return
		}
		encoded, err := letter.encode(0)
		if err != nil {
			t.Skip("a time that JSON cannot hold")
		}
		again := check.Must(ParseDeadLetter(encoded))(t)
		check.Equal(t, again, letter)
	})
}
