package deadletter

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/jsretry"
	"github.com/expediter-io/expediter/pkg/worker"
)

// ReplayOptions configures a replay. The zero value is ready to use.
type ReplayOptions struct {
	// Again also publishes jobs that an earlier, interrupted replay may have published, see [ErrUnsettled]. Defaults to
	// false.
	Again bool

	// DryRun only reports the outcomes, and changes nothing. Defaults to false.
	DryRun bool

	// Each is called with the outcome of each letter, in turn. Defaults to none.
	Each func(Outcome)

	// Edit returns the payload to publish instead of the letter's, or an error, such as
	// [ErrSkip], for a letter that is to stay. It is called for one letter at a time, not always in order, and in a dry run as well. Defaults
	// to the letter's payload.
	Edit func(letter worker.DeadLetter) (payload []byte, err error)

	// Limit is the largest number of letters that are taken. Defaults to all.
	Limit int

	// Rate is the largest number of letters that are replayed in a second. Defaults to 50; -1 is no limit.
	Rate float64

	// Restart runs every step of the job again (see package step), even steps whose results are recorded. A job whose payload was edited
	// always does so, because the results were computed from another payload. Defaults to false: the job goes on at the step that failed.
	Restart bool
}

// DiscardOptions configures how letters are discarded. The zero value is ready to use.
type DiscardOptions struct {
	// DryRun only reports the outcomes, and changes nothing. Defaults to false.
	DryRun bool

	// Each is called with the outcome of each letter, in turn. Defaults to none.
	Each func(Outcome)

	// Limit is the largest number of letters that are taken. Defaults to all.
	Limit int
}

// Outcome is the outcome of one letter.
type Outcome struct {
	// Entry is the letter.
	Entry Entry

	// Err is the reason that the letter stays, nil when it was replayed or discarded.
	Err error

	// Sequence is the sequence of the replayed job in its stream. It is zero when the job was not replayed, and when an earlier replay had
	// published it.
	Sequence uint64
}

// Skipped reports whether the letter stayed on purpose: because of its kind or state, because another job has its key, or because Edit
// returned an error. Any other outcome with an error is a failure.
func (o Outcome) Skipped() bool {
	var taken *TakenError
	return errors.Is(o.Err, ErrSkip) || errors.Is(o.Err, ErrGone) || errors.Is(o.Err, ErrUnreadable) ||
		errors.Is(o.Err, ErrUnsettled) || errors.Is(o.Err, ErrNotFound) || errors.As(o.Err, &taken)
}

// Result counts the outcomes of letters.
type Result struct {
	// Done is the number of letters that were replayed or discarded, or in a dry run would be.
	Done int `json:"done"`

	// Failed is the number of letters that stay because the server refused a request.
	Failed int `json:"failed"`

	// Skipped is the number of letters that stay on purpose, see [Outcome.Skipped].
	Skipped int `json:"skipped"`
}

// Add counts an outcome.
func (r *Result) Add(o Outcome) {
	switch {
	case o.Err == nil:
		r.Done++
	case o.Skipped():
		r.Skipped++
	default:
		r.Failed++
	}
}

// Replay puts the jobs of the letters that the filter selects back into their streams, oldest first, and removes the
// letters. It works on up to 16 letters at once, whose jobs have different subjects: jobs of one subject keep their order. A job that
// is given up again gets a new letter, which this call does not replay. The package comment has the guarantees.
//
// A letter that cannot be replayed stays, is reported to Each and counted; the others go on. Replay ends with an error when the servers
// were not ready for a letter for a minute, ctx has ended, or the filter or the options are invalid. The result counts the letters until
// then, and another call continues there.
//
// Six round trips for each letter, and two in a second to look up the stream of the jobs.
func (s *Store) Replay(ctx context.Context, f Filter, opts ReplayOptions) (Result, error) {
	opts.Rate = cmp.Or(opts.Rate, 50)
	if opts.Rate < 0 && opts.Rate != -1 {
		return Result{}, fmt.Errorf("deadletter: ReplayOptions.Rate is %v: use a positive number, or -1 for no limit", opts.Rate)
	}
	limiter := rate.NewLimiter(rate.Limit(opts.Rate), 1)
	if opts.Rate == -1 || opts.DryRun {
		limiter.SetLimit(rate.Inf)
	}
	if edit := opts.Edit; edit != nil {
		var one sync.Mutex
		opts.Edit = func(letter worker.DeadLetter) ([]byte, error) {
			one.Lock()
			defer one.Unlock()
			return edit(letter)
		}
	}
	do := func(ctx context.Context, e *Entry) (uint64, error) { return s.replay(ctx, e, opts) }
	return s.each(ctx, f, pass{do: do, dry: opts.DryRun, limit: opts.Limit, limiter: limiter, report: opts.Each})
}

// Discard removes the letters that the filter selects, and so their jobs for good. It also removes a message that is stranded in a work
// queue; in any other stream the message stays for the other consumers. The errors are those of Replay. Two round trips for each letter.
func (s *Store) Discard(ctx context.Context, f Filter, opts DiscardOptions) (Result, error) {
	do := func(ctx context.Context, e *Entry) (uint64, error) {
		if opts.DryRun {
			return 0, nil
		}
		if e.Kind == KindStranded && e.Problem == nil {
			if queue, err := s.isWorkQueue(ctx, e.Letter.Stream); err != nil {
				return 0, err
			} else if queue {
				if err := s.remove(ctx, e.Letter.Stream, e.Letter.Sequence); err != nil {
					return 0, err
				}
			}
		}
		return 0, s.removeEntry(ctx, e)
	}
	unlimited := rate.NewLimiter(rate.Inf, 1)
	return s.each(ctx, f, pass{do: do, dry: opts.DryRun, limit: opts.Limit, limiter: unlimited, report: opts.Each})
}

// replay publishes the job of one letter again and removes the letter. It returns the sequence of the job in its stream.
func (s *Store) replay(ctx context.Context, e *Entry, opts ReplayOptions) (uint64, error) {
	if e.Problem != nil {
		return 0, e.Problem
	}
	payload := e.Letter.Payload
	if opts.Edit != nil {
		edited, err := opts.Edit(e.Letter)
		if err != nil {
			return 0, refusedError{fmt.Errorf("deadletter: edit letter %d: %w", e.Sequence, err)}
		}
		payload = edited
	}
	if opts.DryRun {
		return 0, s.rehearse(ctx, e, opts.Again)
	}
	if e.Kind == KindStranded {
		adopted, err := s.adopt(ctx, e)
		if err != nil {
			return 0, err
		}
		e = adopted
	}
	t, err := s.begin(ctx, e, opts.Again)
	if err != nil {
		return 0, err
	}
	if t.published {
		return 0, s.finish(ctx, e, t)
	}
	resume := !opts.Restart && bytes.Equal(payload, e.Letter.Payload)
	sequence, err := s.publish(ctx, e, t, payload, resume)
	if err != nil {
		return 0, errors.Join(err, s.withdraw(ctx, t, err))
	}
	return sequence, s.finish(ctx, e, t)
}

// rehearse returns the error with which a replay of the letter would fail.
func (s *Store) rehearse(ctx context.Context, e *Entry, again bool) error {
	if e.Kind == KindStranded {
		if queue, err := s.isWorkQueue(ctx, e.Letter.Stream); err != nil || !queue {
			return errors.Join(err, s.notQueue(e))
		}
	}
	if _, err := s.lastOf(ctx, e.Letter.Stream); err != nil { // the stream may be gone
		return err
	}
	t, err := s.look(ctx, e, again)
	if err != nil || t.published {
		return err
	}
	_, err = s.claim(ctx, e)
	return err
}

// publish stores the job in its stream, under a message ID that belongs to this letter.
func (s *Store) publish(ctx context.Context, e *Entry, t ticket, payload []byte, resume bool) (uint64, error) {
	l := &e.Letter
	msg := nats.NewMsg(l.Subject)
	msg.Data = payload
	for name, values := range l.Header {
		// Headers that the server reads were for the first publication: its expectations, schedules and roll-ups must not be repeated. The TTL
		// of the job still counts.
		if !strings.HasPrefix(name, "Nats-") || name == jetstream.MsgTTLHeader {
			msg.Header[name] = values
		}
	}
	replays, _ := strconv.Atoi(msg.Header.Get(worker.HeaderReplay)) // none before
	msg.Header.Set(worker.HeaderID, l.ID)
	msg.Header.Set(worker.HeaderReplay, strconv.Itoa(replays+1))
	msg.Header.Set(worker.HeaderReplayOf, fmt.Sprintf("%s:%d", s.cfg.Stream, e.Sequence))
	msg.Header.Set(worker.HeaderReplayRecord, strconv.FormatUint(t.record, 10))
	msg.Header.Set(nats.MsgIdHdr, messageID(s.cfg.Stream, e))
	msg.Header.Del(worker.HeaderResume)
	if resume {
		msg.Header.Set(worker.HeaderResume, l.Resume())
	}
	expect, err := s.claim(ctx, e)
	if err != nil {
		return 0, err
	}
	for name, value := range expect {
		msg.Header.Set(name, value)
	}
	once, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	// A process that continues an old replay looks for the job first, see look. So this message must not be sent long after the record was
	// written.
	ack, err := s.js.PublishMsg(once, msg, jetstream.WithExpectStream(l.Stream))
	err = s.unheard(ctx, err, l.Stream, msg.Subject)
	switch {
	case errors.Is(err, ErrNoStream):
		return 0, err
	case jsapi.IsRefused(err):
		// Another job has the key, or this job has it after a lost answer.
		return s.holderOf(ctx, e, t)
	case err != nil:
		return 0, fmt.Errorf("deadletter: publish to %s: %w", l.Subject, err)
	}
	s.targets.reach(l.Stream, ack.Sequence)
	return ack.Sequence, nil
}

// messageID returns an ID that is the same in every attempt to replay one letter, and differs between letters, even those of a stream that
// was deleted and made again.
func messageID(stream string, e *Entry) string {
	return fmt.Sprintf("replay:%s:%d:%d", stream, e.Sequence, e.StoredAt.UnixNano())
}

// refusedError is an error of one letter only, whatever it wraps.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// isFatal reports whether all other letters would fail with the error as well: the servers are not ready, or ctx has ended.
func isFatal(err error) bool {
	if _, own := errors.AsType[refusedError](err); own {
		return false
	}
	for _, fatal := range []error{context.Canceled, nats.ErrConnectionClosed, nats.ErrReconnectBufExceeded} {
		if errors.Is(err, fatal) {
			return true
		}
	}
	return jsretry.Transient(err) && !jsapi.IsFull(err)
}

// removeEntry removes an entry and its parts.
func (s *Store) removeEntry(ctx context.Context, e *Entry) error {
	return s.remove(ctx, s.cfg.Stream, append([]uint64{e.Sequence}, e.Letter.Parts...)...)
}

func (s *Store) isWorkQueue(ctx context.Context, stream string) (bool, error) {
	info, err := s.info(ctx, stream)
	return info.Config.Retention == jetstream.WorkQueuePolicy, err
}
