package kvlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Between two tries of a write whose outcome is unknown. A leader change takes seconds; a lost reply is one try.
const (
	minSettleWait = 5 * time.Millisecond
	maxSettleWait = 250 * time.Millisecond
)

// tryTimeout bounds one try of a write, so that a reply that was lost in a leader change costs one try and not the
// whole operation.
const tryTimeout = time.Second

// change is one conditional write: the record that is to replace revision expect of key.
type change struct {
	key    string
	expect uint64
	record record
	value  []byte
	ttl    time.Duration
	purge  bool      // write a marker: the key is absent to readers
	held   time.Time // until when expect, which was acknowledged to us, is there for sure; zero when it was only read
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
func (f *Flight) write(ctx context.Context, c change) (revision uint64, sent time.Time, err error) {
	data, err := c.record.encode(c.value)
	if err != nil {
		return 0, time.Time{}, err
	}
	ctx, cancel := f.bound(ctx)
	defer cancel()
	var last error
	for wait := minSettleWait; ; wait = min(2*wait, maxSettleWait) {
		sent = time.Now()
		revision, last = f.publish(ctx, f.message(c.key, c.expect, data, c.ttl, c.purge))
		if last == nil {
			return revision, sent, nil
		}
		if isPermanent(last) {
			return 0, sent, f.final("write", c.key, last)
		}
		now, err := f.leader(ctx, c.key)
		if err == nil && now.Revision == 0 && c.outdated(now) {
			if now.Revision, err = f.publish(ctx, f.message(c.key, 0, nil, markerTTL(0), true)); err == nil {
				return 0, sent, &conflictError{slot: now}
			}
		}
		switch {
		case errors.Is(err, ErrVersion):
			return 0, sent, err
		case err != nil:
			last = errors.Join(last, err)
		case now.Revision == c.expect || c.outdated(now): // not applied, or not yet, or not seen
		case now.writer == c.record.Owner && (now.State == Pending || now.State == parseState(c.record.State)):
			c.expect = now.Revision
			continue
		default:
			return 0, sent, &conflictError{slot: now}
		}
		if !pause(ctx, wait) {
			return 0, sent, f.unavailable(ctx, "write", []string{c.key}, last)
		}
	}
}

// message is a write to key that the server accepts only while revision expect is the last; 0 means none. A ttl of 0 is
// none. With purge it is a marker: readers find the key absent.
func (f *Flight) message(key string, expect uint64, data []byte, ttl time.Duration, purge bool) *nats.Msg {
	m := nats.NewMsg(f.put + key)
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

// publish sends one try. It sends nothing while the connection is down: the client would keep the message and send it
// much later, when its claim is long over.
func (f *Flight) publish(ctx context.Context, m *nats.Msg) (uint64, error) {
	if !f.nc.IsConnected() {
		return 0, fmt.Errorf("not sent: %w", nats.ErrDisconnected)
	}
	if int64(len(m.Data)) > f.nc.MaxPayload() {
		return 0, fmt.Errorf("%w: record of %d bytes, the server takes %d", nats.ErrMaxPayload, len(m.Data), f.nc.MaxPayload())
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	before := f.highest.Load()
	reply, err := f.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return 0, fmt.Errorf("publish: %w", err)
	}
	var ack struct {
		Error    *jetstream.APIError `json:"error"`
		Sequence uint64              `json:"seq"`
		Stream   string              `json:"stream"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return 0, fmt.Errorf("acknowledgement is not JSON: %w", err)
	}
	if ack.Error != nil {
		return 0, ack.Error
	}
	if ack.Stream != streamName(f.cfg.Bucket) || ack.Sequence == 0 {
		return 0, fmt.Errorf("acknowledgement of stream %q at %d, which is not the bucket's", ack.Stream, ack.Sequence)
	}
	f.acknowledged(ctx, before, ack.Sequence)
	return ack.Sequence, nil
}

// final explains an error after which no other try was made.
func (f *Flight) final(op, key string, err error) error {
	if isFull(err) || errors.Is(err, nats.ErrConnectionClosed) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("kvlock: %s %q in bucket %q: %w", op, key, f.cfg.Bucket, err)
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
	return isFull(err) || errors.As(err, &api) && api.Code >= 400 && api.Code < 500 && !isRefused(err)
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
	codeAccountFull = 10002
	codeMemoryFull  = 10028
	codeStorageFull = 10047
	codeStoreFailed = 10077 // whatever the reason; the limits of the stream are among them
)

// pause waits about d, ±50 %, and says whether ctx still runs.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d/2 + rand.N(d)) //nolint:gosec // spreads retries, guards nothing
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
