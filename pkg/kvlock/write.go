package kvlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/backoff"
)

// Between two tries of a write whose outcome is unknown. A leader change takes seconds; a lost reply is one try.
const (
	minSettleWait = time.Millisecond
	maxSettleWait = 250 * time.Millisecond
)

// tryTimeout bounds one try of a write, so that a reply that was lost in a leader change costs one try and not the
// whole operation.
const tryTimeout = time.Second

// change is one conditional write: the record that is to replace revision expect of key.
type change struct {
	key    string
	expect uint64
	record record // may be left out of a marker
	value  []byte // as it is stored
	opened []byte // the same as callers see it
	ttl    time.Duration
	purge  bool          // write a marker: the key is absent to readers
	held   time.Time     // until when expect, which was acknowledged to us, is there for sure; zero when it was only read
	pushed func() Slot   // the last that was pushed of key, which saves a read when it is later than expect; may be nil
	within time.Duration // bounds each try and each reading back, if that is less than tryTimeout; 0 for none
}

// hurry is how long a try may take at most.
func (c change) hurry() time.Duration {
	if c.within == 0 {
		return tryTimeout
	}
	return min(c.within, tryTimeout)
}

// data is what the message holds.
func (c change) data() ([]byte, error) {
	if c.purge && c.record.Version == 0 {
		return nil, nil
	}
	return c.record.encode(c.value)
}

// ours says that the change was applied, or an earlier one whose outcome nobody learnt.
func (c change) ours(now Slot) bool {
	same := now.State == parseState(c.record.State) && now.Claim == c.record.Claim // one that is put back is of an earlier claim
	return now.in().writer != "" && now.in().writer == c.record.Owner && (now.State == Pending || same)
}

// outdated says that a read shows less than what was acknowledged to us and cannot be over yet: whoever answered was
// deposed and does not know. Or the key is absent after all, because somebody else claimed it meanwhile for a shorter
// time; a marker, which is only accepted where the key is absent, tells the two apart.
func (c change) outdated(now Slot) bool {
	return now.Revision < c.expect && time.Now().Before(c.held)
}

// conflictError says that a change did not come about, and what the key holds instead.
type conflictError struct {
	slot Slot
}

func (e *conflictError) Error() string {
	return fmt.Sprintf("key %q is %s at revision %d", e.slot.Key, e.slot.State, e.slot.Revision)
}

// write makes the change, or returns a conflictError when the key moved on. It returns the new revision, and the time
// at which the try that the server acknowledged was sent.
//
// A refusal proves no more than a time-out does: around a leader change both have been seen for writes that were
// applied. So after either the key is read back from the leader, and what it holds is compared with the unique owner in
// our record. A read may be old too. So if the record is ours, of this write or of an earlier one whose outcome nobody
// learnt, the write is confirmed by another conditional write on the revision found; and if the key is unchanged, by the
// same write again. Only an acknowledgement, or a later record of somebody else, ends the matter for good. One round
// trip when all is well; three when the outcome was unknown.
func (s *store) write(ctx context.Context, c change) (revision uint64, sent time.Time, err error) {
	data, err := c.data()
	if err != nil {
		return 0, time.Time{}, err
	}
	sent = time.Now()
	if revision, err = s.try(ctx, c, data, s.opTimeout); err == nil {
		return revision, sent, nil
	}
	ctx, cancel := s.boundBy(ctx, sent.Add(s.opTimeout))
	defer cancel()
	return s.insist(ctx, c, data, sent, err)
}

// try sends the change, whose data is given, once, and waits for no longer than bound.
func (s *store) try(ctx context.Context, c change, data []byte, bound time.Duration) (revision uint64, err error) {
	m := s.message(c.key, c.expect, data, c.ttl, c.purge)
	m.Header.Set(headerState, c.record.State) // for who reads headers only
	return s.publish(ctx, m, min(c.hurry(), bound))
}

// insist is the rest of write: after a try that was sent at sent and ended with the error last.
func (s *store) insist(ctx context.Context, c change, data []byte, sent time.Time, last error) (uint64, time.Time, error) {
	for wait := minSettleWait; ; wait = min(2*wait, maxSettleWait) {
		if isPermanent(last) {
			return 0, sent, s.final("write", c.key, last)
		}
		now, err := s.now(ctx, c)
		if err == nil && now.Revision == 0 && c.outdated(now) {
			if now.Revision, err = s.publish(ctx, s.message(c.key, 0, nil, markerTTL(0), true), tryTimeout); err == nil {
				return 0, sent, &conflictError{slot: now}
			}
		}
		applied := err == nil && now.Revision != c.expect && !c.outdated(now)
		switch {
		case isForeign(err):
			return 0, sent, err
		case applied && !c.ours(now):
			return 0, sent, &conflictError{slot: now}
		case applied:
			c.expect = now.Revision
		default: // not applied, or not yet, or not seen
			if !backoff.Pause(ctx, wait) {
				return 0, sent, s.unavailable(ctx, "write", []string{c.key}, errors.Join(last, err))
			}
		}
		sent = time.Now()
		var revision uint64
		if revision, last = s.try(ctx, c, data, tryTimeout); last == nil {
			return revision, sent, nil
		}
	}
}

// now is what the key of a change holds after the change was not acknowledged.
func (s *store) now(ctx context.Context, c change) (Slot, error) {
	if c.pushed != nil {
		if slot := c.pushed(); slot.Revision > c.expect {
			return slot, nil
		}
	}
	if c.within == 0 {
		return s.leader(ctx, c.key)
	}
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	return s.leader(ctx, c.key)
}

// message is a write to key that the server accepts only while revision expect is the last; 0 means none. A ttl of 0 is
// none. With purge it is a marker: readers find the key absent.
func (s *store) message(key string, expect uint64, data []byte, ttl time.Duration, purge bool) *nats.Msg {
	m := nats.NewMsg(s.put + key)
	m.Data = data
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(expect, 10))
	if ttl > 0 {
		m.Header.Set(jetstream.MsgTTLHeader, strconv.FormatInt(seconds(ttl), 10)+"s")
	}
	if purge {
		m.Header.Set(headerOperation, operationPurge)
		m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	}
	return m
}

// publish sends one try of a write to the bucket, and waits for no longer than bound.
func (s *store) publish(ctx context.Context, m *nats.Msg, bound time.Duration) (uint64, error) {
	before, began := s.highest.Load(), time.Now()
	revision, err := s.send(ctx, s.stream, m, bound)
	if err == nil {
		s.acknowledged(ctx, before, revision, began.Add(bound))
		s.memory.changed(strings.TrimPrefix(m.Subject, s.put), revision)
	}
	return revision, err
}

// send sends m to stream, once, and returns the sequence at which it was stored. It sends nothing while the connection
// is down: the client would keep the message and send it much later, when its claim is long over.
func (s *store) send(ctx context.Context, stream string, m *nats.Msg, bound time.Duration) (uint64, error) {
	if !s.nc.IsConnected() {
		return 0, fmt.Errorf("not sent: %w", nats.ErrDisconnected)
	}
	if int64(len(m.Data)) > s.nc.MaxPayload() {
		return 0, fmt.Errorf("%w: %d bytes, the server takes %d", nats.ErrMaxPayload, len(m.Data), s.nc.MaxPayload())
	}
	reply, err := s.acks.Request(ctx, m, bound)
	if err != nil {
		return 0, fmt.Errorf("publish: %w", err)
	}
	var ack acknowledgement
	if err := ack.read(reply.Data); err != nil {
		return 0, fmt.Errorf("acknowledgement is not JSON: %w", err)
	}
	if ack.Error != nil {
		return 0, ack.Error
	}
	if ack.Stream != stream || ack.Sequence == 0 {
		return 0, fmt.Errorf("acknowledgement of stream %q at %d instead of %q", ack.Stream, ack.Sequence, stream)
	}
	return ack.Sequence, nil
}

// acknowledgement is what the server answers to a write.
type acknowledgement struct {
	Error    *jetstream.APIError `json:"error"`
	Sequence uint64              `json:"seq"`
	Stream   string              `json:"stream"`
}

func (a *acknowledgement) read(data []byte) error {
	if plain(string(data), a.set) {
		return nil
	}
	*a = acknowledgement{}
	return json.Unmarshal(data, a) //nolint:wrapcheck // by send
}

// set sets one of the members of an acknowledgement that is not of an error.
func (a *acknowledgement) set(name, value string) bool {
	switch name {
	case "seq":
		return setNumber(&a.Sequence, value)
	case "stream":
		return setString(&a.Stream, value)
	default:
		return name == "domain" || name == "duplicate"
	}
}

// final explains an error after which no other try was made.
func (s *store) final(op, key string, err error) error {
	switch {
	case isFull(err) || errors.Is(err, nats.ErrConnectionClosed):
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	case isTooLarge(err):
		err = fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return fmt.Errorf("kvlock: %s %q in bucket %q: %w", op, key, s.bucket, err)
}

// isRefused says that the server compared revisions and found another one.
func isRefused(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// isPermanent says that sending the same again cannot help: the message itself, the bucket's settings or its limits are
// at fault. All that a change of leader can cause is left out.
func isPermanent(err error) bool {
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrConnectionClosed) {
		return true
	}
	var api *jetstream.APIError
	return isFull(err) || errors.As(err, &api) && api.Code >= 400 && api.Code < 500 && api.ErrorCode != codeInProcess && !isRefused(err)
}

// isTooLarge says that the server takes no message of this size.
func isTooLarge(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == codeMessageTooLarge
}

// isFull says that the bucket, the account or the server stores nothing more.
func isFull(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode {
	case codeAccountFull, codeMemoryFull, codeStorageFull:
		return true
	case codeStoreFailed:
		return strings.HasPrefix(api.Description, "maximum ")
	default:
		return false
	}
}

// Codes of the server that the client has no names for.
const (
	codeAccountFull     = 10002
	codeMemoryFull      = 10028
	codeStorageFull     = 10047
	codeMessageTooLarge = 10054
	codeInProcess       = 10158 // the same message was sent before, and is being stored
	codeStoreFailed     = 10077 // whatever the reason; the limits of the stream are among them
)
