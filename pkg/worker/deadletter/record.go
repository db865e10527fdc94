package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

const (
	// headerAfter is the header of a record that holds the last sequence of the job's
	// stream when the replay began.
	headerAfter = "Dead-Replay-After"

	// margin is subtracted from a duplicate window, for the time between a read and a publication.
	margin = 15 * time.Second

	// maxWalk is the largest number of jobs of one subject that are read to find one.
	maxWalk = 1000
)

// ticket is the known state of a letter's replay.
type ticket struct {
	begunAt   time.Time
	fresh     bool   // begun just now
	published bool   // the job has been published
	record    uint64 // sequence of the record, zero while there is none
}

func (s *Store) recordSubject(e *Entry) string {
	return fmt.Sprintf("%s.%s.%s.%d", s.cfg.DeadSubject, e.Letter.Stream, worker.TokenReplay, e.Sequence)
}

// begin writes the record of a replay, or continues a replay that was interrupted. Of two replays that begin at the same moment one writes
// the record, and the other continues from that record; both publish under one message ID.
func (s *Store) begin(ctx context.Context, e *Entry, again bool) (ticket, error) {
	const tries = 3
	for range tries {
		t, err := s.write(ctx, e)
		if !jsapi.IsRefused(err) {
			return t, err
		}
		t, err = s.look(ctx, e, again)
		if err != nil || t.published || t.record > 0 {
			return t, err
		}
	}
	return ticket{}, errors.New("deadletter: another process replays the same letter at this moment: try again")
}

func (s *Store) write(ctx context.Context, e *Entry) (ticket, error) {
	last, err := s.lastOf(ctx, e.Letter.Stream)
	if err != nil {
		return ticket{}, err
	}
	msg := nats.NewMsg(s.recordSubject(e))
	msg.Header.Set(worker.HeaderReplayState, worker.ReplayBegun)
	msg.Header.Set(headerAfter, strconv.FormatUint(last, 10))
	once, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	ack, err := s.js.PublishMsg(once, msg, jetstream.WithExpectLastSequencePerSubject(0))
	if err = s.unheard(ctx, err, s.cfg.Stream, msg.Subject); err != nil {
		return ticket{}, fmt.Errorf("deadletter: record the replay of letter %d: %w", e.Sequence, err)
	}
	return ticket{fresh: true, record: ack.Sequence}, nil
}

// targets are the streams that were looked up within a second. For each look-up the server lists the whole state of the stream.
type targets struct {
	mu    sync.Mutex
	begun time.Time
	known map[string]uint64 // a sequence that each has reached
}

// get returns a sequence that a stream has reached, if one is known.
func (t *targets) get(stream string) (uint64, bool) {
	const fresh = time.Second
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.begun) > fresh {
		t.begun, t.known = time.Now(), map[string]uint64{}
	}
	found, ok := t.known[stream]
	return found, ok
}

func (t *targets) put(stream string, last uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[stream] = last
}

// reach notes that a stream has stored a message. Later messages have greater sequences.
func (t *targets) reach(stream string, sequence uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.known[stream]; ok {
		t.known[stream] = max(last, sequence)
	}
}

// lastOf returns a sequence that a stream has reached.
func (s *Store) lastOf(ctx context.Context, stream string) (uint64, error) {
	if found, ok := s.targets.get(stream); ok {
		return found, nil
	}
	info, err := s.info(ctx, stream)
	if err != nil {
		return 0, err
	}
	s.targets.put(stream, info.State.LastSeq)
	return info.State.LastSeq, nil
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
	if again || sure && e.Letter.Worker != "" {
		return t, nil
	}
	// The program that works this job records nothing. The server still knows the message ID.
	info, err := s.info(ctx, e.Letter.Stream)
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
	t = ticket{begunAt: m.Time, published: m.Header.Get(worker.HeaderReplayState) == worker.ReplayWorked, record: m.Sequence}
	after, _ = strconv.ParseUint(m.Header.Get(headerAfter), 10, 64) // zero is the start of the stream
	return t, after, nil
}

// find looks for the job of a replay in the job's stream. sure is false if find could not read all messages that may be the job.
func (s *Store) find(ctx context.Context, e *Entry, t ticket, after uint64) (found, sure bool, err error) {
	for range maxWalk {
		m, err := s.get(ctx, e.Letter.Stream, jsapi.Query{NextBySubject: e.Letter.Subject, Sequence: after + 1})
		if m == nil || err != nil {
			return false, err == nil, err
		}
		if m.Header.Get(worker.HeaderReplayRecord) == strconv.FormatUint(t.record, 10) {
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
	return s.remove(ctx, s.cfg.Stream, t.record)
}

// finish removes the letter of a published job, then the record: the record prevents a second replay of the letter.
func (s *Store) finish(ctx context.Context, e *Entry, t ticket) error {
	if err := s.removeEntry(ctx, e); err != nil || t.record == 0 {
		return err
	}
	return s.forget(ctx, s.recordSubject(e), t.record)
}

// forget removes the record of a replay, and the note of a worker: a worker adds one only while the record exists. A purge of the subject
// would do both, but makes the server write a whole block of the stream anew. A record of 0 is unknown.
func (s *Store) forget(ctx context.Context, subject string, record uint64) error {
	const most = 3 // a record, a note, and the record of another replay that came too late
	for range most {
		if record > 0 {
			if err := s.remove(ctx, s.cfg.Stream, record); err != nil {
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
	_, text, isRecord := strings.Cut(record.Subject, "."+worker.TokenReplay+".")
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

// claim returns the headers with which the server refuses the replay of a unique job whose key another job has. For other jobs it returns
// none.
func (s *Store) claim(ctx context.Context, e *Entry) (map[string]string, error) {
	k, ok := keyOf(e)
	if !ok {
		return nil, nil
	}
	holder, err := s.get(ctx, e.Letter.Stream, jsapi.Query{LastBySubject: k.Any()})
	if err != nil {
		return nil, err
	}
	var last uint64
	if holder != nil {
		if !isRecordOf(e, k, holder) {
			return nil, &TakenError{Sequence: holder.Sequence, Subject: holder.Subject}
		}
		last = holder.Sequence
	}
	return map[string]string{
		jetstream.ExpectedLastSubjSeqHeader:     strconv.FormatUint(last, 10),
		jetstream.ExpectedLastSubjSeqSubjHeader: k.Any(),
	}, nil
}

// keyOf returns the key of a unique job.
func keyOf(e *Entry) (key.Key, bool) {
	if len(e.Letter.Header[worker.HeaderKeep]) == 0 {
		return key.Key{}, false
	}
	k, err := key.Of(e.Letter.Subject)
	return k, err == nil
}

// isRecordOf reports whether a message is the record of the end of this job.
func isRecordOf(e *Entry, k key.Key, m *jsapi.Message) bool {
	return m.Subject == k.Done() && m.Header.Get(worker.HeaderID) == e.Letter.ID &&
		m.Header.Get(worker.HeaderSequence) == strconv.FormatUint(e.Letter.Sequence, 10) &&
		worker.State(m.Header.Get(worker.HeaderState)) == worker.StateDead
}

// holderOf finds the job in whose favour the server refused a publication: another job, or this very one, published by an
// attempt whose answer was lost.
func (s *Store) holderOf(ctx context.Context, e *Entry, t ticket) (uint64, error) {
	place := e.Letter.Subject
	if k, unique := keyOf(e); unique {
		place = k.Any()
	}
	holder, err := s.get(ctx, e.Letter.Stream, jsapi.Query{LastBySubject: place})
	switch {
	case err != nil:
		return 0, err
	case holder == nil:
		return 0, fmt.Errorf("deadletter: letter %d: %w", e.Sequence, errRace)
	case holder.Header.Get(worker.HeaderReplayRecord) == strconv.FormatUint(t.record, 10):
		return holder.Sequence, nil
	}
	return 0, &TakenError{Sequence: holder.Sequence, Subject: holder.Subject}
}
