package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

	// minPart is the smallest part of a large letter that is tried. A stream that does not
	// take it takes no letter.
	minPart = 16 << 10
)

// bury has the policy do what follows from the job's end, publishes its dead letter, and returns nil once
// the server has stored that. The message ID is made of the job's place in its stream, so that a
// repetition after a lost answer or a crash is the same letter.
func (w *Worker) bury(d *delivery, reason Reason, cause error) error {
	letter := w.letter(d, reason, cause)

	ctx, cancel := context.WithTimeout(w.settling, w.cfg.SettleTimeout)
	defer cancel()

	if err := d.policy.bury(ctx, letter); err != nil {
		return err
	}

	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		_, err := publishLetter(ctx, w.js, w.cfg.DeadSubject, letter, w.cfg.RequestTimeout)
		if err == nil {
			return nil
		}

		if errors.Is(err, nats.ErrConnectionClosed) || !sleep(ctx, wait) {
			return err
		}
	}
}

// PublishDeadLetter stores a letter under <deadSubject>.<Stream>.<Subject> and returns its
// sequence there once the server has confirmed it. A worker does so by itself; it is for programs that give up
// jobs without one. Repeating it within the stream's duplicate window stores it once.
//
// A letter that does not fit into a message is packed, and stored in parts when that does
// not help: one round trip for each part, and one for the letter behind them.
func PublishDeadLetter(ctx context.Context, js jetstream.JetStream, deadSubject string, letter DeadLetter) (uint64, error) {
	if letter.Stream == "" || letter.Subject == "" {
		return 0, fmt.Errorf("%w: stream or subject is missing", ErrDeadLetter)
	}

	const each = 5 * time.Second

	return publishLetter(ctx, js, deadSubject, letter, each)
}

func publishLetter(ctx context.Context, js jetstream.JetStream, prefix string, letter DeadLetter, each time.Duration) (uint64, error) {
	limit := int(js.Conn().MaxPayload()) - headerRoom

	whole, err := letter.encode(limit)
	if err != nil {
		return 0, err
	}

	var sequence uint64

	p := letterStore{each: each, js: js, letter: letter, prefix: prefix + "." + letter.Stream + "."}
	if len(whole) <= limit {
		if sequence, err = p.store(ctx, letter.Subject, whole, letter.messageID()); !isTooLarge(err) {
			return sequence, err
		}
	}

	// The stream may take less than the server.
	for limit = min(limit, len(whole)-1); limit >= minPart; limit /= 2 {
		if sequence, err = p.storeParts(ctx, whole, limit); !isTooLarge(err) {
			return sequence, err
		}
	}

	return 0, err
}

// letterStore stores one letter.
type letterStore struct {
	each   time.Duration // for one request
	js     jetstream.JetStream
	letter DeadLetter
	prefix string // of its subjects, with the last dot
}

// storeParts stores the letter's JSON in parts of at most limit bytes, and last a letter
// that says where they are. What is left of an attempt that ends in between are parts
// without a letter, which the next attempt uses.
func (p letterStore) storeParts(ctx context.Context, whole []byte, limit int) (uint64, error) {
	stub := p.letter
	stub.Header, stub.Payload, stub.Parts = nil, nil, nil

	chunks := slices.Collect(slices.Chunk(whole, limit))
	for i, chunk := range chunks {
		seq, err := p.store(ctx, fmt.Sprintf("%s.%d.%d", TokenPart, p.letter.Sequence, i+1), chunk,
			fmt.Sprintf("%s:part:%d:%d", p.letter.messageID(), i+1, len(chunks)))
		if err != nil {
			return 0, err
		}

		stub.Parts = append(stub.Parts, seq)
	}

	data, err := stub.encode(0)
	if err != nil {
		return 0, err
	}

	return p.store(ctx, stub.Subject, data, stub.messageID())
}

func (p letterStore) store(ctx context.Context, subject string, data []byte, id string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, p.each)
	defer cancel()

	msg := nats.NewMsg(p.prefix + subject)
	msg.Data = data

	if subject == p.letter.Subject { // parts are nothing to list or group
		msg.Header.Set(HeaderDeadReason, string(p.letter.Reason))
		msg.Header.Set(HeaderDeadSignature, p.letter.Signature)
	}

	ack, err := p.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id))
	if err != nil {
		return 0, fmt.Errorf("worker: publish dead letter to %s: %w", msg.Subject, err)
	}

	return ack.Sequence, nil
}

// isTooLarge recognises the refusal of a message that is longer than the stream or the
// connection takes.
func isTooLarge(err error) bool {
	const messageTooLarge = 10054

	var api *jetstream.APIError

	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &api) && api.ErrorCode == messageTooLarge
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
		Sequence: d.info.Sequence, Signature: cmp.Or(signature.Of(cause.Error()), "(no text)"), Stream: d.info.Stream, Subject: d.info.Subject,
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
