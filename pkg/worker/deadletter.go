package worker

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Headers of the message that carries a dead letter, so that a consumer of headers only
// can list and group.
const (
	// HeaderDeadReason holds the letter's Reason.
	HeaderDeadReason = "Dead-Reason"

	// HeaderDeadSignature holds the letter's Signature.
	HeaderDeadSignature = "Dead-Signature"
)

// maxPayload bounds what ParseDeadLetter unpacks. It is the largest message that a server
// can be set to accept.
const maxPayload = 64 << 20

// encodingGzip marks a payload that is packed on the wire.
const encodingGzip = "gzip"

// Tokens that follow <DeadSubject>.<stream> in the subjects of messages that are no dead
// letters themselves. No subject of a job begins with a '$'.
const (
	// TokenPart stands before the parts of a large letter: <job's sequence>.<number>.
	TokenPart = "$part"

	// TokenReplay stands before what is known of a replay: <letter's sequence>.
	TokenReplay = "$replay"
)

// ErrDeadLetter is returned when bytes are not a dead letter.
var ErrDeadLetter = errors.New("worker: not a dead letter")

// Reason says why a job was given up.
type Reason string

const (
	// ReasonCancelled means: the handler returned [Cancel].
	ReasonCancelled Reason = "cancelled"

	// ReasonExhausted means: the last attempt failed, or its worker died.
	ReasonExhausted Reason = "exhausted"

	// ReasonUndecodable means: the payload is not what the handler expects.
	ReasonUndecodable Reason = "undecodable"
)

// DeadLetter is a job that was given up, with all that is needed to see why and to run it
// again. Its JSON is the body of a message on <DeadSubject>.<stream>.<original subject>.
// Fields may be added, never changed.
type DeadLetter struct {
	// Attempts is the number of attempts used.
	Attempts int `json:"attempts"`

	// Consumer is the durable name of the consumer that gave up.
	Consumer string `json:"consumer"`

	// DeadAt is when the job was given up, by the worker's clock.
	DeadAt time.Time `json:"deadAt"`

	// Deliveries is how often the server had delivered the message.
	Deliveries int `json:"deliveries"`

	// EnqueuedAt is when the stream stored the job, by the server's clock.
	EnqueuedAt time.Time `json:"enqueuedAt"`

	// Error is the text of the last error, at most 4 KiB.
	Error string `json:"error"`

	// Header holds the headers of the job. Bytes that are not UTF-8 are replaced.
	Header map[string][]string `json:"header,omitempty"`

	// ID is the job's ID, see Info.
	ID string `json:"id"`

	// MaxAttempts is how many attempts the policy allowed.
	MaxAttempts int `json:"maxAttempts"`

	// Parts is set when the letter was too large for one message: its whole JSON is then
	// the bodies of the messages with these sequences in the dead letter stream, in this
	// order, and this letter has neither payload nor headers. [ParseDeadLetter] of them all
	// together gives the letter.
	Parts []uint64 `json:"parts,omitempty"`

	// Payload is the job's payload, byte for byte (base64 in JSON).
	Payload []byte `json:"payload"`

	// PayloadEncoding is "gzip" on the wire when the letter would not fit into a message
	// otherwise. ParseDeadLetter unpacks it and leaves this empty.
	PayloadEncoding string `json:"payloadEncoding,omitempty"`

	// Reason says why the job was given up.
	Reason Reason `json:"reason"`

	// Sequence is the job's position in the stream.
	Sequence uint64 `json:"sequence"`

	// Signature is the error without what differs from job to job (numbers, ids, quoted
	// values): equal for errors of one kind. At most 200 bytes.
	Signature string `json:"signature"`

	// Stack is the stack of a panic, at most 8 KiB.
	Stack string `json:"stack,omitempty"`

	// Stream is the stream that held the job.
	Stream string `json:"stream"`

	// Subject is the subject that the job was published to.
	Subject string `json:"subject"`

	// Worker is the Config.ID of the worker that gave up.
	Worker string `json:"worker"`
}

// ParseDeadLetter reads the body of a dead letter's message. The error wraps
// [ErrDeadLetter].
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

// encode returns the letter's JSON, packed when it is longer than limit and that helps (0
// for none).
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

	if data, err = json.Marshal(l); err != nil {
		return nil, fmt.Errorf("worker: encode dead letter: %w", err)
	}

	return data, nil
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
