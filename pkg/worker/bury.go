package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker/internal/signature"
)

const (
	maxErrorText = 4 << 10
	maxStackText = 8 << 10

	// headerRoom is left for the headers of a dead letter's message.
	headerRoom = 1 << 10
)

// bury publishes the dead letter of a job and returns nil once the server has stored it.
// The message ID is made of the job's place in its stream, so that a repetition after a
// lost answer or a crash is the same letter.
func (w *Worker) bury(d *delivery, reason Reason, cause error) error {
	letter := w.letter(d, reason, cause)

	data, err := letter.encode(int(w.nc.MaxPayload()) - headerRoom)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(w.settling, w.cfg.SettleTimeout)
	defer cancel()

	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		if err = w.publishLetter(ctx, letter, data); err == nil {
			return nil
		}

		if errors.Is(err, nats.ErrConnectionClosed) || !sleep(ctx, wait) {
			return err
		}
	}
}

func (w *Worker) publishLetter(ctx context.Context, letter DeadLetter, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.RequestTimeout)
	defer cancel()

	msg := nats.NewMsg(w.cfg.DeadSubject + "." + letter.Stream + "." + letter.Subject)
	msg.Data = data
	msg.Header.Set(HeaderDeadReason, string(letter.Reason))
	msg.Header.Set(HeaderDeadSignature, letter.Signature)

	if _, err := w.js.PublishMsg(ctx, msg, jetstream.WithMsgID(letter.messageID())); err != nil {
		return fmt.Errorf("worker: publish dead letter to %s: %w", msg.Subject, err)
	}

	return nil
}

// messageID is the same whenever this job is given up by this consumer. The time tells
// apart a stream that was deleted and made again, whose sequences start over.
func (l DeadLetter) messageID() string {
	return fmt.Sprintf("dead:%s:%s:%d:%d", l.Stream, l.Consumer, l.Sequence, l.EnqueuedAt.UnixNano())
}

func (w *Worker) letter(d *delivery, reason Reason, cause error) DeadLetter {
	letter := DeadLetter{
		Attempts: min(d.info.Attempt, d.info.MaxAttempts), Consumer: d.info.Consumer, DeadAt: time.Now().UTC(),
		Deliveries: d.info.Deliveries, EnqueuedAt: d.info.EnqueuedAt.UTC(), Error: clip(cause.Error(), maxErrorText),
		Header: d.msg.Header, ID: d.info.ID, MaxAttempts: d.info.MaxAttempts, Payload: d.msg.Data, Reason: reason,
		Sequence: d.info.Sequence, Signature: signature.Of(cause.Error()), Stream: d.info.Stream, Subject: d.info.Subject,
		Worker: w.cfg.ID,
	}

	if fatal, ok := errors.AsType[*PanicError](cause); ok {
		letter.Stack = clip(string(fatal.Stack), maxStackText)
	}

	return letter
}

// clip shortens a text to at most limit bytes of valid UTF-8.
func clip(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
	}

	return strings.ToValidUTF8(text, "?")
}
