package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

// Headers of the record of a job, beside HeaderID and HeaderInsert.
const (
	// HeaderSequence holds the position of the job in the stream.
	HeaderSequence = "Job-Sequence"

	// HeaderState holds the job's State.
	HeaderState = "Job-State"

	// headerConsumer holds the consumer at which the job has ended, in a stream that is not a work queue.
	headerConsumer = "Job-Consumer"
)

// catchUp is the time within which the stream's leader should store a job that a consumer has delivered.
const catchUp = time.Second

// errRecordUnknown is the error of an attempt that did not begin because it was unknown whether the job had ended.
var errRecordUnknown = refused(OutcomeSnoozed, unhandledDelay, "worker: the record of the job is unknown")

// checkEnded returns an error when a unique job that is delivered again has ended: its worker may have died between the record and the
// acknowledgement. One round trip. The leader of the stream knows all acknowledged messages: a new leader answers only after it has applied
// all that it had at its election.
func (w *Worker) checkEnded(d *delivery) error {
	msg, found, err := w.recordOf(d)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errRecordUnknown, err)
	case !found:
		return nil
	default:
		return endOf(msg)
	}
}

// isCancelled reports whether Client.Cancel has cancelled a job. When the record cannot be read it returns false: the next heartbeat is
// near.
func (w *Worker) isCancelled(d *delivery) bool {
	msg, found, err := w.recordOf(d)
	return err == nil && found && State(msg.Header.Get(HeaderState)) == StateCancelled
}

// recordOf reads the record of a job, if it has one.
func (w *Worker) recordOf(d *delivery) (msg jsapi.Message, found bool, err error) {
	k, err := jobmsg.KeyOf(d.info.Subject)
	if err != nil {
		return msg, false, nil //nolint:nilerr // no key, no record
	}
	msg, found, err = w.api.Get(w.settling, d.info.Stream, jsapi.Query{LastBySubject: k.Done()})
	return msg, found && d.isRecord(msg), err
}

// isRecord reports whether a record is this job's at its consumer, and not that of another job with the same key. The ID distinguishes jobs
// of a stream that was deleted and made again.
func (d *delivery) isRecord(msg jsapi.Message) bool {
	if by := msg.Header.Get(headerConsumer); by != "" && by != d.info.Consumer {
		return false
	}
	return msg.Header.Get(HeaderSequence) == strconv.FormatUint(d.info.Sequence, 10) && msg.Header.Get(HeaderID) == d.info.ID
}

// endOf returns the error of a job that ended in an earlier delivery, by its record.
func endOf(record jsapi.Message) error {
	kind := OutcomeCompleted
	switch State(record.Header.Get(HeaderState)) { //nolint:exhaustive // of an end
	case StateCancelled:
		kind = OutcomeCancelled
	case StateDead:
		kind = OutcomeDead
	}
	return &refusal{outcome{kind: kind, settled: true}, "worker: " + string(kind) + " by an earlier delivery, which was not acknowledged"}
}

// recordEnd stores the end of a unique job before the job is acknowledged, so that its key is never free in between. It reports whether
// the job may be acknowledged. When the record could not be stored, or the outcome of the write is unknown, the job stays, and is
// delivered again.
func (w *Worker) recordEnd(d *delivery, kind Outcome) bool {
	keep, state := d.keep, StateDone
	if kind == OutcomeDead {
		keep, state = deadKept, StateDead
	}
	if keep == 0 { // no job may wait for its key
		return true
	}
	err := w.putRecord(d, state, keep)
	if err != nil {
		w.log.Warn(EventJobUnknown, append(d.attrs(), "error", w.denial(err))...)
	}
	return err == nil
}

// putRecord writes a record of a job until the outcome of the write is known. It reports a record that the stream does not take, and
// returns nil: the job goes on without it.
func (w *Worker) putRecord(d *delivery, state State, keep time.Duration) error {
	k, err := jobmsg.KeyOf(d.info.Subject)
	if err != nil {
		return nil //nolint:nilerr // without a key there is no record
	}
	until := time.Now().Add(w.cfg.SettleTimeout)
	for wait := firstPause; ; wait = min(2*wait, lastWait) {
		err := w.writeRecord(d, k, state, keep)
		if err == nil {
			return nil
		}
		closed := errors.Is(err, nats.ErrConnectionClosed)
		if !closed && !jsapi.IsUnknown(err) || w.hasNoStream(k.Done(), err) {
			w.log.Error(EventRecordFailed, append(d.attrs(), "error", err)...)
			return nil
		}
		if closed || !sleepUntil(w.settling, wait, until) {
			return fmt.Errorf("%w: %w", errRecordUnknown, err)
		}
	}
}

// writeRecord writes a record once. The server refuses it when the job is not the last message of its key: a record exists already, or the
// job has been removed, and another job may have its key. An end is then not recorded.
func (w *Worker) writeRecord(d *delivery, k jobmsg.Key, state State, keep time.Duration) error {
	msg := recordMsg(d.info.Stream, k, d.info.ID, strconv.FormatUint(d.info.Sequence, 10), state, keep)
	setExpected(msg.Header, k, d.info.Sequence)
	if w.shared.Load() {
		msg.Header.Set(headerConsumer, d.info.Consumer)
	}
	if id := d.msg.Header.Get(HeaderInsert); id != "" {
		msg.Header.Set(HeaderInsert, id)
	}
	_, refused := w.api.Publish(w.settling, d.info.Stream, msg)
	if !jsapi.IsRefused(refused) {
		return refused
	}
	last, found, err := w.api.Get(w.settling, d.info.Stream, jsapi.Query{LastBySubject: k.Any()})
	switch {
	case err != nil:
		return err
	case d.isUnseen(refused, last, found), last.Sequence == d.info.Sequence: // or a rival's write is under way, and will be refused
		return errBusy
	default:
		return nil
	}
}

// recordMsg returns the message of a record.
func recordMsg(stream string, k jobmsg.Key, id, sequence string, state State, keep time.Duration) *nats.Msg {
	msg := nats.NewMsg(k.Done())
	msg.Header.Set(HeaderID, id)
	msg.Header.Set(HeaderSequence, sequence)
	msg.Header.Set(HeaderState, string(state))
	msg.Header.Set(jetstream.ExpectedStreamHeader, stream)
	msg.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	msg.Header.Set(jetstream.MsgTTLHeader, keep.String())
	return msg
}

// isUnseen reports whether the leader of the stream, which refused a write, has not stored the job itself yet. With replicas it
// may get a job's record before the job: the consumer has its own leader, perhaps on another server, which may be ahead. The answer
// of the stream's leader is then from before the job, and does not free the key.
func (d *delivery) isUnseen(refused error, last jsapi.Message, found bool) bool {
	if found && last.Sequence >= d.info.Sequence {
		return false
	}
	if jsapi.IsInDoubt(refused) {
		return true
	}
	// A new leader does not know which writes are under way. Or the job was deleted by hand.
	if d.missed.IsZero() {
		d.missed = time.Now()
	}
	return time.Since(d.missed) < catchUp
}

// hasNoStream reports whether no stream takes a record.
func (w *Worker) hasNoStream(record string, err error) bool {
	if !errors.Is(err, nats.ErrNoResponders) {
		return false
	}
	ctx, cancel := context.WithTimeout(w.settling, w.cfg.RequestTimeout)
	defer cancel()
	_, err = w.js.StreamNameBySubject(ctx, record)
	return errors.Is(err, jetstream.ErrStreamNotFound)
}

// resolveConflict reads the message because of which the server refused a unique job. A refusal is not a proof: after a change of leaders
// the server may refuse a write that it has carried out.
func (c *Client) resolveConflict(ctx context.Context, p *plan) (Receipt, error) {
	msg, found, err := c.last(ctx, p.key.Any())
	if err != nil {
		return Receipt{}, err
	}
	if !found {
		setExpected(p.header, p.key, 0)
		return Receipt{}, errBusy // or the holder has ended and is gone in the meantime
	}
	s := c.statusIn(msg)
	r := Receipt{Duplicate: true, ID: s.ID, Sequence: s.Sequence, State: s.State, Stream: c.cfg.Stream, Subject: p.key.Job()}
	switch {
	case insertOf(msg.Header) == p.insertID:
		r.Duplicate = false
		return r, nil
	case s.State == StateCancelled: // maybe by a call that did not come to its end
		if err := c.removeJob(ctx, p.key, msg.Header); err != nil {
			return Receipt{}, err
		}
		setExpected(p.header, p.key, s.Sequence)
		return Receipt{}, errFreed
	case s.State == StateDead && !p.holdDead:
		// The record is removed first. A crash after that leaves the key free; a crash between a new job and the removal of an old record would
		// leave both.
		setExpected(p.header, p.key, 0)
		if err := c.remove(ctx, s.Sequence); err != nil {
			return Receipt{}, err
		}
		return Receipt{}, errFreed
	default:
		return r, nil
	}
}

// resolveTaken returns the receipt of an unrecorded job that the stream refused because its subject is taken: by another job, or by this
// one if one of its publications may have been stored. It does not read the stream after a refused first publication, although around a
// change of leader that may have been stored; see [Unique.Unrecorded].
func (c *Client) resolveTaken(ctx context.Context, p *plan) (Receipt, error) {
	r := Receipt{Duplicate: true, Subject: p.key.Job()}
	if !p.unknown {
		return r, nil
	}
	msg, found, err := c.last(ctx, p.key.Job())
	switch {
	case err != nil:
		return Receipt{}, err
	case !found:
		return Receipt{}, errFreed
	case msg.Header.Get(nats.MsgIdHdr) == p.insertID:
		return Receipt{ID: p.id, Sequence: msg.Sequence, State: StateQueued, Stream: c.cfg.Stream, Subject: p.key.Job()}, nil
	default:
		return r, nil
	}
}

// repeat calls try until it succeeds, fails with an error after which it must not be called again, or ctx ends. The waits double from first
// to lastWait. It returns the last error.
func repeat(ctx context.Context, first time.Duration, again func(error) bool, try func() error) error {
	for wait := first; ; wait = min(2*wait, lastWait) {
		if err := try(); err == nil || !again(err) || !retry.Sleep(ctx, wait) {
			return err
		}
	}
}

// isConnected reports whether an error is not that of a connection that was closed for good.
func isConnected(err error) bool { return !errors.Is(err, nats.ErrConnectionClosed) }

// sleepUntil waits for wait, but not beyond until or the end of ctx. It reports whether the whole time has passed.
func sleepUntil(ctx context.Context, wait time.Duration, until time.Time) bool {
	left := time.Until(until)
	return retry.Sleep(ctx, min(wait, left)) && left > wait
}

const (
	// failuresKept bounds the records of failed attempts of a consumer, of mostly less than 1 kB. The record of a job has its sequence modulo
	// failuresKept for a name, so that an outage of a million jobs leaves that many records, and the newest failures replace older ones.
	failuresKept = 10_000

	// suspect is the first attempt before which workers that ended are recorded: one may end at any time.
	suspect = 3

	// failureKept is the time for which a record is kept after the job is due again.
	failureKept = time.Hour
)

// failure is the record of the last failed attempt of a job.
type failure struct {
	Attempt  int           `json:"attempt"`
	Delay    time.Duration `json:"delay"` // from the record to the next delivery
	Error    string        `json:"error"`
	Lost     int           `json:"lost,omitempty"` // attempts in a row whose workers ended before they could report
	Sequence uint64        `json:"sequence"`
	Stored   int64         `json:"stored"` // the time of the job, in Unix nanoseconds: distinguishes a stream that was recreated
}

// failureSubject returns the subject of the record of a job's last failed attempt at a consumer.
func failureSubject(bucket, stream, consumer string, sequence uint64) string {
	return "$KV." + bucket + ".excused." + stream + "." + consumer + ".failed." + strconv.FormatUint(sequence%failuresKept, 10)
}

// recordFailure records a failed attempt. It waits for no answer: lists may lack an error, but no handler waits for the bucket.
func (w *Worker) recordFailure(d *delivery, delay time.Duration, err error) {
	d.failed = cmp.Or(safeText(err), "an error without a text")
	w.putFailure(d, failure{Attempt: d.info.Attempt, Delay: delay, Error: d.failed})
}

func (w *Worker) putFailure(d *delivery, f failure) {
	if w.inbox.Down() != nil { // the client would send it later, when it is no longer true
		return
	}
	f.Sequence, f.Stored = d.info.Sequence, d.info.EnqueuedAt.UnixNano()
	msg := nats.NewMsg(w.api.Target(failureSubject(w.cfg.Bucket, d.info.Stream, d.info.Consumer, d.info.Sequence)))
	msg.Data, _ = json.Marshal(f)
	msg.Header.Set(jetstream.MsgTTLHeader, (f.Delay + failureKept).Truncate(time.Second).String())
	_ = w.nc.PublishMsg(msg) // see recordFailure
}

// recordLost records, before an attempt, that the workers of those before it ended without a report: the job may be what ends them, and
// this one, too. An older job's record may have expired, which says nothing. One round trip, and another one for a job that was lost.
func (w *Worker) recordLost(d *delivery) {
	last, known := w.lastFailure(d)
	lost := d.info.Attempt - 1 - last.Attempt
	if !known || lost <= 0 || last.Attempt == 0 && time.Since(d.info.EnqueuedAt) > failureKept {
		return
	}
	text := last.reported()
	lost += last.Lost
	w.putFailure(d, failure{
		Attempt: d.info.Attempt - 1, Lost: lost,
		Error: fmt.Sprintf("the workers of the last %d attempts ended before they could report%s", lost, text),
	})
	ctx, cancel := context.WithTimeout(w.settling, w.cfg.RequestTimeout)
	defer cancel()
	_ = w.nc.FlushWithContext(ctx) // see recordFailure
}

// lastFailure reads the record of the last failed attempt of a job. known is false when it cannot be read, or another job has its place.
// One round trip.
func (w *Worker) lastFailure(d *delivery) (last failure, known bool) {
	ctx, cancel := context.WithTimeout(w.settling, w.cfg.RequestTimeout)
	defer cancel()
	subject := failureSubject(w.cfg.Bucket, d.info.Stream, d.info.Consumer, d.info.Sequence)
	msg, found, err := w.api.Get(ctx, "KV_"+w.cfg.Bucket, jsapi.Query{LastBySubject: subject})
	if err != nil || !found {
		return failure{}, err == nil
	}
	if json.Unmarshal(msg.Data, &last) != nil || !last.isOf(d.info.Sequence, d.info.EnqueuedAt) {
		return failure{}, false
	}
	return last, true
}

// reported returns the last error that a worker reported, as the end of a text, "" for none.
func (f failure) reported() string {
	_, before, _ := strings.Cut(f.Error, "; ")
	switch {
	case f.Attempt == 0, f.Lost > 0 && before == "":
		return ""
	case f.Lost > 0:
		return "; " + before
	}
	return fmt.Sprintf("; attempt %d failed: %s", f.Attempt, f.Error)
}

// isOf reports whether a record is that of a job.
func (f failure) isOf(sequence uint64, stored time.Time) bool {
	return f.Sequence == sequence && f.Stored == stored.UnixNano()
}

// recordUncounted records the deliveries of a job that used no attempt.
func (w *Worker) recordUncounted(d *delivery, n uncounted) {
	ctx, cancel := context.WithTimeout(w.settling, w.cfg.AckWait)
	defer cancel()
	err := repeat(ctx, firstWait, isConnected, func() error {
		once, stop := context.WithTimeout(ctx, w.cfg.RequestTimeout)
		defer stop()
		return addUncounted(once, w.bucket, d.place(), d.noted, n)
	})
	if err != nil {
		w.log.Warn(EventUncountedFailed, append(d.attrs(), "error", w.denial(err))...)
	}
}

// recordReplay records, before a replayed job leaves its stream, that the job has been worked. If the replay was interrupted after it
// published the job and before it removed the dead letter, only this record shows a later replay that the job was published.
//
// The server accepts this record only while the record of the replay is the last on its subject. That one is removed together with the
// dead letter, so as a rule the server refuses this record and nothing is left.
func (w *Worker) recordReplay(d *delivery, record string) {
	replay, err := strconv.ParseUint(record, 10, 64)
	_, letter, _ := strings.Cut(d.msg.Header.Get(HeaderReplayOf), ":")
	if _, bad := strconv.ParseUint(letter, 10, 64); err != nil || bad != nil || replay == 0 {
		return
	}
	msg := nats.NewMsg(fmt.Sprintf("%s.%s.%s.%s", w.cfg.DeadSubject, d.info.Stream, jobmsg.TokenReplay, letter))
	msg.Header.Set(jobmsg.HeaderReplayState, jobmsg.ReplayWorked)
	const tries = 2
	for range tries {
		ctx, cancel := context.WithTimeout(w.settling, w.cfg.RequestTimeout)
		_, err = w.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(replay))
		cancel()
		var refused *jetstream.APIError
		if err == nil || errors.As(err, &refused) {
			return
		}
	}
	w.log.Warn(EventReplayUnmarked, append(d.attrs(), "error", w.denial(err))...)
}

// uncountedKept is the time for which the record of uncounted deliveries is kept after it was last needed.
const uncountedKept = 7 * 24 * time.Hour

// place identifies a job at one of its consumers. stored distinguishes it from the job with the same sequence in a stream that was
// recreated.
type place struct {
	stream   string
	consumer string
	sequence uint64
	stored   time.Time
}

// uncountedKey returns the key of the record of a job's uncounted deliveries in the worker's bucket.
func (p place) uncountedKey() string {
	return "excused." + p.stream + "." + p.consumer + "." + strconv.FormatUint(p.sequence, 10)
}

// uncounted is the record of the deliveries of a job that used no attempt. The server counts deliveries, so an attempt is a delivery that
// is not recorded here. A job that completes at once costs nothing, a redelivered one a read, and an uncounted delivery a write. The zero
// value has none.
type uncounted struct {
	// Uncounted is the number of deliveries that used no attempt.
	Uncounted int `json:"excused"`

	// Last is the latest recorded delivery, so that a repeated write counts once.
	Last int `json:"last"`

	// Stored is the time of the message, in Unix nanoseconds.
	Stored int64 `json:"stored"`

	// Delay is the time from the record to the next delivery.
	Delay time.Duration `json:"delay,omitempty"`

	record kvrecord.Record
}

// readUncounted returns the record of a job. One round trip, to the leader of the bucket's stream: a follower may lack a record that was
// written a moment ago, which would cost the job an attempt.
func readUncounted(ctx context.Context, bucket *kvrecord.Stream, p place) (*uncounted, error) {
	stored, err := bucket.Latest(ctx, bucket.Key(p.uncountedKey()))
	if err != nil {
		return nil, err
	}
	return decodeUncounted(stored, p), nil
}

// addUncounted adds the uncounted deliveries and the delay of n to the record of a job, which is known as last read, nil for none, unless
// the record has n's last delivery. The record is kept for a week beyond the delay. One round trip, and two more when the record is not
// the known one.
func addUncounted(ctx context.Context, bucket *kvrecord.Stream, p place, last *uncounted, n uncounted) error {
	for {
		var known uncounted
		if last != nil {
			known = *last
		}
		if known.Last >= n.Last {
			return nil
		}
		known.Uncounted, known.Last, known.Stored = known.Uncounted+n.Uncounted, n.Last, p.stored.UnixNano()
		known.Delay = n.Delay
		data, err := json.Marshal(known)
		if err != nil {
			return fmt.Errorf("uncounted deliveries: %w", err)
		}
		_, err = bucket.Put(ctx, kvrecord.Write{
			Subject: bucket.Key(p.uncountedKey()), Data: data, Over: known.record, TTL: (n.Delay + uncountedKept).Truncate(time.Second),
		})
		conflict, taken := errors.AsType[*kvrecord.ConflictError](err)
		if !taken {
			return err
		}
		last = decodeUncounted(conflict.Found, p)
	}
}

// decodeUncounted returns an empty record when the stored one is unreadable, or that of an older job with the same sequence.
func decodeUncounted(stored kvrecord.Record, of place) *uncounted {
	known := new(uncounted)
	if json.Unmarshal(stored.Data, known) != nil || known.Stored != of.stored.UnixNano() {
		known = new(uncounted)
	}
	known.record = stored
	return known
}

// State is the state of a job.
type State string

const (
	// StateCancelled means that Client.Cancel removed the job. Its record does not hold the key.
	StateCancelled State = "cancelled"

	// StateDead means that the job was given up. It has a dead letter.
	StateDead State = "dead"

	// StateDelivered means that a worker was given the job and has recorded nothing of it, see [Client.Jobs].
	StateDelivered State = "delivered"

	// StateDone means that the job is completed.
	StateDone State = "done"

	// StateQueued means that the job waits for a worker. In the status of a key, it may also wait for its next attempt.
	StateQueued State = "queued"

	// StateRetrying means that the job waits for its next attempt, see [Client.Jobs].
	StateRetrying State = "retrying"

	// StateRunning means that a worker has the job.
	StateRunning State = "running"

	// StateScheduled means that the job is not due yet.
	StateScheduled State = "scheduled"
)

// statusIn returns the status that a message of the stream has: a job, a schedule or a record. Due is zero for a schedule that repeats.
func (c *Client) statusIn(msg jsapi.Message) StoredJob {
	s := StoredJob{
		ID: jobmsg.ID(msg.Header, c.cfg.Stream, msg.Sequence), Sequence: msg.Sequence, Since: msg.Time,
		State: StateQueued, Stream: c.cfg.Stream, Subject: msg.Subject,
	}
	switch jobmsg.KindOf(msg.Subject) {
	case jobmsg.Later:
		s.State, s.Subject = StateScheduled, msg.Header.Get(headerScheduleTarget)
		s.Due, _ = time.Parse(time.RFC3339, strings.TrimPrefix(msg.Header.Get(headerSchedule), "@at ")) // zero then
	case jobmsg.Done:
		s.State, s.Subject = State(cmp.Or(msg.Header.Get(HeaderState), string(StateDone))), jobmsg.JobOf(msg.Subject)
	case jobmsg.Job:
	}
	return s
}

// insertOf returns the ID of the insert of a message.
func insertOf(header nats.Header) string {
	return cmp.Or(header.Get(HeaderInsert), header.Get(HeaderID), header.Get(nats.MsgIdHdr))
}

// setExpected makes the server refuse a message unless the last message of the key has the given sequence, 0 for none.
func setExpected(header nats.Header, k jobmsg.Key, sequence uint64) {
	header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(sequence, 10))
	header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, k.Any())
}

// JobRef is the address of a job. Set Sequence, Subject or both, such as those of a Receipt or StoredJob; [JobByKey] returns the address of
// a unique job.
type JobRef struct {
	// ID must be the ID of the job. Defaults to any ID.
	ID string

	// Sequence is the Sequence of a Receipt or StoredJob. Defaults to 0: the present job of the subject, the latest if it has several.
	Sequence uint64

	// Subject is the subject of the job, including its key. With a Sequence it also finds a job that has become due since, or that has ended
	// and left a record.
	Subject string
}

// JobByKey returns the address of the job that was inserted with a NewJob.Subject and a Unique.Key. A key that Unique refuses is the
// address of no job.
func JobByKey(subject, key string) JobRef {
	return JobRef{Subject: keyed(subject, key)}
}

// String returns the fields of the reference that are set.
func (r JobRef) String() string {
	var said []string
	for _, part := range []struct{ name, value string }{{"id", r.ID}, {"subject", r.Subject}} {
		if part.value != "" {
			said = append(said, fmt.Sprintf("%s %.80q", part.name, part.value))
		}
	}
	if r.Sequence != 0 {
		said = append(said, fmt.Sprint("sequence ", r.Sequence))
	}
	return strings.Join(said, ", ")
}

const (
	maxProgress  = 64 << 10 // bytes, encoded
	progressKept = 24 * time.Hour
)

// Progress is the progress of a job. Its JSON is the value of progress.<stream>.<sequence> in the worker's bucket, and the message on
// ProgressSubject at each write. Fields may be added.
type Progress struct {
	// At is the time at which the worker wrote this, by the worker's clock.
	At time.Time `json:"at"`

	// Attempt is the number of the attempt.
	Attempt int `json:"attempt"`

	// ID is the ID of the job.
	ID string `json:"id"`

	// State is StateRunning, or StateQueued while the job waits for its next attempt.
	State State `json:"state"`

	// Subject is the subject of the job.
	Subject string `json:"subject"`

	// Value is the value that the handler last passed to Job.Progress, null before the first.
	Value json.RawMessage `json:"value"`

	// Worker is the Config.ID of the worker.
	Worker string `json:"worker"`
}

// ProgressSubject returns the subject on which the progress of a job is published at each write. To follow it, subscribe to it with
// nats.go, or watch the key in the bucket. In a stream that is not a work queue each consumer has its own progress, under this subject with
// its name as one more token.
func ProgressSubject(bucket, stream string, sequence uint64) string {
	return "$KV." + bucket + ".progress." + stream + "." + strconv.FormatUint(sequence, 10)
}

// progressOf returns the subject for the progress of a job as a consumer has it.
func progressOf(bucket, stream string, sequence uint64, consumer string, shared bool) string {
	to := ProgressSubject(bucket, stream, sequence)
	if shared {
		to += "." + consumer
	}
	return to
}

// Progress records the progress of the job: any value that JSON can hold, of at most 64 KiB. It replaces the former value and is kept for
// a day. One confirmed write: call it as often as a user may want to look, not in every turn of a loop. A job whose handler does not call
// it is recorded as running once it has run for AckWait/3. Outside a worker it does nothing.
func (j *Job[T]) Progress(ctx context.Context, value any) error {
	r, ok := ctx.Value(attemptKey{}).(*attemptContext)
	if !ok {
		return nil
	}
	data, err := json.Marshal(value)
	if err == nil && len(data) > maxProgress {
		err = fmt.Errorf("%d bytes: use at most %d", len(data), maxProgress)
	}
	if err != nil {
		return fmt.Errorf("worker: progress: %w", err)
	}
	return r.worker.writeProgress(ctx, r.delivery, StateRunning, data)
}

func (w *Worker) writeProgress(ctx context.Context, d *delivery, state State, value json.RawMessage) error {
	data, err := json.Marshal(Progress{
		At: time.Now().UTC(), Attempt: d.info.Attempt, ID: d.info.ID, State: state, Subject: d.info.Subject,
		Value: value, Worker: w.cfg.ID,
	})
	if err != nil {
		return fmt.Errorf("worker: progress: %w", err)
	}
	msg := nats.NewMsg(w.api.Target(progressOf(w.cfg.Bucket, d.info.Stream, d.info.Sequence, d.info.Consumer, w.shared.Load())))
	msg.Data = data
	msg.Header.Set(jetstream.MsgTTLHeader, progressKept.String())
	ctx, cancel := context.WithTimeout(ctx, w.cfg.RequestTimeout)
	defer cancel()
	if _, err := w.js.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("worker: progress: %w", err)
	}
	d.recorded.Store(true)
	return nil
}

// recordState records the state of a job, and reports whether it was recorded.
func (w *Worker) recordState(d *delivery, state State) bool {
	err := w.writeProgress(w.settling, d, state, nil)
	if err != nil {
		w.log.Warn(EventProgressFailed, append(d.attrs(), "error", err)...)
	}
	return err == nil
}
