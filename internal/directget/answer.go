package directget

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/retry"
)

// call collects the answer to one request.
type call struct {
	messages []jsapi.Message
	err      error
	last     string // the sequence of the last message, from the end of the answer
	more     bool   // the server ended the answer early
	done     chan struct{}
}

// add adds one reply, and reports whether it was the last.
func (c *call) add(m *nats.Msg) (last bool) {
	if status := m.Header.Get("Status"); status != "" && m.Header.Get(headerSequence) == "" { // a message may have such a header, too
		c.finish(status, m.Header)
		return true
	}
	message, err := parse(m)
	if err != nil {
		c.err = err
		return true
	}
	c.messages = append(c.messages, message)
	return false
}

const (
	// headerBefore is the sequence of the previous message in the same answer, 0 for the first.
	headerBefore = "Nats-Last-Sequence"

	// headerPending is the number of messages that follow.
	headerPending = "Nats-Num-Pending"

	headerSequence = "Nats-Sequence"
)

// cutAtGap removes the messages behind a missing message, and reports whether one is missing: a broken connection may come back in the
// middle of an answer.
func (c *call) cutAtGap() bool {
	before := "0"
	for i, m := range c.messages {
		if own(m.Header, headerBefore) != before {
			c.messages = c.messages[:i]
			return true
		}
		before = strconv.FormatUint(m.Sequence, 10)
	}
	return c.last != "" && c.last != before
}

func (c *call) finish(status string, h nats.Header) {
	description := h.Get("Description")
	switch status {
	case "204": // the end; messages are left when the bound on bytes was reached
		pending := h.Get(headerPending)
		c.more = pending != "" && pending != "0"
		c.last = h.Get(headerBefore)
		c.date(h.Get("Nats-UpTo-Sequence"))
	case "404": // none of the subjects has a message, or a message went away while the server was answering
		if description == "Message Not Found" {
			c.err = errGone
		}
	case "503":
		c.err = ErrNoReply
	case "413": // a filter that matches more subjects than MaxSubjects
		c.err = fmt.Errorf("server answered %s %s: %w", status, description, errors.ErrUnsupported)
	default:
		c.err = fmt.Errorf("server answered %s %s", status, description)
	}
}

// date sets, in all messages, the stream's sequence at which the replica answered.
func (c *call) date(sequence string) {
	asOf, _ := strconv.ParseUint(sequence, 10, 64) // without one, messages are as old as they say
	for i := range c.messages {
		c.messages[i].AsOf = max(c.messages[i].AsOf, asOf)
	}
}

// own returns the last value of a header. The server adds its headers behind those of the message, which may have the same names.
func own(h nats.Header, name string) string {
	values := h[name]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

func parse(m *nats.Msg) (jsapi.Message, error) {
	sequence, err := strconv.ParseUint(own(m.Header, headerSequence), 10, 64)
	if err != nil {
		return jsapi.Message{}, fmt.Errorf("answer without a sequence: %w", err)
	}
	created, err := time.Parse(time.RFC3339Nano, own(m.Header, "Nats-Time-Stamp"))
	if err != nil {
		return jsapi.Message{}, fmt.Errorf("answer without a time: %w", err)
	}
	var behind uint64
	if pending := own(m.Header, headerPending); pending != "" { // not in every answer
		behind, _ = strconv.ParseUint(pending, 10, 64) // then it is 0
	}
	return jsapi.Message{
		Subject: own(m.Header, "Nats-Subject"), Sequence: sequence, Time: created, Header: m.Header, Data: m.Data, AsOf: sequence, Behind: behind,
	}, nil
}

// Pushed parses a message that a stream republished. The message has the same headers as an answer to Last.
func Pushed(m *nats.Msg) (jsapi.Message, error) { return parse(m) }

// Answer parses a replica's answer to a request for the last message of one subject; ok is false when the subject has no message.
func Answer(m *nats.Msg) (message jsapi.Message, ok bool, err error) {
	status := m.Header.Get("Status")
	switch {
	case status == "", m.Header.Get(headerSequence) != "":
		message, err = parse(m)
		return message, err == nil, err
	case status == "404":
		return jsapi.Message{}, false, nil
	case status == "503":
		return jsapi.Message{}, false, ErrNoReply
	default:
		return jsapi.Message{}, false, fmt.Errorf("server answered %s %s", status, m.Header.Get("Description"))
	}
}

const (
	// batchBytes is the size at which the server ends an answer. It bounds the bytes under way to a slow client.
	batchBytes = 4 << 20

	// batchMessages is far above any answer: without it the server sends one message.
	batchMessages = 1 << 20

	// leaderTimeout is the time after which a request to a silent leader is repeated.
	leaderTimeout = time.Second
)

// All returns the data of the messages of subject in stream, in their order. size is the expected number of bytes: with another number the
// messages are not the expected messages. Any replica may answer, so the end may be missing. One round trip for each 4 MB, and one more
// where an answer ends early.
func (g *Getter) All(ctx context.Context, stream, subject string, size int) ([]byte, error) {
	data := make([]byte, 0, size)
	req := request{NextBy: subject, Batch: batchMessages, MaxBytes: batchBytes, Sequence: 1}
	for {
		c, err := g.ask(ctx, stream, req, idleTimeout)
		if errors.Is(err, errGone) { // it has no messages
			return data, nil
		}
		if err != nil && (c == nil || len(c.messages) == 0) {
			return nil, err
		}
		for _, m := range c.messages {
			data = append(data, m.Data...)
			req.Sequence = m.Sequence + 1
		}
		if err == nil && (!c.more || len(c.messages) == 0) || len(data) > size {
			return data, nil
		}
	}
}

// AllLeader is All with answers of the stream's leader. It requests each message by itself, and repeats a request for as long as patience
// while no server answers. A missing stream has no messages. One round trip for each message.
func (g *Getter) AllLeader(ctx context.Context, stream, subject string, size int, patience time.Duration) ([]byte, error) {
	data := make([]byte, 0, size)
	query := jsapi.Query{NextBySubject: subject, Sequence: 1}
	for {
		m, ok, err := g.getPatiently(ctx, stream, query, patience)
		if err != nil {
			return nil, err
		}
		if !ok {
			return data, nil
		}
		data = append(data, m.Data...)
		query.Sequence = m.Sequence + 1
		if len(data) > size {
			return data, nil
		}
	}
}

// getPatiently asks the leader for one message until there is an answer, and waits longer after each request. ok is false where the
// message or its stream does not exist.
func (g *Getter) getPatiently(
	ctx context.Context, stream string, query jsapi.Query, patience time.Duration,
) (message jsapi.Message, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	api := g.api
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		message, ok, err = api.Get(ctx, stream, query)
		switch {
		case err == nil:
			return message, ok, nil
		case jsapi.IsNoStream(err):
			return message, false, nil
		case errors.Is(err, context.DeadlineExceeded):
			api.Within *= 2 // a message of an object may take long to arrive
		case !isTransient(err):
			return message, false, err
		}
		if !retry.Jitter(ctx, wait) {
			return message, false, err
		}
	}
}
