package worker

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
)

// Headers of the message of a dead letter. With them, a consumer of headers only can list and group letters.
const (
	// HeaderDeadReason holds the letter's Reason.
	HeaderDeadReason = "Dead-Reason"

	// HeaderDeadSignature holds the letter's Signature.
	HeaderDeadSignature = "Dead-Signature"

	// HeaderDeadWorker holds the beginning of the letter's Worker.
	HeaderDeadWorker = "Dead-Worker"
)

// Headers of a job that was replayed from the dead letters.
const (
	// HeaderReplay holds the number of replays of the job, from 1.
	HeaderReplay = "Job-Replay"

	// HeaderReplayOf holds the letter: "<dead letter stream>:<sequence>".
	HeaderReplayOf = "Job-Replay-Of"

	// HeaderResume holds the job whose steps (package step) this job has too, see [DeadLetter.Resume].
	HeaderResume = "Job-Resume"
)

const (
	deadKept     = 30 * 24 * time.Hour
	deadWindow   = 24 * time.Hour // of duplicates
	maxErrorText = 4 << 10

	// encodingGzip marks a payload that is compressed in the message.
	encodingGzip = "gzip"

	// headerRoom is the number of bytes that are left for the headers of a dead letter's message.
	headerRoom = 1 << 10

	// maxPayload bounds the payload that ParseDeadLetter decompresses. It is the largest message that a server can be configured to accept.
	maxPayload = 64 << 20

	// maxDeadSubject bounds the subject of a dead letter's message. A server drops the connection that sends a longer line than its
	// max_control_line, 4 KiB by default, which the job's own subject may nearly fill.
	maxDeadSubject = 3 << 10

	// minPart is the smallest size of a part of a large letter that is tried. A stream that refuses it takes no letter.
	minPart = 16 << 10
)

// ErrDeadLetter is returned when bytes are not a dead letter.
var ErrDeadLetter = errors.New("worker: not a dead letter")

// Reason is the reason that a job was given up.
type Reason string

const (
	// ReasonDiscarded means that the handler returned [Discard].
	ReasonDiscarded Reason = "discarded"

	// ReasonExhausted means that the last attempt failed, or its worker died.
	ReasonExhausted Reason = "exhausted"

	// ReasonUndecodable means that Policy.Decode refused the payload.
	ReasonUndecodable Reason = "undecodable"
)

// DeadLetter is a job that was given up, with all data needed to find the reason and to run the job again. Its JSON is the body of a
// message on <DeadSubject>.<stream>.<original subject>, cut at 3 KiB. Fields may be added, never changed.
type DeadLetter struct {
	// Attempts is the number of attempts used.
	Attempts int `json:"attempts"`

	// Consumer is the durable name of the consumer that gave up.
	Consumer string `json:"consumer"`

	// DeadAt is the time at which the job was given up, by the worker's clock.
	DeadAt time.Time `json:"deadAt"`

	// Deliveries is the number of deliveries of the message.
	Deliveries int `json:"deliveries"`

	// EnqueuedAt is the time at which the stream stored the job, by the server's clock.
	EnqueuedAt time.Time `json:"enqueuedAt"`

	// Error is the text of the last error, at most 4 KiB.
	Error string `json:"error"`

	// Header holds the headers of the job. Bytes that are not UTF-8 are replaced.
	Header map[string][]string `json:"header,omitempty"`

	// ID is the job's ID, see Info.
	ID string `json:"id"`

	// MaxAttempts is the number of attempts that the policy allowed.
	MaxAttempts int `json:"maxAttempts"`

	// Parts is set when the letter was too large for one message. Its JSON is then in the bodies of the messages with these sequences in the
	// dead letter stream, in this order, and this letter has neither payload nor headers. [ParseDeadLetter] of the joined bodies returns the
	// letter.
	Parts []uint64 `json:"parts,omitempty"`

	// Payload is the job's payload, byte for byte (base64 in JSON).
	Payload []byte `json:"payload"`

	// PayloadEncoding is "gzip" in a message when the letter would not fit otherwise. ParseDeadLetter decompresses the payload and leaves
	// PayloadEncoding empty.
	PayloadEncoding string `json:"payloadEncoding,omitempty"`

	// Reason is the reason that the job was given up.
	Reason Reason `json:"reason"`

	// Sequence is the job's position in the stream.
	Sequence uint64 `json:"sequence"`

	// Signature is the text of the error without the parts that differ between jobs (numbers, ids, quoted values). It is equal for errors of
	// one kind. At most 200 bytes.
	Signature string `json:"signature"`

	// Stack is the stack of a panic, at most 8 KiB.
	Stack string `json:"stack,omitempty"`

	// Stream is the stream that held the job.
	Stream string `json:"stream"`

	// Subject is the subject to which the job was published.
	Subject string `json:"subject"`

	// Version is the version of the program that gave up.
	Version string `json:"version,omitempty"`

	// Worker is the Config.ID of the worker that gave up.
	Worker string `json:"worker"`
}

// Resume returns the value of [HeaderResume] with which a replay of the letter's job does not repeat steps whose results are recorded. It
// works for as long as the steps are kept (Config.StepTTL), within the same stream and consumer; later the job starts over.
func (l DeadLetter) Resume() string {
	if key := nats.Header(l.Header).Get(HeaderResume); journal.ValidKey(key) {
		return key // it was a replay itself
	}
	return journal.Key(l.Sequence, l.EnqueuedAt)
}

// ParseDeadLetter reads the body of a dead letter's message. The error wraps [ErrDeadLetter].
func ParseDeadLetter(data []byte) (DeadLetter, error) {
	var letter DeadLetter
	if err := json.Unmarshal(data, &letter); err != nil {
		return DeadLetter{}, fmt.Errorf("%w: %w", ErrDeadLetter, err)
	}
	if letter.Stream == "" || letter.Subject == "" {
		return DeadLetter{}, fmt.Errorf("%w: stream or subject is missing", ErrDeadLetter)
	}
	switch letter.PayloadEncoding {
	case "":
	case encodingGzip:
		payload, err := unpack(letter.Payload)
		if err != nil {
			return DeadLetter{}, fmt.Errorf("%w: payload: %w", ErrDeadLetter, err)
		}
		letter.Payload, letter.PayloadEncoding = payload, ""
	default:
		return DeadLetter{}, fmt.Errorf("%w: unknown payload encoding %q", ErrDeadLetter, letter.PayloadEncoding)
	}
	return letter, nil
}

// readLetter returns the job of a dead letter.
func (l *list) readLetter(m jsapi.Message) (StoredJob, bool) {
	stream, to, _ := strings.Cut(strings.TrimPrefix(m.Subject, l.client.cfg.DeadSubject+"."), ".")
	letter, err := ParseDeadLetter(m.Data)
	if stream != l.client.cfg.Stream || err != nil || strings.HasPrefix(to, "$") {
		return StoredJob{}, false // a letter of another stream, an advisory, or a part or record of a letter
	}
	return StoredJob{
		Consumer: letter.Consumer, Header: letter.Header, ID: letter.ID, DeadLetter: &letter, Payload: letter.Payload, Sequence: m.Sequence,
		Since: m.Time, State: StateDead, Stream: letter.Stream, Subject: to,
	}, true
}

// encode returns the letter's JSON. The payload is compressed if the JSON is longer than limit (0 for no limit) and compression makes it
// shorter.
func (l DeadLetter) encode(limit int) ([]byte, error) {
	data, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("worker: encode dead letter: %w", err)
	}
	if limit <= 0 || len(data) <= limit {
		return data, nil
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, werr := writer.Write(l.Payload)
	if err = errors.Join(werr, writer.Close()); err != nil {
		return nil, fmt.Errorf("worker: pack dead letter: %w", err)
	}
	if packed.Len() >= len(l.Payload) {
		return data, nil
	}
	l.Payload, l.PayloadEncoding = packed.Bytes(), encodingGzip
	return l.encode(0)
}

func unpack(data []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	payload, err := io.ReadAll(io.LimitReader(reader, maxPayload+1))
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	if len(payload) > maxPayload {
		return nil, fmt.Errorf("unpacks to more than %d bytes", maxPayload)
	}
	return payload, nil
}

// deadLetter calls the policy's OnDeadLetter, publishes the dead letter of a job, and returns nil once the server has stored
// it. The message ID is made of the job's place in its stream, so that a repetition after a lost answer or a crash is the same
// letter.
func (w *Worker) deadLetter(d *delivery, reason Reason, cause error) error {
	letter := w.letter(d, reason, cause)
	ctx, cancel := context.WithTimeout(w.settling, w.cfg.SettleTimeout)
	defer cancel()
	if err := w.onDeadLetter(ctx, d.policy, letter); err != nil {
		return err
	}
	return repeat(ctx, firstWait, isConnected, func() error {
		_, err := publishLetter(ctx, w.js, w.cfg.DeadSubject, letter, w.cfg.RequestTimeout)
		return err
	})
}

func (w *Worker) letter(d *delivery, reason Reason, cause error) DeadLetter {
	letter := DeadLetter{
		Attempts: d.info.Attempt, Consumer: d.info.Consumer, DeadAt: time.Now().UTC(),
		Deliveries: d.info.Deliveries, EnqueuedAt: d.info.EnqueuedAt.UTC(), Error: clip(cause.Error(), maxErrorText),
		Header: d.msg.Header, ID: d.info.ID, MaxAttempts: d.info.MaxAttempts, Payload: d.msg.Data, Reason: reason,
		Sequence: d.info.Sequence, Signature: cmp.Or(signatureOf(cause.Error()), "(no text)"), Stream: d.info.Stream, Subject: d.info.Subject,
		Version: clip(w.cfg.Version, maxShort), Worker: w.cfg.ID,
	}
	if fatal, ok := errors.AsType[*PanicError](cause); ok {
		letter.Stack = clip(string(fatal.Stack), maxStacks)
	}
	return letter
}

// PublishDeadLetter stores a letter under <deadSubject>.<Stream>.<Subject> and returns its sequence once the server has confirmed it. A
// worker does so by itself; this function is for programs that give up jobs without a worker. If it is repeated within the stream's
// duplicate window, the letter is stored once.
//
// A letter that does not fit into a message is compressed, and stored in parts if it still does not fit: one round trip for each part, and
// one for the letter behind them.
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
		if sequence, err = p.store(ctx, letter.Subject, whole, letter.messageID()); !jsapi.IsTooLarge(err) {
			return sequence, err
		}
	}
	// The stream's limit may be lower than the server's.
	for limit = min(limit, len(whole)-1); limit >= minPart; limit /= 2 {
		if sequence, err = p.storeParts(ctx, whole, limit); !jsapi.IsTooLarge(err) {
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
	prefix string // the prefix of the letter's subjects, with the last dot
}

// storeParts stores the letter's JSON in parts of at most limit bytes, and last a letter with the sequences of the parts. A call that ends
// in between leaves parts without a letter, which the next call uses.
func (p letterStore) storeParts(ctx context.Context, whole []byte, limit int) (uint64, error) {
	stub := p.letter
	stub.Header, stub.Payload, stub.Parts = nil, nil, nil
	chunks := slices.Collect(slices.Chunk(whole, limit))
	for i, chunk := range chunks {
		seq, err := p.store(ctx, fmt.Sprintf("%s.%d.%d", jobmsg.TokenPart, p.letter.Sequence, i+1), chunk,
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
	to := p.prefix + subject
	if len(to) > maxDeadSubject {
		to = strings.TrimRight(strings.ToValidUTF8(to[:maxDeadSubject], ""), ".")
	}
	msg := nats.NewMsg(to)
	msg.Data = data
	if subject == p.letter.Subject { // parts need no headers for lists and groups
		msg.Header.Set(HeaderDeadReason, string(p.letter.Reason))
		msg.Header.Set(HeaderDeadSignature, p.letter.Signature)
		msg.Header.Set(HeaderDeadWorker, clip(p.letter.Worker, maxShort))
	}
	ack, err := p.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id))
	if err != nil {
		return 0, fmt.Errorf("worker: publish dead letter to %s: %w", msg.Subject, err)
	}
	return ack.Sequence, nil
}

// messageID returns an ID that is the same whenever this consumer gives this job up. It has the time at which the job was stored, because
// the sequences of a stream that was deleted and made again start over.
func (l DeadLetter) messageID() string {
	return fmt.Sprintf("dead:%s:%s:%d:%d", l.Stream, l.Consumer, l.Sequence, l.EnqueuedAt.UnixNano())
}
