package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

// ClientConfig configures a [Client]. Stream is required, every other field has a default.
type ClientConfig struct {
	// AllowUntaken stores jobs that no consumer of the stream takes, for workers that are still to come. Defaults to false: an insert then
	// returns an [*UntakenError], unless the stream has no consumer at all, or the client may not list consumers. While workers start, the
	// error is returned 5 seconds after the last of their consumers was made.
	AllowUntaken bool

	// Bucket is the Config.Bucket of the workers, which has their records of jobs, and the pauses. Defaults to "jobs".
	Bucket string

	// DeadStream is the stream of dead letters, in which Jobs and Job look. Defaults to "DEAD".
	DeadStream string

	// DeadSubject is the Config.DeadSubject of the workers. Defaults to "dead".
	DeadSubject string

	// Encode turns the arguments of a job into its payload. The Policy.Decode of the handler is its counterpart. Defaults to JSON; a []byte
	// is then the payload itself. README.md has a table of types.
	Encode func(args any) ([]byte, error)

	// RequestTimeout is the time after which the outcome of a request to the server counts as unknown and is looked up. Defaults to 2
	// seconds.
	RequestTimeout time.Duration

	// SettleTimeout bounds the time of a call when answers are lost or the server is away. The call's context may end it earlier. Defaults to
	// 10 seconds.
	SettleTimeout time.Duration

	// Stream is the stream that takes the jobs. Letters, digits, "-" and "_". Required.
	Stream string
}

func (c ClientConfig) withDefaults() ClientConfig {
	c.Bucket = cmp.Or(c.Bucket, "jobs")
	c.DeadStream = cmp.Or(c.DeadStream, "DEAD")
	c.DeadSubject = cmp.Or(c.DeadSubject, "dead")
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 2*time.Second)
	c.SettleTimeout = cmp.Or(c.SettleTimeout, 10*time.Second)
	if c.Encode == nil {
		c.Encode = jobmsg.Encode
	}
	return c
}

// validate returns an error that names all mistakes. Defaults must be set before.
func (c ClientConfig) validate() error {
	return errors.Join(
		checkPositive("ClientConfig.RequestTimeout", c.RequestTimeout),
		checkPositive("ClientConfig.SettleTimeout", c.SettleTimeout),
		checkSubject("ClientConfig.DeadSubject", c.DeadSubject),
		checkName("ClientConfig.Bucket", c.Bucket),
		checkName("ClientConfig.DeadStream", c.DeadStream),
		checkName("ClientConfig.Stream", c.Stream))
}

// Client inserts jobs into one stream, lists and cancels them, and pauses their handlers. It needs no closing, and is safe for concurrent
// use.
type Client struct {
	api    jsapi.Client
	cfg    ClientConfig
	js     jetstream.JetStream
	nc     *nats.Conn
	stream atomic.Pointer[jetstream.StreamConfig] // as last seen
	takers atomic.Pointer[jobmsg.Takers]          // as last seen
}

// NewClient returns a client that publishes through js. It makes no request. The error names every invalid field of cfg.
func NewClient(js jetstream.JetStream, cfg ClientConfig) (*Client, error) {
	cfg = cfg.withDefaults()
	err := cfg.validate()
	if js == nil {
		err = errors.Join(errors.New("worker: NewClient needs a JetStream context, got nil"), err)
	}
	if err != nil {
		return nil, err
	}
	return &Client{api: jsapi.New(js, cfg.RequestTimeout), cfg: cfg, js: js, nc: js.Conn()}, nil
}

// firstPause is the first wait between two tries of a write.
const firstPause = 2 * time.Millisecond

var (
	errBusy  = errors.New("worker: another write of the key is under way")
	errFreed = errors.New("worker: the key has become free")
)

// Receipt is the result of an insert.
type Receipt struct {
	// Duplicate reports whether the job was not inserted, because another job holds the key.
	Duplicate bool

	// ID is the ID of the inserted job, or of the job that holds the key.
	ID string

	// Sequence is the sequence of the job, its schedule or its record in the stream.
	Sequence uint64

	// State is the state of the job. It is empty for a duplicate that is not unique, or that is Unique.Unrecorded: the server answers only
	// that there was a job with its ID, or that there is one of its subject. For an Unrecorded duplicate, ID, Sequence and Stream are empty
	// as well.
	State State

	// Stream is the stream of Sequence.
	Stream string

	// Subject is the subject of the job.
	Subject string
}

// Insert stores one job and returns when the server has confirmed it: one round trip, as a rule, and another for the first
// of the client. A job that no consumer takes is not stored, see ClientConfig.AllowUntaken. A unique job whose key is taken is not an
// error, see Receipt. It costs another round trip, unless the job is Unique.Unrecorded.
//
// An insert whose answer is lost is repeated, until the context or ClientConfig.SettleTimeout ends, without storing the job
// twice: the server refuses a unique job while another job of its key exists, and after that refuses its message ID, for the stream's
// duplicate window. The error is an [*InsertError]. When its Unknown is true, the job may have been stored or not, and inserting it again,
// with the same ID or key, is safe.
func (c *Client) Insert(ctx context.Context, job NewJob) (Receipt, error) {
	p, err := c.plan(job)
	if err != nil {
		return Receipt{}, &InsertError{Cause: err, ID: job.ID, Subject: job.Subject}
	}
	receipt, err := c.insert(ctx, p)
	if err != nil {
		return Receipt{}, &InsertError{Cause: err, ID: p.id, Subject: p.key.Job(), Unknown: p.unknown}
	}
	return receipt, nil
}

func (c *Client) insert(ctx context.Context, p *plan) (Receipt, error) {
	if err := c.ensureStream(ctx, p); err != nil {
		return Receipt{}, err
	}
	receipt, err := c.publish(ctx, p)
	if err == nil {
		return receipt, nil
	}
	return c.settle(ctx, p, err)
}

// send publishes a message once.
func (c *Client) send(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	return c.js.PublishMsg(ctx, msg)
}

// publish publishes a job once.
func (c *Client) publish(ctx context.Context, p *plan) (Receipt, error) {
	ack, err := c.send(ctx, c.message(p))
	if err != nil {
		return Receipt{}, err
	}
	return p.receipt(ack), nil
}

// settle finds out the outcome of a publication that failed, and repeats the publication if the job was not stored.
func (c *Client) settle(ctx context.Context, p *plan, err error) (Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastWait) {
		var receipt Receipt
		switch {
		case p.unique && jsapi.IsRefused(err):
			receipt, err = c.resolveConflict(ctx, p)
		case p.unrecorded && jsapi.IsRefused(err) && !jsapi.IsInDoubt(err):
			receipt, err = c.resolveTaken(ctx, p)
		case errors.Is(err, jetstream.ErrNoStreamResponse):
			if lack := c.checkStream(ctx, p); isFinal(lack) {
				return Receipt{}, lack
			}
		default:
			p.unknown = p.unknown || isPassing(err) || errors.Is(err, nats.ErrConnectionClosed)
		}
		if err == nil {
			return receipt, nil
		}
		if !errors.Is(err, errFreed) && (!isPassing(err) || !retry.Sleep(ctx, pause)) {
			return Receipt{}, err
		}
		if receipt, err = c.publish(ctx, p); err == nil {
			return receipt, nil
		}
	}
}

// isPassing reports whether a failed write may succeed when it is repeated.
func isPassing(err error) bool {
	return errors.Is(err, errBusy) || jsapi.IsRefused(err) || jsapi.IsUnknown(err) && !jsapi.IsFull(err)
}

// last reads the last message on a subject. The subject may have wildcards.
func (c *Client) last(ctx context.Context, of string) (jsapi.Message, bool, error) {
	msg, found, err := c.api.Get(ctx, c.cfg.Stream, jsapi.Query{LastBySubject: of})
	if err != nil {
		return jsapi.Message{}, false, fmt.Errorf("worker: last message on %s: %w", of, err)
	}
	return msg, found, nil
}

// remove deletes a message, if it exists.
func (c *Client) remove(ctx context.Context, sequence uint64) error {
	if _, err := c.api.Delete(ctx, c.cfg.Stream, sequence); err != nil {
		return fmt.Errorf("worker: delete message %d of %s: %w", sequence, c.cfg.Stream, err)
	}
	return nil
}

// Headers of a job's message, beside HeaderID. A publisher that has no [Client] sets them by hand.
const (
	// HeaderInsert identifies one insert among those with one ID.
	HeaderInsert = "Job-Insert"

	// HeaderKeep makes a job unique. It holds the time for which the record of its completion is kept, as a Go duration; at "0s" there is a
	// record only if the job dies.
	HeaderKeep = jobmsg.HeaderKeep
)

const (
	headerSchedule       = jetstream.ScheduleHeader
	headerScheduleTarget = jetstream.ScheduleTargetHeader

	maxAhead   = 10 * 365 * 24 * time.Hour
	maxHeaders = 16 << 10 // the size in bytes of a job's own headers
)

// NewJob is a job to insert. Subject is required.
type NewJob struct {
	// Args is the payload, encoded by ClientConfig.Encode.
	Args any

	// At is the time at which the job becomes due, in milliseconds. As a rule it comes a fraction of a second later: the server looks at its
	// schedules at most four times a second (p50 about 130 ms late, at most about 250). A past time means now. Defaults to now.
	At time.Time

	// Delay is At as a time from now. Only one of both may be set. Defaults to none.
	Delay time.Duration

	// Header holds further headers. Names that start with "Nats-" or "Job-" are reserved. At most 16 KiB. Defaults to none.
	Header nats.Header

	// ID identifies the job, as Job.ID, in every attempt and in its dead letter. For a job that is not unique, or is
	// Unique.Unrecorded, it is the message ID as well, so that within the stream's duplicate window (two minutes by default)
	// jobs with one ID are stored once. At most 320 bytes. Defaults to a random one.
	ID string

	// Subject is the subject of the job. At most 1,024 bytes, with the key.
	Subject string

	// Unique makes this job the only one of its key. Defaults to none.
	Unique *Unique
}

// Unique makes a job the only one of its key. While a job of the key is scheduled, queued or running, the server accepts no other. It
// decides that in the write itself.
type Unique struct {
	// HoldDead makes a dead job hold its key for 30 days, or until its dead letter is replayed. Otherwise a new job replaces a dead one.
	// Defaults to false.
	HoldDead bool

	// Keep is the time for which a completed job goes on holding its key, up to a year. It costs a write for each job. Fractions of a second
	// are rounded up. Defaults to 0: the key is free when the job completes.
	Keep time.Duration

	// Key is appended to the subject as one token: any text of up to 320 bytes, encoded if it is not a token. Defaults to
	// none: the subject is the key.
	Key string

	// Unrecorded stores only the message of the job: the job holds its key for as long as it is in the stream. It is for a stream without
	// subjects for delayed jobs and records. The message has one header more than that of a job that is not unique, except in a stream that
	// itself refuses a second message of a subject (MaxMsgsPerSubject 1 with DiscardNewPerSubject). The client reads that setting once, with
	// one round trip at its first insert. The receipt of a duplicate has neither the job that holds the key nor its state, and costs no round
	// trip. Around a change of leader the server may refuse a message that it has stored: Insert then reports a duplicate of the same job,
	// which is in the stream. Not with HoldDead, Keep, or a delayed job. Defaults to false.
	Unrecorded bool
}

// plan is a job ready to be published, repeatedly if needed.
type plan struct {
	data     []byte
	due      time.Time // zero for at once
	header   nats.Header
	holdDead bool
	id       string
	insertID string // unique to this insert
	keep     time.Duration
	key      jobmsg.Key
	to       string // the subject to which it is published
	unique   bool   // it is unique, with records of its key
	unknown  bool   // a publication may have been stored although no answer came

	unrecorded bool // unique among the jobs of its subject
}

// plan checks a job and encodes it. The error names all mistakes.
func (c *Client) plan(job NewJob) (*plan, error) {
	u := cmp.Or(job.Unique, new(Unique))
	k, badSubject := keyOf(job.Subject, u.Key)
	due, badAt := dueOf(job, time.Now())
	h, badHeader := headerOf(job.Header)
	data, badArgs := c.encode(job.Args, h)
	err := errors.Join(
		inField("NewJob.Subject", badSubject),
		inField("NewJob.At", badAt),
		inField("NewJob.Header", badHeader),
		inField("NewJob.ID", checkID(job.ID)),
		validate.If(u.Unrecorded && (u.HoldDead || u.Keep != 0 || !due.IsZero()),
			"NewJob.Unique.Unrecorded: there is a HoldDead, a Keep or a delay as well: those are recorded"),
		validate.If(u.Keep < 0 || u.Keep > jobmsg.MaxKeep, "NewJob.Unique.Keep: use 0 to 366 days"),
		inField("NewJob.Args", badArgs))
	if err != nil {
		return nil, err
	}
	p := &plan{
		data: data, due: due, header: h, holdDead: u.HoldDead, id: job.ID, keep: jobmsg.WholeSeconds(u.Keep), key: k,
		unique: job.Unique != nil && !u.Unrecorded, unrecorded: u.Unrecorded,
	}
	p.address(c.cfg.Stream)
	return p, nil
}

// inField names the field of a mistake. Each insert calls it, so it allocates nothing without one.
func inField(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// encode returns the payload of a job with the given headers.
func (c *Client) encode(args any, h nats.Header) ([]byte, error) {
	data, err := c.cfg.Encode(args)
	if err != nil {
		return nil, err
	}
	size := len(data) + sizeOf(h)
	if limit := c.nc.MaxPayload(); limit > 0 && int64(size) > limit-headerRoom {
		return nil, fmt.Errorf("%d bytes, encoded and with headers, are too many for a server that takes %d, %d of them for Expediter's "+
			"headers: %w", size, limit, headerRoom, nats.ErrMaxPayload)
	}
	return data, nil
}

// address fills in the subject and the headers that the server and the worker read.
func (p *plan) address(stream string) {
	if p.insertID = p.id; p.id == "" || p.unique { // for unrecorded ones it is the ID too
		p.insertID = nuid.Next()
	}
	p.id = cmp.Or(p.id, p.insertID)
	h := p.header
	h.Set(jetstream.ExpectedStreamHeader, stream)
	// A unique job's message ID belongs to this insert only: it guards the retry of a publish, and must not make the server drop the next job
	// of the key.
	h.Set(nats.MsgIdHdr, p.insertID)
	if p.id != p.insertID {
		h.Set(HeaderInsert, p.insertID)
	}
	if p.id != p.insertID || !p.due.IsZero() {
		h.Set(HeaderID, p.id)
	}
	if p.unique {
		h.Set(HeaderKeep, p.keep.String())
		setExpected(h, p.key, 0)
	}
	p.to = p.key.Job()
	if p.due.IsZero() {
		return
	}
	h.Set(headerSchedule, "@at "+p.due.UTC().Format(time.RFC3339Nano))
	h.Set(headerScheduleTarget, p.to)
	p.to = p.key.Later()
	if !p.unique {
		// Each job has its own schedule, or the next would replace this one.
		suffix, _ := subject.EncodeToken(p.id) // the ID has been checked
		p.to += "." + suffix
	}
}

// receipt reads the server's confirmation.
func (p *plan) receipt(ack *jetstream.PubAck) Receipt {
	r := Receipt{ID: p.id, Sequence: ack.Sequence, State: StateQueued, Stream: ack.Stream, Subject: p.key.Job()}
	if !p.due.IsZero() {
		r.State = StateScheduled
	}
	// If no other insert can have the message ID, the server knows it from a publication whose answer was lost.
	if ack.Duplicate && p.insertID == p.id && !p.unknown && !p.unique {
		r.Duplicate, r.State = true, ""
	}
	return r
}

// keyOf returns the key of a subject that is followed by the token of a Unique.Key, if that is not empty.
func keyOf(to, unique string) (jobmsg.Key, error) {
	if unique != "" {
		if _, err := subject.EncodeToken(unique); err != nil {
			return jobmsg.Key{}, fmt.Errorf("key: %w", err)
		}
	}
	k, err := jobmsg.KeyOf(keyed(to, unique))
	if err != nil {
		return jobmsg.Key{}, fmt.Errorf("%q is no subject for a job: %w", clip(keyed(to, unique), jobmsg.MaxSubject), err)
	}
	return k, nil
}

// keyed appends the token of a Unique.Key to a subject. A key that has no token leaves an empty one, which no job has.
func keyed(to, unique string) string {
	if unique == "" {
		return to
	}
	last, _ := subject.EncodeToken(unique)
	return to + "." + last
}

// dueOf returns the time at which a job is due, the zero time for at once.
func dueOf(job NewJob, now time.Time) (time.Time, error) {
	due := job.At
	switch {
	case job.Delay < 0:
		return due, fmt.Errorf("a Delay of %s: use none or a positive one", job.Delay)
	case job.Delay > 0 && !due.IsZero():
		return due, errors.New("there is a Delay as well: use one of them")
	case job.Delay > 0:
		due = now.Add(job.Delay)
	}
	switch {
	case !due.After(now):
		return time.Time{}, nil
	case due.Sub(now) > maxAhead:
		return due, fmt.Errorf("%s is more than %s ahead", due, maxAhead)
	default:
		return due, nil
	}
}

// headerOf copies the headers that a caller may set.
func headerOf(given nats.Header) (nats.Header, error) {
	const own = 6 // the number of headers that the client adds, as a rule
	all := make(nats.Header, len(given)+own)
	for name, values := range given {
		if strings.HasPrefix(strings.ToLower(name), "job-") {
			return nil, fmt.Errorf("header %.64q: names that start with Job- are taken", name)
		}
		if err := validate.Header(name, values...); err != nil {
			return nil, err
		}
		all[name] = values
	}
	if size := sizeOf(all); size > maxHeaders {
		return nil, fmt.Errorf("%d bytes: use at most %d", size, maxHeaders)
	}
	return all, nil
}

func sizeOf(h nats.Header) (size int) {
	for name, values := range h {
		for _, text := range values {
			size += len(name) + len(": \r\n") + len(text)
		}
	}
	return size
}

func checkID(id string) error {
	switch {
	case len(id) > subject.MaxID:
		return fmt.Errorf("%d bytes: use at most %d", len(id), subject.MaxID)
	case strings.TrimSpace(id) != id:
		return errors.New("spaces at its ends are not allowed")
	default:
		return validate.HeaderText(id)
	}
}

// runOf returns the job of a schedule, as the server would insert it.
func (c *Client) runOf(schedule jsapi.Message) *nats.Msg {
	msg := &nats.Msg{Subject: schedule.Header.Get(headerScheduleTarget), Header: maps.Clone(schedule.Header), Data: schedule.Data}
	for _, name := range []string{
		headerSchedule, headerScheduleTarget, jetstream.ExpectedLastSubjSeqHeader, jetstream.ExpectedLastSubjSeqSubjHeader,
		jetstream.MsgRollup, jetstream.ScheduleRollupHeader, jetstream.ScheduleTimeZoneHeader,
	} {
		msg.Header.Del(name)
	}
	msg.Header.Set(jetstream.ExpectedStreamHeader, c.cfg.Stream)
	return msg
}

// message returns a message for one publication to the client's stream, which is not reused because nats.go keeps messages. It does not
// write into their headers: those are the plan's, unless this publication has others.
func (c *Client) message(p *plan) *nats.Msg {
	msg := &nats.Msg{Subject: p.to, Header: p.header, Data: p.data}
	if !p.unrecorded {
		return msg
	}
	msg.Header = maps.Clone(p.header)
	// A stream with these settings itself refuses a job whose subject has a message already.
	seen := c.stream.Load()
	if seen != nil && seen.MaxMsgsPerSubject == 1 && seen.Discard == jetstream.DiscardNew && seen.DiscardNewPerSubject {
		msg.Header.Del(jetstream.ExpectedStreamHeader) // the stream takes the subject, so no other stream does
	} else {
		msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
	}
	return msg
}

// InsertError is returned when a job could not be inserted.
type InsertError struct {
	// Cause is the reason.
	Cause error

	// ID is the ID of the job.
	ID string

	// Subject is the subject of the job.
	Subject string

	// Unknown reports whether the job may have been stored all the same.
	Unknown bool
}

// Error implements error.
func (e *InsertError) Error() string {
	outcome := "not inserted"
	if e.Unknown {
		outcome = "perhaps inserted"
	}
	return fmt.Sprintf("worker: job %q on %q %s: %v", clip(e.ID, 64), clip(e.Subject, 256), outcome, e.Cause)
}

// Unwrap returns the cause.
func (e *InsertError) Unwrap() error { return e.Cause }

const (
	// cancelKept is the time for which the record of a cancelled job is kept, for a worker that is cut off.
	cancelKept = 24 * time.Hour

	// nearDue is the time before a schedule is due in which it is not cancelled, because it may be firing.
	nearDue = 300 * time.Millisecond
)

// ErrCancelled is the cause of the end of a handler's context when Client.Cancel has cancelled its job.
var ErrCancelled = errors.New("worker: job cancelled by a client")

// SharedError is returned by [Client.Cancel] for a job of a stream that is not a work queue. All who read the stream have its message, so
// removing it would take the job from each of them.
type SharedError struct {
	// Consumers are those that take the job, "none now" if none does. Others may read it: ordered consumers, mirrors, and later consumers.
	Consumers []string

	// Sequence is the position of the job in Stream.
	Sequence uint64
	Stream   string
}

// Error implements error.
func (e *SharedError) Error() string {
	return fmt.Sprintf("worker: job %d was not cancelled: stream %s is not a work queue, so its consumers (%s) and other readers would "+
		"all lose the job; to end it for one consumer, make its handler return worker.Discard; to delete it for all, run: nats stream rmm %s %d",
		e.Sequence, e.Stream, strings.Join(e.Consumers, ", "), e.Stream, e.Sequence)
}

// CancelRefusal returns the [*SharedError] with which [Client.Cancel] refuses the job, nil for a job that it cancels or that has ended.
func (j *StoredJob) CancelRefusal() error {
	if !j.Shared || j.HasEnded() {
		return nil
	}
	e := &SharedError{Sequence: j.Sequence, Stream: j.Stream}
	for _, as := range j.Each() {
		e.Consumers = append(e.Consumers, cmp.Or(as.Consumer, "none now"))
	}
	return e
}

// HasEnded reports whether the job will never run again, at any of its consumers.
func (j *StoredJob) HasEnded() bool {
	return j.State == StateDone || j.State == StateDead || j.State == StateCancelled
}

// repeat calls try until it succeeds, or fails with an error that is not transient.
func (c *Client) repeat(ctx context.Context, try func(context.Context) error) error {
	ctx, stop := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer stop()
	return repeat(ctx, firstPause, func(err error) bool { return isPassing(err) && !isFinal(err) }, func() error { return try(ctx) })
}

// recordCancelled records that a job is cancelled, for the worker that may have it, and removes the job, so that no other worker gets it.
func (c *Client) recordCancelled(ctx context.Context, k jobmsg.Key, j StoredJob) error {
	record := recordMsg(c.cfg.Stream, k, j.ID, strconv.FormatUint(j.Sequence, 10), StateCancelled, cancelKept)
	setExpected(record.Header, k, j.Sequence)
	if _, err := c.send(ctx, record); err != nil {
		return err
	}
	return c.remove(ctx, j.Sequence)
}

// removeJob removes the job of a record.
func (c *Client) removeJob(ctx context.Context, k jobmsg.Key, record nats.Header) error {
	sequence, err := strconv.ParseUint(record.Get(HeaderSequence), 10, 64)
	if err != nil {
		return fmt.Errorf("record of %q: %w", k.Job(), err)
	}
	return c.remove(ctx, sequence)
}

// Cancel removes a job that has not ended, unique or not, and returns its former state. The job does not become a dead letter, and uses
// no attempt. A job that is queued, or waits for its next attempt, does not start any more. The context of a running handler ends within
// AckWait/3 (of its worker, 5/3 seconds by default) with the cause [ErrCancelled]; a handler that returns before does not notice, and its
// effects stand. The key of a unique job is free at once. A record of the cancellation is kept for a day, for the worker that may have the
// job, and for [Client.Job]: in the stream for a unique job, and in the bucket for others. A delayed job leaves no record; without a key it
// cannot be cancelled in the last 300 ms before it is due, and with a key Cancel waits until it has fired.
//
// In a stream that is not a work queue the error is a [*SharedError], and nothing was changed.
//
// A job that has ended is not an error: see StoredJob.State. After an error the job may have been cancelled, and another call of Cancel is
// safe; if that finds nothing, with an ID and a Subject, the job is gone. The error wraps [ErrNoJob] when there is no job.
// Five round trips.
func (c *Client) Cancel(ctx context.Context, ref JobRef) (StoredJob, error) {
	j, err := c.Job(ctx, ref)
	if err != nil {
		return j, err
	}
	k, err := jobmsg.KeyOf(j.Subject)
	_, unique := jobmsg.KeepOf(j.Header)
	switch refusal := j.CancelRefusal(); {
	case j.HasEnded():
		return j, nil
	case refusal != nil:
		return j, refusal
	case err == nil && unique:
		err = c.repeat(ctx, func(ctx context.Context) error { return c.cancelUnique(ctx, k, &j) })
	case j.State == StateScheduled:
		err = jsapi.Retry(ctx, c.cfg.SettleTimeout, func(ctx context.Context) error {
			if time.Until(j.Due) < nearDue { // once it has fired there is nothing to remove, and its job is at another place
				return errors.New("it becomes due at this moment: cancel it when it is listed as queued")
			}
			return c.remove(ctx, j.Sequence)
		})
	default:
		err = c.repeat(ctx, func(ctx context.Context) error { return c.cancelOther(ctx, j) })
	}
	if err != nil {
		err = fmt.Errorf("worker: cancel job %s: %w", ref, err)
	}
	return j, err
}

// cancelUnique tries once to cancel the unique job j, and returns errBusy when another try is needed. If the job has ended by now, j has
// its end.
func (c *Client) cancelUnique(ctx context.Context, k jobmsg.Key, j *StoredJob) error {
	msg, found, err := c.last(ctx, k.Any())
	if err != nil {
		return err
	}
	s := c.statusIn(msg)
	switch {
	case !found, s.ID != j.ID:
		return ErrNoJob
	case s.State == StateScheduled && time.Until(s.Due) < nearDue:
		return errBusy // if the schedule is firing, its job could come after the removal
	case s.State == StateScheduled:
		return c.remove(ctx, s.Sequence)
	case s.State == StateQueued:
		if j.State == StateScheduled { // it has fired since
			*j = s
		}
		return c.recordCancelled(ctx, k, s)
	case s.State == StateCancelled: // by a call that did not come to its end
		return c.removeJob(ctx, k, msg.Header)
	default:
		*j = s
		return nil
	}
}

// cancellation is the record of a job that was cancelled and is not unique.
type cancellation struct {
	ID      string    `json:"id"`
	Stored  time.Time `json:"stored"` // distinguishes the jobs of a stream that was deleted and made again
	Subject string    `json:"subject"`
}

func cancelSubject(bucket, stream string, sequence uint64) string {
	return "$KV." + bucket + ".cancelled." + stream + "." + strconv.FormatUint(sequence, 10)
}

// cancelOther records that a job is cancelled, and removes it.
func (c *Client) cancelOther(ctx context.Context, j StoredJob) error {
	data, err := json.Marshal(cancellation{ID: j.ID, Stored: j.Since, Subject: j.Subject})
	if err != nil {
		return err
	}
	msg := nats.NewMsg(c.api.Target(cancelSubject(c.cfg.Bucket, c.cfg.Stream, j.Sequence)))
	msg.Data = data
	msg.Header.Set(jetstream.MsgTTLHeader, cancelKept.String())
	if _, err := c.send(ctx, msg); err != nil {
		return err
	}
	return c.remove(ctx, j.Sequence)
}

// byCancellation finds the record of a job that was cancelled.
func (l *list) byCancellation(ctx context.Context, ref JobRef) (j StoredJob, ok bool, err error) {
	c := l.client
	if ref.Sequence == 0 {
		return j, false, nil
	}
	m, found, err := c.api.Get(ctx, "KV_"+c.cfg.Bucket, jsapi.Query{LastBySubject: cancelSubject(c.cfg.Bucket, c.cfg.Stream, ref.Sequence)})
	if jsapi.IsNoStream(err) {
		err = nil
	}
	var was cancellation
	if err != nil || !found || json.Unmarshal(m.Data, &was) != nil {
		return j, false, err
	}
	ok = (ref.ID == "" || ref.ID == was.ID) && (ref.Subject == "" || ref.Subject == was.Subject)
	j = StoredJob{ID: was.ID, Sequence: ref.Sequence, Since: m.Time, State: StateCancelled, Stream: c.cfg.Stream, Subject: was.Subject}
	return j, ok, nil
}
