package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// scanBytes bounds what one answer to a scan holds.
const scanBytes = 8 << 20

// Message is a record as it lies in the stream.
type Message struct {
	Data     []byte
	Revision uint64
	Subject  string
	Time     time.Time
}

// Scan reads records whose subjects match a filter, in the order in which they were written, from a revision on: at most
// limit, and 8 MiB. next is where to go on, 0 when there is no more. One round trip. What a server sends of an answer that
// breaks off is not returned.
func (s *Store) Scan(ctx context.Context, filter string, from uint64, limit int) (found []Message, next uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*try)
	defer cancel()
	nc := s.js.Conn()
	inbox := nc.NewRespInbox()
	// Not SubscribeSync, which makes room for 65,536 messages each time.
	answers := make(chan *nats.Msg, limit+1)
	sub, err := nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: scan %s: %w", ErrUnavailable, filter, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed then
	body, err := json.Marshal(map[string]any{"seq": max(from, 1), "next_by_subj": filter, "batch": limit, "max_bytes": scanBytes})
	if err != nil {
		return nil, 0, fmt.Errorf("scan %s: %w", filter, err)
	}
	if err := nc.PublishRequest(s.api("DIRECT.GET."+s.stream.CachedInfo().Config.Name), inbox, body); err != nil {
		return nil, 0, fmt.Errorf("%w: scan %s: %w", ErrUnavailable, filter, err)
	}
	for {
		var msg *nats.Msg
		select {
		case msg = <-answers:
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("%w: scan %s: %w", ErrUnavailable, filter, context.Cause(ctx))
		}
		m, over, err := readScanned(msg)
		switch {
		case err != nil:
			return nil, 0, fmt.Errorf("%w: scan %s: %w", ErrUnavailable, filter, err)
		case over && len(found) > 0 && pending(msg) > 0:
			return found, found[len(found)-1].Revision + 1, nil
		case over:
			return found, 0, nil
		}
		found = append(found, m)
	}
}

// Subjects returns subjects that match a filter and hold a record, or the mark of one that was deleted, by the number of their
// messages: 100,000 at most, from an offset on. next is where to go on, 0 when there is no more. It is what the leader of the
// stream has at one point in time. One round trip.
func (s *Store) Subjects(ctx context.Context, filter string, offset int) (subjects map[string]uint64, next int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*try)
	defer cancel()
	body, err := json.Marshal(map[string]any{"subjects_filter": filter, "offset": offset})
	if err != nil {
		return nil, 0, fmt.Errorf("subjects %s: %w", filter, err)
	}
	msg, err := s.js.Conn().RequestWithContext(ctx, s.api("STREAM.INFO."+s.stream.CachedInfo().Config.Name), body)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: subjects %s: %w", ErrUnavailable, filter, err)
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
		Total int `json:"total"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return nil, 0, fmt.Errorf("subjects %s: %w", filter, err)
	}
	if answer.Error != nil {
		return nil, 0, fmt.Errorf("%w: subjects %s: %w", ErrUnavailable, filter, answer.Error)
	}
	if next = offset + len(answer.State.Subjects); next >= answer.Total || len(answer.State.Subjects) == 0 {
		next = 0
	}
	return answer.State.Subjects, next, nil
}

// pending is how many more messages an answer says that there are.
func pending(msg *nats.Msg) uint64 {
	n, err := strconv.ParseUint(msg.Header.Get("Nats-Num-Pending"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readScanned reads one message of an answer (ADR-31); over says that it is its end.
func readScanned(msg *nats.Msg) (m Message, over bool, err error) {
	switch status := msg.Header.Get("Status"); status {
	case "":
	case "204", "404":
		return m, true, nil
	case "503":
		return m, false, nats.ErrNoResponders
	default:
		return m, false, fmt.Errorf("the server answered %s %s", status, msg.Header.Get("Description"))
	}
	m = Message{Data: msg.Data, Subject: msg.Header.Get(jetstream.SubjectHeader)}
	if m.Revision, err = strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64); err != nil {
		return m, false, errors.New("the server's answer has a message without its sequence")
	}
	if m.Time, err = time.Parse(time.RFC3339Nano, msg.Header.Get(jetstream.TimeStampHeaer)); err != nil {
		return m, false, errors.New("the server's answer has a message without its time")
	}
	return m, false, nil
}

// api is a subject of the JetStream API.
func (s *Store) api(name string) string {
	options := s.js.Options()
	prefix := options.APIPrefix
	if prefix == "" {
		prefix = "$JS.API."
		if options.Domain != "" {
			prefix = "$JS." + options.Domain + ".API."
		}
	}
	return strings.TrimSuffix(prefix, ".") + "." + name
}
