package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

const (
	// headerAfter is the header of a record that holds the last sequence of the job's
	// stream when the replay began.
	headerAfter = "Dead-Replay-After"

	// stateDiscarded is the state of the record that a discard writes first, so that no replay of the letter begins.
	stateDiscarded = "discarded"

	// margin is subtracted from a duplicate window, for the time between a read and a publication.
	margin = 15 * time.Second

	// maxWalk is the largest number of jobs of one subject that are read to find one.
	maxWalk = 1000
)

// ticket is the known state of a letter's replay.
type ticket struct {
	begunAt   time.Time
	discarded bool   // the record is that of a discard
	fresh     bool   // begun just now
	published bool   // the job has been published
	record    uint64 // sequence of the record, zero while there is none
}

func (s *Store) recordSubject(e *Entry) string {
	return fmt.Sprintf("%s.%s.%s.%d", s.cfg.DeadSubject, e.DeadLetter.Stream, jobmsg.TokenReplay, e.Sequence)
}

// begin writes the record of a replay or a discard, or continues one that was interrupted. Of two that begin at the same moment one writes
// the record, and the other finds it. Replays that share a record publish under one message ID.
func (s *Store) begin(ctx context.Context, e *Entry, state string, again bool) (ticket, error) {
	const tries = 10
	for range tries {
		t, err := s.write(ctx, e, state)
		if !jsapi.IsRefused(err) {
			return t, err
		}
		t, err = s.look(ctx, e, again)
		if err != nil || t.published || t.record > 0 {
			return t, err
		}
		// The record is gone: usually its letter is, too; otherwise the job's stream refused the job.
		if letter, err := s.get(ctx, s.cfg.Stream, jsapi.Query{Sequence: e.Sequence}); err != nil || letter == nil {
			return t, cmp.Or(err, fmt.Errorf("%w: another call has letter %d", ErrNotFound, e.Sequence))
		}
	}
	return ticket{}, errors.New("deadletter: another process replays the same letter at this moment: try again")
}

func (s *Store) write(ctx context.Context, e *Entry, state string) (ticket, error) {
	msg := nats.NewMsg(s.recordSubject(e))
	msg.Header.Set(jobmsg.HeaderReplayState, state)
	if state != stateDiscarded { // the stream of a discarded job may be gone
		target, err := s.target(ctx, e.DeadLetter.Stream)
		if err != nil {
			return ticket{}, err
		}
		msg.Header.Set(headerAfter, strconv.FormatUint(target.State.LastSeq, 10))
	}
	once, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	ack, err := s.js.PublishMsg(once, msg, jetstream.WithExpectLastSequencePerSubject(0))
	if err = s.unheard(ctx, err, s.cfg.Stream, msg.Subject); err != nil {
		return ticket{}, fmt.Errorf("deadletter: record the change of letter %d: %w", e.Sequence, err)
	}
	return ticket{fresh: true, record: ack.Sequence}, nil
}

// confirm returns [ErrNotFound] when a discard has the letter: its record was there first, or it removed the letter and its record before
// this replay wrote one. One round trip.
func (s *Store) confirm(ctx context.Context, e *Entry, t ticket) error {
	letter, err := s.get(ctx, s.cfg.Stream, jsapi.Query{Sequence: e.Sequence})
	discarded := letter == nil
	if err == nil && t.discarded && letter != nil {
		discarded, err = s.recent(ctx, t)
	}
	if err == nil && t.fresh && discarded {
		_, err = s.remove(ctx, s.cfg.Stream, t.record)
	}
	if err == nil && discarded {
		err = fmt.Errorf("%w: another call has letter %d", ErrNotFound, e.Sequence)
	}
	return err
}

// recent reports whether the call that wrote a record may still be at its letter. An older call was interrupted. One round trip.
func (s *Store) recent(ctx context.Context, t ticket) (bool, error) {
	now, err := s.Now(ctx)
	return now.Sub(t.begunAt) < patience+s.cfg.RequestTimeout, err
}

// discard removes a letter, unless a replay has begun to put its job back. The record of whichever comes first keeps the other away.
func (s *Store) discard(ctx context.Context, e *Entry) error {
	if e.Kind != KindFailed || e.Problem != nil {
		return s.removeEntry(ctx, e)
	}
	t, err := s.begin(ctx, e, stateDiscarded, true)
	if jsapi.IsFull(err) { // no replay can write its record either
		t, err = s.look(ctx, e, true)
	}
	switch {
	case jsapi.IsNoStream(err), err == nil && t.record == 0:
		return s.removeEntry(ctx, e)
	case err != nil:
		return err
	case !t.fresh && (t.published || !t.discarded):
		switch recent, err := s.recent(ctx, t); {
		case err != nil:
			return err
		case recent:
			return fmt.Errorf("%w: a replay of letter %d began at %s: its job may run by now. Discard the letter later if it is still there",
				ErrSkip, e.Sequence, t.begunAt.UTC().Format(time.RFC3339))
		case t.published:
			return cmp.Or(s.finish(ctx, e, t), fmt.Errorf("%w: a replay has put the job of letter %d back", ErrNotFound, e.Sequence))
		}
	}
	return s.finish(ctx, e, t)
}

// targets are the streams that were looked up within a second. For each look-up the server lists the whole state of the stream.
type targets struct {
	mu    sync.Mutex
	begun time.Time
	known map[string]jetstream.StreamInfo
}

// target returns the state of a stream. It is at most a second old.
func (s *Store) target(ctx context.Context, stream string) (jetstream.StreamInfo, error) {
	const fresh = time.Second
	t := &s.targets
	t.mu.Lock()
	if time.Since(t.begun) > fresh {
		t.begun, t.known = time.Now(), map[string]jetstream.StreamInfo{}
	}
	info, ok := t.known[stream]
	t.mu.Unlock()
	if ok {
		return info, nil
	}
	info, err := s.info(ctx, stream)
	if err == nil {
		t.mu.Lock()
		t.known[stream] = info
		t.mu.Unlock()
	}
	return info, err
}

// reach notes that a stream has stored a message. Later messages have greater sequences.
func (t *targets) reach(stream string, sequence uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if info, ok := t.known[stream]; ok {
		info.State.LastSeq = max(info.State.LastSeq, sequence)
		t.known[stream] = info
	}
}

// look finds out whether an earlier replay of a letter published the job. It looks for the job in its stream, and then for
// the note of a worker. That order matters: a worker writes the note before it removes the job from the stream. If look finds neither, the
// job was never published, or was removed unworked.
func (s *Store) look(ctx context.Context, e *Entry, again bool) (ticket, error) {
	t, after, err := s.recorded(ctx, e)
	if err != nil || t.published || t.record == 0 {
		return t, err
	}
	found, sure, err := s.find(ctx, e, t, after)
	if err != nil || found {
		t.published = found
		return t, err
	}
	later, _, err := s.recorded(ctx, e)
	if err != nil || later.published || later.record != t.record {
		return later, err
	}
	if again || sure && e.DeadLetter.Worker != "" {
		return t, nil
	}
	// The program that works this job records nothing. The server still knows the message ID.
	info, err := s.info(ctx, e.DeadLetter.Stream)
	if err != nil || info.TimeStamp.Sub(t.begunAt) < info.Config.Duplicates-margin {
		return t, err
	}
	return t, fmt.Errorf("%w: letter %d, begun at %s: replay it again if it may run twice, or discard it",
		ErrUnsettled, e.Sequence, t.begunAt.UTC().Format(time.RFC3339))
}

// recorded reads the record of a letter's replay, and the sequence after which the job comes.
func (s *Store) recorded(ctx context.Context, e *Entry) (t ticket, after uint64, err error) {
	m, err := s.get(ctx, s.cfg.Stream, jsapi.Query{LastBySubject: s.recordSubject(e)})
	if m == nil || err != nil {
		return ticket{}, 0, err
	}
	state := m.Header.Get(jobmsg.HeaderReplayState)
	t = ticket{begunAt: m.Time, discarded: state == stateDiscarded, published: state == jobmsg.ReplayWorked, record: m.Sequence}
	after, _ = strconv.ParseUint(m.Header.Get(headerAfter), 10, 64) // zero is the start of the stream
	return t, after, nil
}

// find looks for the job of a replay in the job's stream. sure is false if find could not read all messages that may be the job.
func (s *Store) find(ctx context.Context, e *Entry, t ticket, after uint64) (found, sure bool, err error) {
	for range maxWalk {
		m, err := s.get(ctx, e.DeadLetter.Stream, jsapi.Query{NextBySubject: e.DeadLetter.Subject, Sequence: after + 1})
		if m == nil || err != nil {
			return false, err == nil, err
		}
		if m.Header.Get(jobmsg.HeaderReplayRecord) == strconv.FormatUint(t.record, 10) {
			return true, true, nil
		}
		after = m.Sequence
	}
	return false, false, nil
}

// withdraw removes the record of a replay whose publication the server refused. When the server did not answer the record
// stays.
func (s *Store) withdraw(ctx context.Context, t ticket, reason error) error {
	var taken *TakenError
	certain := errors.As(reason, &taken) || errors.Is(reason, ErrNoStream) || errors.Is(reason, nats.ErrMaxPayload) ||
		jsapi.IsAnswer(reason) && !jsapi.IsUnknown(reason)
	if !t.fresh || !certain {
		return nil
	}
	_, err := s.remove(ctx, s.cfg.Stream, t.record)
	return err
}

// finish removes the letter of a published job, then the record: the record prevents a second replay of the letter.
func (s *Store) finish(ctx context.Context, e *Entry, t ticket) error {
	err := s.removeEntry(ctx, e)
	if err != nil && !errors.Is(err, ErrNotFound) || t.record == 0 {
		return err
	}
	if failed := s.forget(ctx, s.recordSubject(e), t.record); failed != nil && err == nil {
		err = fmt.Errorf("%w: %w", errRemoval, failed)
	}
	return err
}

// forget removes the record of a replay, and the note of a worker: a worker adds one only while the record exists. A purge of the subject
// would do both, but makes the server rewrite a whole block of the stream. A record of 0 is unknown.
func (s *Store) forget(ctx context.Context, subject string, record uint64) error {
	const most = 3 // a record, a note, and the record of another replay that came too late
	for range most {
		if record > 0 {
			if _, err := s.remove(ctx, s.cfg.Stream, record); err != nil {
				return fmt.Errorf("deadletter: remove the record of a replay, %s: %w", subject, err)
			}
		}
		left, err := s.get(ctx, s.cfg.Stream, jsapi.Query{LastBySubject: subject})
		if left == nil || err != nil {
			return err
		}
		record = left.Sequence
	}
	return nil
}

// sweep removes the record of a discarded letter, and the record of a replay that was interrupted after the removal of its letter, as by a
// lost answer. A record is stored after its letter, so a leader with a later message but without the letter has removed the letter. One
// round trip, and two more for the removal.
func (s *Store) sweep(ctx context.Context, record *jsapi.Message) error {
	_, text, isRecord := strings.Cut(record.Subject, "."+jobmsg.TokenReplay+".")
	letter, _ := strconv.ParseUint(text, 10, 64) // 0 is no letter
	if !isRecord || letter == 0 {
		return nil
	}
	next, err := s.get(ctx, s.cfg.Stream, jsapi.Query{NextBySubject: ">", Sequence: letter})
	if err != nil || next == nil || next.Sequence <= letter {
		return err
	}
	return s.forget(ctx, record.Subject, record.Sequence)
}

// claim finds out whether the letter's job may be published. expect has the headers with which the server refuses the replay of a unique
// job whose key another job has by then; other jobs have none. If the replay has published the job already, published is its sequence.
// The error is a [*TakenError] when another job has the key, or the subject in a stream that takes one message for each.
func (s *Store) claim(
	ctx context.Context, e *Entry, t ticket, cfg jetstream.StreamConfig,
) (expect nats.Header, published uint64, err error) {
	k, unique := keyOf(e)
	place := k.Any()
	if !unique {
		if place = e.DeadLetter.Subject; !cfg.DiscardNewPerSubject || cfg.MaxMsgsPerSubject != 1 {
			return nil, 0, nil
		}
	}
	var last uint64
	switch holder, err := s.get(ctx, e.DeadLetter.Stream, jsapi.Query{LastBySubject: place}); {
	case err != nil:
		return nil, 0, err
	case holder == nil, e.Kind == KindStranded && holder.Sequence == e.DeadLetter.Sequence:
	case t.record > 0 && holder.Header.Get(jobmsg.HeaderReplayRecord) == strconv.FormatUint(t.record, 10):
		published = holder.Sequence
	case unique && isRecordOf(e, k, holder):
		last = holder.Sequence
	default:
		return nil, 0, &TakenError{Sequence: holder.Sequence, Subject: holder.Subject}
	}
	if unique {
		expect = expectation(k, last)
	}
	return expect, published, nil
}

// expectation returns the headers of a message that is stored only if the last message of the key is the given one.
func expectation(k jobmsg.Key, last uint64) nats.Header {
	return nats.Header{
		jetstream.ExpectedLastSubjSeqHeader:     {strconv.FormatUint(last, 10)},
		jetstream.ExpectedLastSubjSeqSubjHeader: {k.Any()},
	}
}

// keyOf returns the key of a unique job.
func keyOf(e *Entry) (jobmsg.Key, bool) {
	if len(e.DeadLetter.Header[worker.HeaderKeep]) == 0 {
		return jobmsg.Key{}, false
	}
	k, err := jobmsg.KeyOf(e.DeadLetter.Subject)
	return k, err == nil
}

// isRecordOf reports whether a message is the record of the end of this job.
func isRecordOf(e *Entry, k jobmsg.Key, m *jsapi.Message) bool {
	return m.Subject == k.Done() && m.Header.Get(worker.HeaderID) == e.DeadLetter.ID &&
		m.Header.Get(worker.HeaderSequence) == strconv.FormatUint(e.DeadLetter.Sequence, 10) &&
		worker.State(m.Header.Get(worker.HeaderState)) == worker.StateDead
}
