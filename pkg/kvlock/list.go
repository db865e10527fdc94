package kvlock

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/directget"
)

// List yields the slots of all keys that begin with prefix and a dot, and of all keys with the prefix "": those that are
// pending, done or failed, in the order in which they were last written. To see who computes one key, and since when,
// [Flight.Get] is enough.
//
// A key that is there all the time is yielded, and yielded again, later, when it is written meanwhile. What a lagging
// replica tells is old. A record that cannot be read is yielded with its key and the reason; an error with an empty slot
// is the last. The end of ctx ends it.
//
// Values are read too, 500 records at a time, from a consumer that is made for the call. The process needs the
// permission to make one, with subjects that begin with "$JS.API.CONSUMER.".
func (f *Flight) List(ctx context.Context, prefix string) iter.Seq2[Slot, error] {
	return func(yield func(Slot, error) bool) {
		for slot, err := range f.records(ctx, prefix) {
			if slot.Key == "" {
				yield(Slot{}, err)
				return
			}
			shown := slot
			if err == nil {
				shown, err = f.open(ctx, slot.readable())
			}
			switch {
			case err != nil:
				shown = Slot{Key: slot.Key, Revision: slot.Revision, Created: slot.Created}
			case shown.State == Absent:
				continue
			}
			if !yield(shown, err) {
				return
			}
		}
	}
}

// records yields what scan does of the store's own kind, decoded. One that cannot be decoded comes with its key and the
// reason; an error with an empty slot is the last.
func (s *store) records(ctx context.Context, prefix string) iter.Seq2[Slot, error] {
	return func(yield func(Slot, error) bool) {
		if err := checkPrefix(prefix); err != nil {
			yield(Slot{}, err)
			return
		}
		for m, err := range s.scan(ctx, prefix, false) {
			if err != nil {
				yield(Slot{}, err)
				return
			}
			slot, err := s.decode(m)
			if !errors.Is(err, ErrMismatch) && !yield(slot, err) {
				return
			}
		}
	}
}

// scanAhead is how many messages are fetched before they are asked for.
const scanAhead = 500

// scan yields the last messages of all keys under prefix, markers included, or only their headers. An error is the last
// that it yields.
//
// It goes over the stream with a consumer. For other requests for the next messages the server counts, each time, how many
// there are behind, so that a million keys took minutes with them.
func (s *store) scan(ctx context.Context, prefix string, headersOnly bool) iter.Seq2[directget.Message, error] {
	return func(yield func(directget.Message, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(s.ending, func() { cancel(context.Cause(s.ending)) })()
		stalled := time.AfterFunc(s.opTimeout, func() { cancel(errStalled) })
		defer stalled.Stop()
		fail := func(err error) {
			if cause := context.Cause(ctx); cause == nil || errors.Is(cause, errStalled) {
				err = s.unavailable(context.WithoutCancel(ctx), "list", []string{prefix}, err)
			} else {
				err = cause
			}
			yield(directget.Message{}, err)
		}
		messages, pending, err := s.messagesUnder(ctx, prefix, headersOnly)
		if err != nil {
			fail(err)
			return
		}
		defer messages.Stop()
		for pending > 0 {
			stalled.Reset(s.opTimeout)
			m, err := messages.Next(jetstream.NextContext(ctx))
			stalled.Stop()
			var meta *jetstream.MsgMetadata
			if err == nil {
				meta, err = m.Metadata()
			}
			if err != nil {
				fail(err)
				return
			}
			pending = meta.NumPending
			message := directget.Message{
				Subject: m.Subject(), Sequence: meta.Sequence.Stream, Time: meta.Timestamp, Header: m.Headers(), Data: m.Data(),
				AsOf: meta.Sequence.Stream,
			}
			if !strings.HasPrefix(message.Subject, s.prefix+reservedPrefix) && !yield(message, nil) {
				return
			}
		}
	}
}

// errStalled says that a scan got no message for too long.
var errStalled = errors.New("nothing came")

// messagesUnder makes a consumer of all keys under prefix, and says how many messages there are.
func (s *store) messagesUnder(ctx context.Context, prefix string, headersOnly bool) (jetstream.MessagesContext, uint64, error) {
	filter := s.prefix + ">"
	if prefix != "" {
		filter = s.prefix + prefix + ".>"
	}
	consumer, err := s.js.OrderedConsumer(ctx, s.stream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{filter}, HeadersOnly: headersOnly, InactiveThreshold: 2 * s.opTimeout,
	})
	if err != nil {
		return nil, 0, err //nolint:wrapcheck // wrapped by scan
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(scanAhead))
	if err != nil {
		return nil, 0, err //nolint:wrapcheck // as above
	}
	return messages, consumer.CachedInfo().NumPending, nil
}

// checkPrefix refuses what begins no key.
func checkPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return checkKey(prefix)
}
