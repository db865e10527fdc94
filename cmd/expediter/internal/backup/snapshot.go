package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

const (
	// chunkSize is the size of a message with a part of a snapshot, in bytes, and window of those that are under way.
	chunkSize = 128 << 10
	window    = 1 << 20

	// maxBehind is how many messages may be read behind a snapshot.
	maxBehind = 1 << 20

	codeStreamNotFound, codeMessageNotFound = 10059, 10037
)

// snapshot writes the file of a stream.
func (c Config) snapshot(ctx context.Context, s *Stream, w io.Writer) error {
	chunks, err := c.request(ctx, s)
	if err != nil {
		return err
	}
	defer chunks.sub.Unsubscribe() //nolint:errcheck // it ends with the connection, too
	var state jetstream.StreamState
	if err := json.Unmarshal(s.State, &state); err != nil {
		return fmt.Errorf("decode the state of the stream: %w", err)
	}
	compressed := s2.NewWriter(w)
	out := archive.NewWriter(compressed)
	if err := s.copy(out, archive.NewReader(s2.NewReader(chunks))); err != nil {
		return fmt.Errorf("read the snapshot: %w", err)
	}
	if _, err := io.Copy(io.Discard, chunks); err != nil { // until the server says that it has sent all of it
		return fmt.Errorf("read the end of the snapshot: %w", err)
	}
	c.reached(s.Name)
	if err := c.appendBehind(ctx, s, out, state.LastSeq); err != nil {
		return err
	}
	if err := out.WriteHeader(&archive.Header{}); err != nil { // the end of the snapshot
		return fmt.Errorf("write: %w", err)
	}
	if err := compressed.Close(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// request begins a snapshot.
func (c Config) request(ctx context.Context, s *Stream) (*chunks, error) {
	sub, err := c.subscribe()
	if err != nil {
		return nil, err
	}
	var answer struct {
		Config json.RawMessage `json:"config"`
		State  json.RawMessage `json:"state"`
	}
	err = c.ask(ctx, "STREAM.SNAPSHOT."+s.Name, map[string]any{
		"deliver_subject": sub.Subject, "chunk_size": chunkSize, "window_size": window,
	}, &answer)
	if apiErr, ok := errors.AsType[*jetstream.APIError](err); ok && apiErr.ErrorCode == codeStreamNotFound {
		err = fmt.Errorf("%w (make it with expediter apply, or leave its service out with --services)", err)
	}
	if err != nil {
		return nil, errors.Join(err, sub.Unsubscribe())
	}
	s.Config, s.State = answer.Config, answer.State
	return &chunks{Config: c, ctx: ctx, stream: s.Name, sub: sub}, nil
}

// subscribe subscribes to a subject on which the server of the account can send to this client.
func (c Config) subscribe() (*nats.Subscription, error) {
	nc := c.JS.Conn()
	subject := nc.NewInbox()
	if c.Account != "" { // which exports this
		subject = "backup." + c.Account + "." + nuid.Next()
	}
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return sub, nil
}

// ask asks the API of JetStream.
func (c Config) ask(ctx context.Context, method string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode a request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	msg, err := c.JS.Conn().RequestWithContext(ctx, c.prefix()+"API."+method, body)
	if err != nil {
		return fmt.Errorf("ask %s: %w", method, err)
	}
	return decode(msg.Data, answer)
}

// decode decodes an answer, or returns the error that it is.
func decode(data []byte, answer any) error {
	var failed struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := errors.Join(json.Unmarshal(data, &failed), json.Unmarshal(data, answer)); err != nil {
		return fmt.Errorf("decode an answer: %w", err)
	}
	if failed.Error != nil {
		return failed.Error
	}
	return nil
}

// chunks reads a snapshot. It acknowledges a chunk when the next is wanted, so that the server sends no more than a window
// ahead.
type chunks struct {
	Config

	ctx    context.Context //nolint:containedctx // of an io.Reader
	ack    string
	buf    []byte
	ended  error
	stream string
	sub    *nats.Subscription
}

// Read implements io.Reader.
func (r *chunks) Read(p []byte) (int, error) {
	if len(r.buf) == 0 && r.ended == nil {
		r.ended = r.next()
	}
	if len(r.buf) == 0 {
		return 0, r.ended
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func (r *chunks) next() error {
	if r.ack != "" {
		if err := r.JS.Conn().Publish(r.ack, nil); err != nil {
			return fmt.Errorf("acknowledge a chunk: %w", err)
		}
		r.ack = ""
	}
	// The server waits for 5 seconds until it gives an acknowledgement up, and says so.
	ctx, cancel := context.WithTimeout(r.ctx, 2*max(r.Timeout, 5*time.Second))
	defer cancel()
	msg, err := r.sub.NextMsgWithContext(ctx)
	if err != nil {
		return fmt.Errorf("wait for a part of the snapshot: %w", err)
	}
	if len(msg.Data) == 0 {
		if status := msg.Header.Get("Status"); status != "" && status != "204" {
			return fmt.Errorf("the server ended the snapshot: %s %s", status, msg.Header.Get("Description"))
		}
		return io.EOF
	}
	if msg.Reply != "" { // the last chunk has none
		if r.ack, err = r.subject("ACK", r.stream, msg.Reply); err != nil {
			return err
		}
	}
	r.buf = msg.Data
	return nil
}

// copy copies the entries of a snapshot but for the last, which says that it is complete, and counts them.
func (s *Stream) copy(out *archive.Writer, in *archive.Reader) error {
	for {
		entry, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err //nolint:wrapcheck // the caller does
		case *entry == archive.Header{}:
			return nil
		case entry.Name == "state.json" && entry.Sequence == 0:
			err = copyState(out, in, entry)
		default:
			if err = out.WriteHeader(entry); err == nil {
				_, err = io.Copy(out, in)
			}
		}
		if err != nil {
			return err //nolint:wrapcheck // the caller does
		}
		if entry.Sequence > 0 {
			s.Messages++
		} else if strings.HasPrefix(entry.Name, "consumers/") {
			s.Consumers++
		}
	}
}

// copyState copies the state of the stream. That of one which never had a message says 0 for the first sequence, and the server
// restores no message behind it; 1 means the same.
func copyState(out *archive.Writer, in io.Reader, entry *archive.Header) error {
	state, err := object(in)
	if err != nil {
		return fmt.Errorf("decode the state of the stream: %w", err)
	}
	if state["first_seq"] == json.Number("0") {
		state["first_seq"] = 1
	}
	data, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode the state of the stream: %w", err)
	}
	entry.PayloadSize = int64(len(data))
	if err := out.WriteHeader(entry); err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	_, err = out.Write(data)
	return err //nolint:wrapcheck // the caller does
}

// object decodes a JSON object, with its numbers as they are.
func object(r io.Reader) (map[string]any, error) {
	found := map[string]any{}
	decoder := json.NewDecoder(r)
	decoder.UseNumber()
	err := decoder.Decode(&found)
	return found, err //nolint:wrapcheck // the caller does
}

// appendBehind appends the messages behind the sequence last until there are no more. The stream's leader is asked.
func (c Config) appendBehind(ctx context.Context, s *Stream, out *archive.Writer, last uint64) error {
	for range maxBehind {
		var answer struct {
			Message struct {
				Data    []byte    `json:"data"`
				Header  []byte    `json:"hdrs"`
				Seq     uint64    `json:"seq"`
				Subject string    `json:"subject"`
				Time    time.Time `json:"time"`
			} `json:"message"`
		}
		err := c.ask(ctx, "STREAM.MSG.GET."+s.Name, map[string]any{"seq": last + 1, "next_by_subj": ">"}, &answer)
		if apiErr, ok := errors.AsType[*jetstream.APIError](err); ok && apiErr.ErrorCode == codeMessageNotFound {
			return nil
		}
		if err != nil {
			return err
		}
		m := answer.Message
		if m.Seq <= last {
			return fmt.Errorf("the server answers with message %d for the one behind %d", m.Seq, last)
		}
		if err := out.WriteHeader(&archive.Header{
			Name: m.Subject, HeaderSize: int64(len(m.Header)), PayloadSize: int64(len(m.Data)), Timestamp: m.Time.UnixNano(), Sequence: m.Seq,
		}); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if _, err := out.Write(append(m.Header, m.Data...)); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		s.Messages++
		last = m.Seq
	}
	return ErrBusy
}
