package worker

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

	data, err := json.Marshal(sampleLetter())
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(golden, string(data)); diff != "" {
		t.Errorf("encoding (-want +got):\n%s", diff)
	}

	letter, err := ParseDeadLetter([]byte(golden))
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(sampleLetter(), letter); diff != "" {
		t.Errorf("decoding (-want +got):\n%s", diff)
	}
}

func TestDeadLetterIsPackedWhenItWouldNotFit(t *testing.T) {
	t.Parallel()

	letter := sampleLetter()
	letter.Payload = bytes.Repeat([]byte("tomato "), 10_000)

	data, err := letter.encode(10_000)
	if err != nil {
		t.Fatal(err)
	}

	if len(data) > 10_000 {
		t.Errorf("%d bytes, want at most 10000", len(data))
	}

	parsed, err := ParseDeadLetter(data)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(letter, parsed); diff != "" {
		t.Errorf("unpacked (-want +got):\n%s", diff)
	}

	// A payload that packing does not shrink stays as it is, and is stored in parts.
	_, _ = rand.Read(letter.Payload)
	if data, err = letter.encode(10_000); err != nil || bytes.Contains(data, []byte(`"payloadEncoding"`)) {
		t.Errorf("%v; packed a payload that only grows by it", err)
	}
}

func TestMessageIDNamesTheJobAndItsStream(t *testing.T) {
	t.Parallel()

	one, again := sampleLetter(), sampleLetter()
	again.DeadAt, again.Error, again.Worker = time.Now(), "other", "other"

	if one.messageID() != again.messageID() {
		t.Error("the same job has two message IDs")
	}

	again.EnqueuedAt = again.EnqueuedAt.Add(1)
	if one.messageID() == again.messageID() {
		t.Error("a job of a stream made anew has the old one's message ID")
	}
}

func FuzzParseDeadLetter(f *testing.F) {
	f.Add([]byte(golden))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"stream":"s","subject":"s","payloadEncoding":"gzip","payload":"AAAA"}`))
	f.Add([]byte(`{"stream":"s","subject":"s","payloadEncoding":"zip"}`))

	f.Fuzz(func(t *testing.T, data []byte) {
		letter, err := ParseDeadLetter(data)
		if err != nil {
			if !errors.Is(err, ErrDeadLetter) {
				t.Errorf("%v is not an ErrDeadLetter", err)
			}
			return
		}

		encoded, err := letter.encode(0)
		if err != nil {
			t.Skip("a time that JSON cannot hold")
		}

		again, err := ParseDeadLetter(encoded)
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(letter, again); diff != "" {
			t.Errorf("round trip (-first +second):\n%s", diff)
		}
	})
}
