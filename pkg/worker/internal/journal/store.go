package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/compress"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/lazyregexp"
)

// partRoom is the number of bytes that are left for the headers of a message.
const partRoom = 1 << 10

// lateTTL is the header with the TTL of the journal of a completed job.
var lateTTL = []string{seconds(time.Minute)}

// Config configures a [Store].
type Config struct {
	API    jsapi.Client // bounds each request
	Bucket string
	Conn   *nats.Conn    // of the API
	Settle time.Duration // how long a write is tried
	TTL    time.Duration // the time for which a journal is kept after its last write
}

// Store keeps the journals of one bucket.
type Store struct {
	cfg    Config
	codec  compress.Codec
	stream string   // behind the bucket
	ttl    []string // a header
}

// New returns the store of a bucket. It makes no request.
func New(cfg Config) *Store {
	return &Store{cfg: cfg, codec: compress.New(), stream: "KV_" + cfg.Bucket, ttl: []string{seconds(cfg.TTL)}}
}

// Open returns the journal of an attempt. It makes no request: the first step does. Journals are not written after base has ended.
func (s *Store) Open(base context.Context, attempt Attempt) *Journal {
	return &Journal{attempt: attempt, base: base, server: s, turn: make(chan struct{}, 1)}
}

// stored returns the messages of one journal.
func (s *Store) stored(a Attempt) *journalOf {
	key := a.Resume
	if key == "" {
		key = Key(a.Sequence, a.Stored)
	}
	return &journalOf{Store: s, subject: "$KV." + s.cfg.Bucket + ".steps." + a.Stream + "." + a.Consumer + "." + key}
}

// partSize returns the largest number of bytes in one message of a result.
func (s *Store) partSize() int {
	if most := int(s.cfg.Conn.MaxPayload()) - partRoom; most > 0 { // 0 before the first connection
		return min(maxPart, most)
	}
	return maxPart
}

// Key returns the name of the journal of a message, for headers. The time distinguishes the message from that with the same sequence in a
// stream that was deleted and made again.
func Key(sequence uint64, stored time.Time) string {
	return strconv.FormatUint(sequence, 10) + "-" + strconv.FormatInt(stored.UnixNano(), 10)
}

var keyForm = lazyregexp.New(`^[0-9]{1,20}-[0-9]{1,20}$`)

// ValidKey reports whether Key may have returned the key.
func ValidKey(key string) bool { return keyForm.MatchString(key) }

// journalOf reads and writes the messages of one journal: its record and the parts of its large results.
type journalOf struct {
	*Store

	expected []string // a header of record
	record   nats.Msg // the message of save, which is called by one goroutine at a time
	subject  string
}

func (j *journalOf) load(ctx context.Context) ([]byte, uint64, error) {
	data, revision, err := j.get(ctx, j.subject)
	if errors.Is(err, errMissing) {
		return nil, 0, nil
	}
	return data, revision, err
}

func (j *journalOf) fetch(ctx context.Context, part string) ([]byte, error) {
	data, _, err := j.get(ctx, j.subject+"."+part)
	if err == nil && len(data) == 0 {
		return nil, errMissing
	}
	return data, err
}

func (j *journalOf) put(ctx context.Context, part string, data []byte) error {
	_, err := j.send(ctx, j.message(part, data, j.cfg.TTL))
	return err
}

func (j *journalOf) save(ctx context.Context, data []byte, expect uint64) (uint64, error) {
	if j.expected == nil {
		j.expected = []string{""}
		j.record = nats.Msg{
			Header:  nats.Header{jetstream.MsgTTLHeader: j.ttl, jetstream.ExpectedLastSubjSeqHeader: j.expected},
			Subject: j.cfg.API.Target(j.subject),
		}
	}
	j.expected[0], j.record.Data = strconv.FormatUint(expect, 10), data
	return j.send(ctx, &j.record) // which keeps nothing of it
}

func (j *journalOf) forget(data []byte, expect uint64) {
	j.expected[0], j.record.Data, j.record.Reply = strconv.FormatUint(expect, 10), data, ""
	j.record.Header[jetstream.MsgTTLHeader] = lateTTL
	_ = j.cfg.Conn.PublishMsg(&j.record) // it goes by its TTL
}

func (j *journalOf) drop(part string) {
	_ = j.cfg.Conn.PublishMsg(j.message(part, nil, time.Second)) // it goes by its TTL
}

// message returns the message of a part that is kept for ttl.
func (j *journalOf) message(part string, data []byte, ttl time.Duration) *nats.Msg {
	return &nats.Msg{
		Subject: j.cfg.API.Target(j.subject + "." + part), Data: data,
		Header: nats.Header{jetstream.MsgTTLHeader: {seconds(ttl)}},
	}
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d/time.Second)) + "s" }

// get reads the last message of a subject from the stream's leader: a follower may not have
// it yet.
func (s *Store) get(ctx context.Context, subject string) ([]byte, uint64, error) {
	found, ok, err := s.cfg.API.Get(ctx, s.stream, jsapi.Query{LastBySubject: subject})
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("read %s: %w", subject, err)
	case !ok:
		return nil, 0, errMissing
	}
	return found.Data, found.Sequence, nil
}

// send publishes a message, once, and returns its sequence in the stream.
func (s *Store) send(ctx context.Context, msg *nats.Msg) (uint64, error) {
	sequence, err := s.cfg.API.Publish(ctx, s.stream, msg)
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", msg.Subject, err)
	}
	return sequence, nil
}

// isPermanent reports whether another try of the same message cannot help.
func isPermanent(err error) bool {
	_, unreadable := errors.AsType[*RecordError](err)
	return unreadable || jsapi.IsPermanent(err)
}

// Step is a step in the record of its job.
type Step struct {
	// At is the time at which the step was recorded, by the clock of its worker.
	At time.Time

	// Name is the name of the step, and Size the length of its result in bytes.
	Name string
	Size int

	// Value is the result of the step, nil for a result in separate messages.
	Value []byte
}

// Read returns the recorded steps of an attempt's job, in their order, for display. One round trip.
func (s *Store) Read(ctx context.Context, a Attempt) ([]Step, error) {
	data, _, err := s.stored(a).load(ctx)
	if err != nil || len(data) == 0 {
		return nil, err
	}
	rec, err := decode(data)
	if err != nil {
		return nil, &RecordError{Cause: err, Job: a.Job}
	}
	steps := make([]Step, 0, len(rec.Steps))
	for _, e := range rec.Steps {
		step := Step{At: time.UnixMilli(e.At).UTC(), Name: e.Name, Size: max(e.Size, e.Length), Value: e.data}
		switch {
		case e.Object != nil:
			step.Size, step.Value = max(e.Object.Size, e.Length), nil
		case e.Codec != "":
			if step.Value, err = s.codec.Decompress(e.data, e.Length); err != nil {
				return nil, &RecordError{Cause: fmt.Errorf("decompress: %w", err), Job: a.Job, Step: e.Name}
			}
		}
		steps = append(steps, step)
	}
	return steps, nil
}
