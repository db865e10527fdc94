package deadletter

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
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
	// [ErrSkip], for a letter that is to stay. It is called for one letter at a time, not always in order, and in a dry run as well. After
	// a panic the letter stays. A job whose payload was edited runs every step again (see package step), because the recorded results were
	// computed from another one. Defaults to the letter's payload, with which the job goes on at the step that failed.
	Edit func(letter worker.DeadLetter) (payload []byte, err error)

	// Limit is the largest number of letters that are taken. Defaults to all.
	Limit int

	// Rate is the largest number of letters that are replayed in a second. Defaults to 50; -1 is no limit.
	Rate float64
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
// is given up again gets a new letter, which this call does not replay. In a stream that is not a work queue all consumers get the job
// again, under its ID. The package comment has the guarantees.
//
// A letter that cannot be replayed stays, is reported to Each and counted; the others go on. Replay ends with an error when the servers
// were not ready for a letter for a minute, ctx has ended, or the filter or the options are invalid. The result counts the letters until
// then, and another call continues there.
//
// Seven round trips for each letter, and two in a second to look up the stream of the jobs.
func (s *Store) Replay(ctx context.Context, f Filter, opts ReplayOptions) (Result, error) {
	opts.Rate = cmp.Or(opts.Rate, 50)
	if !(opts.Rate > 0) && opts.Rate != -1 {
		return Result{}, fmt.Errorf("deadletter: ReplayOptions.Rate is %v: use a positive number, or -1 for no limit", opts.Rate)
	}
	limiter := rate.NewLimiter(rate.Limit(opts.Rate), 1)
	if opts.Rate == -1 || opts.DryRun {
		limiter.SetLimit(rate.Inf)
	}
	if edit := opts.Edit; edit != nil {
		var one sync.Mutex
		opts.Edit = func(letter worker.DeadLetter) (payload []byte, err error) {
			one.Lock()
			defer one.Unlock()
			err = errors.New("ReplayOptions.Edit called runtime.Goexit")
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() {
					if value := recover(); value != nil {
						err = fmt.Errorf("ReplayOptions.Edit panicked: %s", redact.Value(value))
					}
				}()
				payload, err = edit(letter)
			}()
			<-done
			return payload, redact.Safe(err)
		}
	}
	do := func(ctx context.Context, e *Entry) (uint64, error) { return s.replay(ctx, e, opts) }
	return s.each(ctx, f, pass{do: do, dry: opts.DryRun, limit: opts.Limit, limiter: limiter, report: opts.Each})
}

// Discard removes the letters that the filter selects, and so their jobs for good. It also removes a message that is stranded in a work
// queue; in any other stream the message stays for the other consumers. A letter whose replay is
// under way stays, with [ErrSkip]. The errors are those of Replay. Five round trips for each letter.
func (s *Store) Discard(ctx context.Context, f Filter, opts DiscardOptions) (Result, error) {
	do := func(ctx context.Context, e *Entry) (uint64, error) {
		if opts.DryRun {
			return 0, nil
		}
		if e.Kind == KindStranded && e.Problem == nil {
			if queue, err := s.isWorkQueue(ctx, e.DeadLetter.Stream); err != nil {
				return 0, err
			} else if queue {
				if _, err := s.remove(ctx, e.DeadLetter.Stream, e.DeadLetter.Sequence); err != nil {
					return 0, err
				}
			}
		}
		return 0, s.discard(ctx, e)
	}
	unlimited := rate.NewLimiter(rate.Inf, 1)
	return s.each(ctx, f, pass{do: do, dry: opts.DryRun, limit: opts.Limit, limiter: unlimited, report: opts.Each})
}

// replay publishes the job of one letter again and removes the letter. It returns the sequence of the job in its stream.
func (s *Store) replay(ctx context.Context, e *Entry, opts ReplayOptions) (uint64, error) {
	if e.Problem != nil {
		return 0, e.Problem
	}
	payload := e.DeadLetter.Payload
	if opts.Edit != nil {
		edited, err := opts.Edit(e.DeadLetter)
		if err != nil {
			return 0, fmt.Errorf("deadletter: %w letter %d: %w", errEdit, e.Sequence, err)
		}
		payload = edited
	}
	resume := bytes.Equal(payload, e.DeadLetter.Payload)
	msg, unfit := s.message(ctx, e, payload, resume)
	if opts.DryRun || unfit != nil {
		return 0, s.rehearse(ctx, e, unfit, opts)
	}
	if e.Kind == KindStranded {
		var err error
		if e, err = s.adopt(ctx, e); err != nil {
			return 0, err
		}
		if msg, err = s.message(ctx, e, payload, resume); err != nil {
			return 0, err
		}
	}
	t, err := s.begin(ctx, e, jobmsg.ReplayBegun, opts.Again)
	if err != nil {
		return 0, err
	}
	if t.published {
		return 0, s.finish(ctx, e, t)
	}
	if err := s.confirm(ctx, e, t); err != nil {
		return 0, err
	}
	sequence, err := s.publish(ctx, e, t, msg)
	if err != nil {
		return 0, errors.Join(err, s.withdraw(ctx, t, err))
	}
	return sequence, s.finish(ctx, e, t)
}

// rehearse returns the error with which a replay of the letter would fail. unfit is that of its message. It finishes a replay that was
// interrupted behind its publication, except in a dry run.
func (s *Store) rehearse(ctx context.Context, e *Entry, unfit error, opts ReplayOptions) error {
	t, err := s.look(ctx, e, opts.Again)
	switch {
	case unfit != nil && (err != nil || !t.published):
		return unfit
	case err != nil, t.published && opts.DryRun:
		return err
	case t.published:
		return s.finish(ctx, e, t)
	}
	target, err := s.target(ctx, e.DeadLetter.Stream)
	if err == nil {
		_, _, err = s.claim(ctx, e, ticket{}, target.Config)
	}
	return err
}

// message returns the job of a letter as a replay publishes it. The record and the expectations are as long as they can be: publish sets
// them. The error is one that no replay of the letter can avoid.
func (s *Store) message(ctx context.Context, e *Entry, payload []byte, resume bool) (*nats.Msg, error) {
	l := &e.DeadLetter
	target, err := s.target(ctx, l.Stream)
	if err == nil && e.Kind == KindStranded && target.Config.Retention != jetstream.WorkQueuePolicy {
		err = fmt.Errorf("%w: stream %s is no work queue: its message %d may be for other consumers as well, which would all get it again",
			ErrSkip, l.Stream, l.Sequence)
	}
	if err := cmp.Or(err, checkTakes(target.Config, l.Subject)); err != nil {
		return nil, err
	}
	if strings.ContainsRune(l.Subject+l.ID, utf8.RuneError) {
		return nil, fmt.Errorf("deadletter: letter %d: the subject %.256q or the ID %.64q of its job is not known exactly, "+
			"since it was not UTF-8: publish the payload by hand and discard the letter", e.Sequence, l.Subject, l.ID)
	}
	msg := nats.NewMsg(l.Subject)
	msg.Data = payload
	for name, values := range l.Header {
		// Headers that the server reads were for the first publication: its expectations, schedules and roll-ups must not be repeated. The TTL
		// of the job still counts.
		if strings.HasPrefix(name, "Nats-") && name != jetstream.MsgTTLHeader {
			continue
		}
		if err := validate.HeaderName(name); err != nil {
			return nil, fmt.Errorf("deadletter: letter %d: %w, or publish the payload by hand and discard the letter", e.Sequence, err)
		}
		msg.Header[name] = values
	}
	replays, _ := strconv.Atoi(msg.Header.Get(worker.HeaderReplay)) // none before
	msg.Header.Set(worker.HeaderID, l.ID)
	msg.Header.Set(worker.HeaderReplay, strconv.Itoa(replays+1))
	msg.Header.Set(worker.HeaderReplayOf, fmt.Sprintf("%s:%d", s.cfg.Stream, e.Sequence))
	msg.Header.Set(jobmsg.HeaderReplayRecord, strconv.FormatUint(math.MaxUint64, 10))
	msg.Header.Set(nats.MsgIdHdr, messageID(s.cfg.Stream, e))
	msg.Header.Set(jetstream.ExpectedStreamHeader, l.Stream)
	msg.Header.Del(worker.HeaderResume)
	if resume {
		msg.Header.Set(worker.HeaderResume, l.Resume())
	}
	if k, unique := keyOf(e); unique {
		maps.Copy(msg.Header, expectation(k, math.MaxUint64))
	}
	limit := s.js.Conn().MaxPayload()
	if of := int64(target.Config.MaxMsgSize); of > 0 {
		limit = min(limit, of)
	}
	if size := int64(msg.Size() - len(msg.Subject)); size > limit {
		return nil, fmt.Errorf("deadletter: letter %d: the job has %d bytes with the headers of a replay, and its stream takes %d: "+
			"raise max_payload of the server or max_msg_size of the stream, or replay a shorter payload (ReplayOptions.Edit): %w",
			e.Sequence, size, limit, nats.ErrMaxPayload)
	}
	return msg, nil
}

// publish stores the job in its stream, under a message ID that belongs to this letter.
func (s *Store) publish(ctx context.Context, e *Entry, t ticket, msg *nats.Msg) (uint64, error) {
	l := &e.DeadLetter
	target, err := s.target(ctx, l.Stream)
	if err != nil {
		return 0, err
	}
	expect, published, err := s.claim(ctx, e, t, target.Config)
	if err != nil || published > 0 {
		return published, err
	}
	maps.Copy(msg.Header, expect)
	msg.Header.Set(jobmsg.HeaderReplayRecord, strconv.FormatUint(t.record, 10))
	once, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	// A process that continues an old replay looks for the job first, see look. So this message must not be sent long after the record was
	// written.
	ack, err := s.js.PublishMsg(once, msg)
	err = s.unheard(ctx, err, l.Stream, msg.Subject)
	switch {
	case errors.Is(err, ErrNoStream):
		return 0, err
	case jsapi.IsRefused(err):
		// Another job has the key, or this job has it after a lost answer.
		if _, published, err = s.claim(ctx, e, t, target.Config); err == nil && published == 0 {
			err = fmt.Errorf("deadletter: letter %d: the job's key changed at this moment: try again", e.Sequence)
		}
		return published, err
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

// errEdit is in the error of Edit, which is of one letter only, whatever it wraps.
var errEdit = errors.New("edit")

// isFatal reports whether all other letters would fail with the error as well: the servers are not ready, or ctx has ended.
func isFatal(err error) bool {
	if errors.Is(err, errEdit) {
		return false
	}
	for _, fatal := range []error{context.Canceled, nats.ErrConnectionClosed, nats.ErrReconnectBufExceeded} {
		if errors.Is(err, fatal) {
			return true
		}
	}
	return jsapi.IsTransient(err) && !jsapi.IsFull(err)
}

// errRemoval is in the error behind a removal that may have been done.
var errRemoval = errors.New("deadletter: not all is removed")

// removeEntry removes an entry and its parts. Of several calls at the same time one counts the entry: the others get [ErrNotFound].
func (s *Store) removeEntry(ctx context.Context, e *Entry) error {
	removed, err := s.remove(ctx, s.cfg.Stream, e.Sequence)
	for _, part := range e.DeadLetter.Parts {
		if err == nil {
			_, err = s.remove(ctx, s.cfg.Stream, part)
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errRemoval, err)
	case !removed:
		return fmt.Errorf("%w: another call has removed %d from stream %s at this moment", ErrNotFound, e.Sequence, s.cfg.Stream)
	}
	return nil
}

func (s *Store) isWorkQueue(ctx context.Context, stream string) (bool, error) {
	info, err := s.target(ctx, stream)
	return info.Config.Retention == jetstream.WorkQueuePolicy, err
}
