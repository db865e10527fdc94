package kvrecord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
)

// Bounds of the wait between two tries. A lost answer costs one try, an election of a leader takes seconds.
const (
	minWait = time.Millisecond
	maxWait = 250 * time.Millisecond
)

// Write is a record to be stored.
type Write struct {
	// Subject is where the record goes.
	Subject string

	// Data is the content.
	Data []byte

	// Header is stored with Data, beside the headers of this package.
	Header nats.Header

	// Over is the record to be replaced, as it was read or written. With the zero value, the record is stored only if the
	// subject has none.
	Over Record

	// TTL is how long the server keeps the record, in whole seconds; 0 is for ever.
	TTL time.Duration
}

func (w Write) validate() error {
	if w.TTL < 0 || w.TTL%time.Second != 0 {
		return fmt.Errorf("kvrecord: put %s: a TTL of %s: want whole seconds", w.Subject, w.TTL)
	}
	return nil
}

// Put stores a record if its subject still holds w.Over. The record that it returns can be the Over of the next write. It
// returns a [ConflictError] when the subject holds another record, or none, and otherwise an error that matches
// ErrUnavailable, ErrFull, ErrTooLarge, ErrClosed or ctx's cause. After ErrUnavailable, ErrClosed and the end of ctx the
// record may have been stored.
//
// One round trip. When the outcome is unknown, Put reads the record from the stream's leader and writes again, one round
// trip each. The second write confirms the record of this call if the read found it, and stores it otherwise. Put repeats
// both while the leader does not answer, or answers with an older record than was known before, as a deposed leader does.
// The first Put of a Stream asks when the stream was created, and does not wait for the answer.
func (s *Stream) Put(ctx context.Context, w Write) (Record, error) {
	if err := w.validate(); err != nil {
		return Record{}, err
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	s.asked.Do(func() { s.spawn(s.learnMade) })
	writer, base, asked := nuid.Next(), w.Over, false
	over := base // or a record of this call that was found
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		stored, err := s.send(ctx, w, over, writer)
		if err == nil {
			return stored, nil
		}
		if isPermanent(err) && !asked {
			return Record{}, s.refused(ctx, "put "+w.Subject, err)
		}
		asked = true
		found, readErr := s.latest(ctx, w.Subject)
		if readErr == nil {
			switch {
			case found.writer == writer: // maybe as a leader has it that was deposed
				over = found
			case found.Revision > base.Revision:
				return s.outcome(found, base, writer)
			case found.Revision == base.Revision:
				over = base
			default:
				if gone, err := s.isGone(ctx, base); err == nil && gone {
					return Record{}, &ConflictError{Found: found, Unknown: true}
				}
			}
		}
		if isPermanent(readErr) || !backoff.Pause(ctx, wait) {
			return Record{}, s.failed(ctx, "put "+w.Subject, errors.Join(err, readErr))
		}
	}
}

// PutOnce is Put with one request, for a caller that settles the outcome itself, by a later write. Its errors are those of
// Put. After any of them but ErrFull and ErrTooLarge the record may have been stored: ErrConflict means that the server
// refused the write, which around a change of leader is no proof. One round trip.
func (s *Stream) PutOnce(ctx context.Context, w Write) (Record, error) {
	if err := w.validate(); err != nil {
		return Record{}, err
	}
	stored, err := s.send(ctx, w, w.Over, nuid.Next())
	if err != nil {
		return Record{}, s.refused(ctx, "put "+w.Subject, err)
	}
	return stored, nil
}

// outcome returns the outcome of writer's write over a record, after a later record of another writer was found.
func (s *Stream) outcome(found, over Record, writer string) (Record, error) {
	if revision, ok := found.replacedBy(writer); ok {
		return Record{Subject: found.Subject, Revision: revision, writer: writer, made: found.made}, nil
	}
	return Record{}, &ConflictError{Found: found, Unknown: found.replaced != over.identity()}
}

// send sends a write over a record once.
func (s *Stream) send(ctx context.Context, w Write, over Record, writer string) (Record, error) {
	m := nats.NewMsg(s.api.Target(w.Subject))
	m.Data = w.Data
	maps.Copy(m.Header, w.Header)
	if s.cfg.Prepare != nil {
		s.cfg.Prepare(ctx, w.Subject, m.Header)
	}
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(over.Revision, 10))
	m.Header.Set(HeaderWriter, writer)
	m.Header.Set(HeaderReplaced, over.identity())
	if w.TTL > 0 {
		m.Header.Set(jetstream.MsgTTLHeader, strconv.FormatInt(int64(w.TTL/time.Second), 10)+"s")
	}
	sent := time.Now()
	revision, err := s.api.Publish(ctx, s.name, m)
	if err != nil {
		return Record{}, err
	}
	return Record{
		Subject: w.Subject, Revision: revision, Data: w.Data, Sent: sent, writer: writer, replaced: over.identity(), made: s.made.Load(),
	}, nil
}

// isGone reports whether a record was removed, by its TTL or with its stream. The caller has read from the leader that the
// subject holds no record, or an older one. A deposed leader may answer so although the record exists: its stream ends
// before the record.
func (s *Stream) isGone(ctx context.Context, r Record) (bool, error) {
	info, err := s.state(ctx, r.Subject)
	if err != nil {
		return false, err
	}
	made, before := info.Created.UnixNano(), cmp.Or(r.made, s.first.Load())
	switch known := s.learn(made); {
	case made < known: // of a stream that was deleted since
		return false, nil
	case before != 0 && before != made:
		return true, nil
	default:
		return info.State.Last >= r.Revision && info.State.Subjects[r.Subject] == 0, nil
	}
}

// learnMade asks when the stream was created. Without an answer, Put cannot notice that the stream was created again, and
// looks for a record of the former stream until the time of the operation is up.
func (s *Stream) learnMade() {
	if info, err := s.state(s.ended, ""); err == nil {
		s.learn(info.Created.UnixNano())
	}
}

// learn records when the stream was created, and returns the latest such time that is known.
func (s *Stream) learn(made int64) int64 {
	s.first.CompareAndSwap(0, made)
	for {
		known := s.made.Load()
		if made <= known || s.made.CompareAndSwap(known, made) {
			return max(made, known)
		}
	}
}

// info is the leader's answer to a question about its stream.
type info struct {
	Created time.Time `json:"created"`
	State   struct {
		Last     uint64            `json:"last_seq"`
		Subjects map[string]uint64 `json:"subjects"` // their numbers of messages
	} `json:"state"`
}

// state asks the leader for the state of the stream and, unless it is empty, of one subject, once.
func (s *Stream) state(ctx context.Context, subject string) (state info, err error) {
	err = s.api.Ask(ctx, "STREAM.INFO."+s.name, struct {
		Filter string `json:"subjects_filter,omitempty"`
	}{subject}, &state)
	return state, err
}
