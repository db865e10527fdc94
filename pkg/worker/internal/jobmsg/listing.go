package jobmsg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/directget"
	"github.com/expediter-io/expediter/internal/jsapi"
)

// maxNamed is the largest number of messages without a consumer that are counted by kind. For that the server lists their subjects.
const maxNamed = 10_000

// ErrNoDirect is returned when a stream does not allow reads of its messages from any replica.
var ErrNoDirect = errors.New("allow_direct is false, must be true to list its jobs")

// Stream is the state of a stream, as read by one call.
type Stream struct {
	Get    *directget.Getter
	Info   jetstream.StreamInfo
	Takers *Takers // nil if the stream was opened without them

	api   jsapi.Client
	known map[Kind]map[string]uint64 // the counts of messages that no consumer takes, by subject
}

// Open reads the state of a stream and, if taken is true, of its consumers. One round trip for each. Get.Close ends it.
func Open(ctx context.Context, nc *nats.Conn, api jsapi.Client, stream string, taken bool) (*Stream, error) {
	s := &Stream{Takers: &Takers{}, api: api, known: map[Kind]map[string]uint64{}}
	err := api.Ask(ctx, "STREAM.INFO."+stream, nil, &s.Info)
	if err == nil && !s.Info.Config.AllowDirect {
		err = ErrNoDirect
	}
	if err == nil && taken {
		s.Takers, err = ListTakers(ctx, api, stream)
	}
	if err == nil {
		s.Get, err = directget.New(nc, api.Prefix, nil)
	}
	return s, err
}

// Rest returns the number of messages that no consumer will deliver, or has delivered without an acknowledgement yet.
func (s *Stream) Rest() uint64 {
	return s.Info.State.Msgs - min(s.Info.State.Msgs, s.Takers.Pending+s.Takers.Held)
}

// Names lists the subjects of a kind of message, with their counts, once. It returns false when there may be too many.
func (s *Stream) Names(ctx context.Context, kind Kind) (names map[string]uint64, listed bool, err error) {
	if names, listed = s.known[kind]; listed {
		return names, true, nil
	}
	names = map[string]uint64{}
	if n := s.Rest(); n == 0 || n > maxNamed {
		return names, n == 0, nil
	}
	cfg := s.Info.Config
	for _, filter := range cfg.Subjects {
		first, _, _ := strings.Cut(filter, ".")
		switch {
		case strings.ContainsAny(first, "*>"): // these would be the subjects of all jobs
			return names, false, nil
		case KindOf(filter) != kind:
			continue
		}
		var info jetstream.StreamInfo
		if err := s.api.Ask(ctx, "STREAM.INFO."+cfg.Name, map[string]string{"subjects_filter": filter}, &info); err != nil {
			return nil, false, fmt.Errorf("worker: count %s of stream %s: %w", filter, cfg.Name, err)
		}
		maps.Copy(names, info.State.Subjects)
	}
	s.known[kind] = names
	return names, true, nil
}

// Few reads the messages of a kind that no consumer takes, from a sequence on, if they are known to be at most most. all reports whether
// it did.
func (s *Stream) Few(ctx context.Context, kind Kind, from uint64, most int) (messages []jsapi.Message, all bool, err error) {
	names, listed, err := s.Names(ctx, kind)
	if err != nil || !listed || len(names) > most {
		return nil, false, err
	}
	for _, count := range names {
		if count > 1 { // the subject has more messages than its last
			return nil, false, nil
		}
	}
	if messages, err = s.Get.Last(ctx, s.Info.Config.Name, slices.Collect(maps.Keys(names))); err != nil {
		return nil, false, fmt.Errorf("worker: read %d messages of stream %s: %w", len(names), s.Info.Config.Name, err)
	}
	messages = slices.DeleteFunc(messages, func(m jsapi.Message) bool { return m.Sequence < from })
	slices.SortFunc(messages, func(a, b jsapi.Message) int { return cmp.Compare(a.Sequence, b.Sequence) })
	return messages, true, nil
}

// Waiting returns a sequence before which no job is undelivered. It is behind the delivered messages if consumers take all subjects of
// jobs.
func (s *Stream) Waiting() uint64 {
	untaken := func(filter string) bool { return KindOf(filter) == Job && !s.Takers.cover(filter) }
	first := max(s.Info.State.FirstSeq, 1)
	if jobs := s.Info.Config.Subjects; len(jobs) > 0 && !slices.ContainsFunc(jobs, untaken) {
		first = max(first, s.Takers.First)
	}
	return first
}

// Read reads up to n messages from a sequence on, in the way that costs the server less, see [directget.Getter.Singly]. more reports
// whether others follow.
func (s *Stream) Read(ctx context.Context, from uint64, n int) (messages []jsapi.Message, more bool, err error) {
	const many = 10_000
	read := s.Get.From
	if state := s.Info.State; state.NumDeleted > 0 && state.NumSubjects > many && from > state.FirstSeq {
		read = s.Get.Singly
	}
	if messages, more, err = read(ctx, s.Info.Config.Name, from, n); err != nil {
		err = fmt.Errorf("worker: read stream %s from %d: %w", s.Info.Config.Name, from, err)
	}
	return messages, more, err
}

// OwnHeaders returns the headers of a message without those that the server adds to its answer.
func OwnHeaders(header nats.Header) nats.Header {
	for _, name := range []string{
		"Nats-Last-Sequence", "Nats-Num-Pending", "Nats-Sequence", "Nats-Stream", "Nats-Subject", "Nats-Time-Stamp", "Nats-UpTo-Sequence",
	} {
		delete(header, name)
	}
	return header
}
