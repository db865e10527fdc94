package kvrecord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/directget"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/retry"
)

// Bounds of the wait between two tries. A lost answer costs one try, an election of a leader takes seconds.
const (
	minWait = time.Millisecond
	maxWait = 250 * time.Millisecond
)

// Write is a record to be stored.
type Write struct {
	// Subject is the subject of the record, of at most 2,048 bytes.
	Subject string

	// Data is the content.
	Data []byte

	// Header is stored with Data, beside the headers of this package.
	Header nats.Header

	// Over is the record to be replaced, as it was read or written. With the zero value, the write is stored only if the subject has no
	// record.
	Over Record

	// TTL is the time for which the server keeps the record, in whole seconds, at most 100 years; 0 is for ever.
	TTL time.Duration
}

const (
	// maxTTL bounds a TTL: the server adds it to the time, in nanoseconds.
	maxTTL = 100 * 365 * 24 * time.Hour

	// maxSubject bounds a subject, in bytes. The server closes the connection of a client whose line in its protocol is longer than 4,096.
	maxSubject = 2048
)

func checkSubject(subject string) error {
	if len(subject) > maxSubject {
		return fmt.Errorf("kvrecord: subject %s: want at most %d bytes", redact.Quote(subject), maxSubject)
	}
	return nil
}

func (w Write) validate() error {
	if w.TTL < 0 || w.TTL > maxTTL || w.TTL%time.Second != 0 {
		return fmt.Errorf("kvrecord: put %s: a TTL of %s: want whole seconds, at most %s", redact.Quote(w.Subject), w.TTL, maxTTL)
	}
	return checkSubject(w.Subject)
}

// Put stores a record if its subject still holds w.Over. The record that it returns can be the Over of the next write. It
// returns a [ConflictError] when the subject holds another record, or none, and otherwise an error that matches
// ErrUnavailable, ErrFull, ErrTooLarge, ErrClosed or ctx's cause. After ErrUnavailable, ErrClosed and the end of ctx the
// record may have been stored.
//
// One round trip. When the outcome is unknown, Put reads the record from the stream's leader and writes again, one round
// trip each. The second write confirms the record of this call if the read found it, and stores it otherwise. Put repeats both while the
// leader does not answer, or answers with an older record than was known before, as a deposed leader does. The first Put of a Stream also
// asks for the time at which the stream was created, without waiting for the answer.
func (s *Stream) Put(ctx context.Context, w Write) (Record, error) {
	if err := w.validate(); err != nil {
		return Record{}, err
	}
	s.asked.Do(func() { s.spawn(s.learnMade) })
	writer, base, begun := nuid.Next(), w.Over, time.Now()
	// Nearly all writes end here. The request has its own bound; a second bound for the operation would cost a tenth of the time.
	stored, err := s.send(ctx, w, base, writer)
	switch {
	case err == nil:
		return stored, nil
	case isPermanent(err):
		return Record{}, s.refused(ctx, "put "+redact.Quote(w.Subject), err)
	}
	ctx, cancel := s.boundSince(ctx, begun)
	defer cancel()
	over := base // the record to replace: base, or a found record of this call
	for n := 0; ; n++ {
		found, readErr := s.latest(ctx, w.Subject)
		if readErr == nil {
			switch {
			case found.writer == writer: // the answer may be that of a deposed leader
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
		if isPermanent(readErr) || !retry.Backoff(ctx, n, minWait, maxWait) {
			return Record{}, s.failed(ctx, "put "+redact.Quote(w.Subject), errors.Join(err, readErr))
		}
		if stored, err = s.send(ctx, w, over, writer); err == nil {
			return stored, nil
		}
	}
}

// PutOnce is Put with one request, for a caller that settles the outcome itself, by a later write. Its errors are those of
// Put. After any of them but ErrFull and ErrTooLarge the record may have been stored: ErrConflict means that the server refused the write,
// but around a change of leader the write may have been stored all the same. One round trip.
func (s *Stream) PutOnce(ctx context.Context, w Write) (Record, error) {
	if err := w.validate(); err != nil {
		return Record{}, err
	}
	stored, err := s.send(ctx, w, w.Over, nuid.Next())
	if err != nil {
		return Record{}, s.refused(ctx, "put "+redact.Quote(w.Subject), err)
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
	m := &nats.Msg{Subject: s.api.Target(w.Subject), Data: w.Data, Header: make(nats.Header, 4+len(w.Header))}
	maps.Copy(m.Header, w.Header)
	if s.cfg.Prepare != nil {
		s.cfg.Prepare(ctx, w.Subject, m.Header)
	}
	replaced := over.identity()
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(over.Revision, 10))
	m.Header.Set(HeaderWriter, writer)
	m.Header.Set(HeaderReplaced, replaced)
	if w.TTL > 0 {
		m.Header.Set(jetstream.MsgTTLHeader, strconv.FormatInt(int64(w.TTL/time.Second), 10)+"s")
	}
	sent := time.Now()
	revision, err := s.api.Publish(ctx, s.name, m)
	if err != nil {
		return Record{}, err
	}
	return Record{
		Subject: w.Subject, Revision: revision, Data: w.Data, Sent: sent, writer: writer, replaced: replaced, made: s.made.Load(),
	}, nil
}

// isGone reports whether a record was removed, by its TTL or with its stream. The caller has read from the leader that the
// subject holds no record, or an older one. A deposed leader may give that answer although the record exists: its stream ends before the
// record.
func (s *Stream) isGone(ctx context.Context, r Record) (bool, error) {
	info, err := s.state(ctx, r.Subject)
	if err != nil {
		return false, err
	}
	made, before := info.Created.UnixNano(), cmp.Or(r.made, s.first.Load())
	switch known := s.learn(made); {
	case made < known: // the record of a stream that was deleted since
		return false, nil
	case before != 0 && before != made:
		return true, nil
	default:
		return info.State.Last >= r.Revision && info.State.Subjects[r.Subject] == 0, nil
	}
}

// learnMade asks for the time at which the stream was created. Without an answer, Put cannot notice that the stream was created again, and
// looks for a record of the former stream until the time of the operation is up.
func (s *Stream) learnMade() {
	if info, err := s.state(s.ended, ""); err == nil {
		s.learn(info.Created.UnixNano())
	}
}

// learn records a time at which the stream was created, and returns the latest known time.
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

// Get reads a record from any replica, which may lag behind. A subject without a record is no error: the Revision is 0. Get
// repeats its request until the server answers. Its errors match ErrUnavailable, ErrClosed or ctx's cause. One round trip.
func (s *Stream) Get(ctx context.Context, subject string) (Record, error) {
	return s.read(ctx, subject, s.any)
}

// Latest is Get from the stream's leader. A deposed leader that does not know of it may answer with a record that was replaced. One round
// trip.
func (s *Stream) Latest(ctx context.Context, subject string) (Record, error) {
	return s.read(ctx, subject, s.latest)
}

// GetMany reads the records of many subjects from any replica, and returns them in no particular order. It leaves out a
// subject without a record. A subject may be a filter with wildcards: when more than 1,024 subjects match, the error wraps
// errors.ErrUnsupported. One round trip for each 512 subjects.
func (s *Stream) GetMany(ctx context.Context, subjects []string) ([]Record, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	messages, err := s.many.Last(ctx, s.name, subjects)
	if err != nil {
		return nil, s.failed(ctx, fmt.Sprintf("read %d subjects", len(subjects)), err)
	}
	last := make(map[string]int, len(messages))
	records := make([]Record, 0, len(messages))
	for _, m := range messages {
		at, twice := last[m.Subject] // it was written in the meantime
		switch {
		case !twice:
			last[m.Subject] = len(records)
			records = append(records, s.record(m))
		case m.Sequence > records[at].Revision:
			records[at] = s.record(m)
		}
	}
	return records, nil
}

// read repeats once until the server answers.
func (s *Stream) read(ctx context.Context, name string, once func(context.Context, string) (Record, error)) (found Record, err error) {
	if err := checkSubject(name); err != nil {
		return Record{}, err
	}
	err = s.persist(ctx, "read", name, func(ctx context.Context) error {
		found, err = once(ctx, name)
		return err
	})
	return found, err
}

// persist repeats try until it succeeds, fails for good, or the time of an operation is up. op and name identify the
// operation in errors.
func (s *Stream) persist(ctx context.Context, op, name string, try func(context.Context) error) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	for n := 0; ; n++ {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if isPermanent(err) || !retry.Backoff(ctx, n, minWait, maxWait) {
			return s.refused(ctx, op+" "+redact.Quote(name), err)
		}
	}
}

// any reads the last record of a subject from any replica, once.
func (s *Stream) any(ctx context.Context, subject string) (Record, error) {
	m := nats.NewMsg(s.api.Prefix + "DIRECT.GET." + s.name + "." + subject)
	reply, err := s.single.Request(ctx, m, s.cfg.Try)
	if err != nil {
		return Record{}, err
	}
	found, ok, err := directget.Answer(reply)
	if err != nil || !ok {
		return s.absent(subject), err
	}
	return s.record(found), nil
}

// latest reads the last record of a subject from the leader, once.
func (s *Stream) latest(ctx context.Context, subject string) (Record, error) {
	return s.leader(ctx, jsapi.Query{LastBySubject: subject})
}

// leader asks the stream's leader for a record, once.
func (s *Stream) leader(ctx context.Context, q jsapi.Query) (Record, error) {
	m, ok, err := s.api.Get(ctx, s.name, q)
	if err != nil || !ok {
		return s.absent(q.LastBySubject), err
	}
	return s.record(m), nil
}

// Scan reads the stream's records in the order in which they were written, from a revision on: at most limit records, and 8
// MiB. Any replica may answer. next is the revision to continue from, and 0 at the end. One round trip.
//
// Scan has no filter, because for a filter the server searches all subjects of the stream for each page: in a stream of a million, a page
// of 100 records took 262 ms of CPU with a filter, and 0.4 ms without. To read the records of some subjects, list the subjects and read
// those. The server also searches all subjects without a filter, for every page but the first, in a stream that keeps one message of each
// subject and has lost others in between: 0.1 to 0.3 seconds for 800,000 records.
func (s *Stream) Scan(ctx context.Context, from uint64, limit int) (records []Record, next uint64, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	messages, more, err := s.many.From(ctx, s.name, max(from, 1), limit)
	if err != nil {
		return nil, 0, s.failed(ctx, fmt.Sprintf("scan from %d", from), err)
	}
	for _, m := range messages {
		records = append(records, s.record(m))
	}
	if more && len(records) > 0 {
		next = records[len(records)-1].Revision + 1
	}
	return records, next, nil
}

// Next reads, from the stream's leader, the first record at a revision or later whose subject matches a filter: see [Stream.Latest]. The
// Revision is 0 when there is none. One round trip, of 0.1 ms near the end of a stream of two million.
func (s *Stream) Next(ctx context.Context, filter string, from uint64) (found Record, err error) {
	err = s.persist(ctx, "read the first of", filter, func(ctx context.Context) error {
		found, err = s.leader(ctx, jsapi.Query{NextBySubject: filter, Sequence: from})
		return err
	})
	return found, err
}

// Subjects returns the subjects that match a filter and hold a record, or the marker of a deleted one: 100,000 at most, in
// no particular order. offset is the number of subjects to leave out; next is the offset to continue from, and 0 at the end. The result is
// the state of the stream's leader at one moment. One round trip, whose cost grows with the subjects that match.
func (s *Stream) Subjects(ctx context.Context, filter string, offset int) (subjects []string, next int, err error) {
	var answer struct {
		info

		Total int `json:"total"`
	}
	err = s.persist(ctx, "list the subjects of", filter, func(ctx context.Context) error {
		return s.api.Ask(ctx, "STREAM.INFO."+s.name, map[string]any{"subjects_filter": filter, "offset": offset}, &answer)
	})
	if err != nil {
		return nil, 0, err
	}
	subjects = slices.Collect(maps.Keys(answer.State.Subjects))
	if next = offset + len(subjects); next >= answer.Total || len(subjects) == 0 {
		next = 0
	}
	return subjects, next, nil
}

// All lists the subjects that match a filter in parts: see [Stream.Subjects]. A caller that goes on after an error gets no more.
func (s *Stream) All(ctx context.Context, filter string) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		for offset, more := 0, true; more; more = offset > 0 {
			subjects, next, err := s.Subjects(ctx, filter, offset)
			if !yield(subjects, err) || err != nil {
				return
			}
			offset = next
		}
	}
}
