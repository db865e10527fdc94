package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
)

// errGone is the error of an attempt at a job that is not in its stream any more.
var errGone = errors.New("worker: the job is gone from its stream: it ended elsewhere, or was deleted")

// doubtedAfter is how long a delivery may be without a confirmed heartbeat before another worker may have the job: one heartbeat
// may be lost. The rest of AckWait is for a heartbeat that a leader confirms, and dies with before others know of it.
func (w *Worker) doubtedAfter() time.Duration {
	return w.cfg.AckWait * (beatsPerAckWait - 1) / beatsPerAckWait
}

// isDoubted reports whether another worker may have been given the job since d came: heartbeats were not confirmed in time,
// because the connection, a leader or this process was away, or the consumer was made again, or has lost count.
func (t *deliveries) isDoubted(d *delivery, now time.Time, after time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return d.doubted || d.orphan || apart(d.known, now) > after
}

// apart returns the time from one time to another, by whichever clock says more: the monotonic one stands still while a machine
// sleeps.
func apart(from, to time.Time) time.Duration {
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))
}

// beats are the heartbeats that the worker sends.
type beats struct {
	connects uint64 // of the connection, when the latest was sent
	inbox    string // of the confirmations, with its last dot
	number   uint64 // of the latest
	sent     time.Time
}

// beat sends a heartbeat for each delivery, and for one of each consumer another behind them that the consumer's leader confirms.
func (w *Worker) beat(now time.Time) {
	if !w.nc.IsConnected() {
		return // from the client's buffer they would arrive too late to be true
	}
	// Under the lock, so that none can follow the NAK of its job.
	t := &w.deliveries
	t.mu.Lock()
	defer t.mu.Unlock()
	w.beats.number++
	w.beats.connects, w.beats.sent = w.nc.Stats().Reconnects, now
	last := make(map[string]string)
	for _, d := range t.bySeq {
		if d.beating {
			_ = w.nc.Publish(d.reply, []byte(ackProgress)) //nolint:errcheck // the next one is near
			last[d.info.Consumer] = d.reply
		}
	}
	for consumer, reply := range last {
		inbox := fmt.Sprintf("%s%d.%s", w.beats.inbox, w.beats.number, consumer)
		_ = w.nc.PublishRequest(reply, inbox, []byte(ackProgress)) //nolint:errcheck // the next one is near
	}
}

// confirmed takes the confirmation of a heartbeat. One that comes after the next heartbeat says nothing, nor does one that went
// over a new connection: those before it may have gone with the old one.
func (w *Worker) confirmed(msg *nats.Msg) {
	number, consumer, _ := strings.Cut(strings.TrimPrefix(msg.Subject, w.beats.inbox), ".")
	t, now := &w.deliveries, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(msg.Header) > 0 || number != strconv.FormatUint(w.beats.number, 10) || w.nc.Stats().Reconnects != w.beats.connects {
		return
	}
	for _, d := range t.bySeq {
		switch {
		case d.info.Consumer != consumer || !d.beating || d.known.After(w.beats.sent):
		case apart(d.known, now) > w.doubtedAfter():
			d.doubted = true
		default:
			d.known = w.beats.sent
		}
	}
}

// lookAtConsumers finds consumers that were made again while the worker did not pull from them, of those whose jobs it holds.
// One round trip for each, at each heartbeat.
func (w *Worker) lookAtConsumers(ctx context.Context) {
	held := make(map[string]bool)
	w.deliveries.each(func(d *delivery) { held[d.info.Consumer] = true })
	for _, c := range w.classes {
		if !held[c.consumer] {
			continue
		}
		once, cancel := context.WithTimeout(ctx, w.cfg.RequestTimeout)
		found, err := w.js.Consumer(once, w.cfg.Stream, c.consumer)
		cancel()
		if err == nil {
			w.noteConsumer(c, found)
			if w.ordered {
				w.order.acknowledged(found.CachedInfo())
			}
		}
	}
}

// checkThere returns errGone when a job that another worker may have been given is no longer in its stream: there the other
// worker has ended it. Only a work queue shows that; in other streams jobs stay. One round trip, to the stream's leader. A leader
// that was deposed and does not know it may still have the job, as may one that applies an acknowledgement at this moment.
func (w *Worker) checkThere(ctx context.Context, d *delivery) error {
	switch msg, found, err := w.api.Get(ctx, d.info.Stream, jsapi.Query{Sequence: d.info.Sequence}); {
	case err != nil:
		return fmt.Errorf("%w: %w", errRecordUnknown, w.denial(err))
	case !found || !msg.Time.Equal(d.info.EnqueuedAt):
		return errGone
	default:
		return nil
	}
}

// checkHeld is checkThere for a job that is about to start. It reads only after a disturbance, or when a job that waited for a
// limit had been delivered before: the former worker may still have it.
func (w *Worker) checkHeld(d *delivery) error {
	if w.mayBeOthers(d) {
		return errDoubted // the other worker may be at it
	}
	if again := d.first > 1 && d.waited; !again && !w.deliveries.isDoubted(d, time.Now(), w.doubtedAfter()) {
		return nil
	}
	return w.checkThere(w.settling, d)
}

// checkStep is checkThere for a step that is about to run. It reads only after a disturbance.
func (w *Worker) checkStep(ctx context.Context, d *delivery) (doubted bool, err error) {
	if !w.deliveries.isDoubted(d, time.Now(), w.doubtedAfter()) {
		return false, nil
	}
	if err = w.checkThere(ctx, d); errors.Is(err, errGone) {
		err = journal.ErrGone
	}
	return true, err
}
