package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/jsretry"
)

const (
	// chunkSize is the size of a message with a part of a snapshot, and window the size of all such messages under way,
	// in bytes.
	chunkSize = 128 << 10
	window    = 1 << 20

	// maxBehind is the largest number of messages that are read after a snapshot.
	maxBehind = 1 << 20
)

// file is a file that is being written, with the server's snapshot of a stream and then the messages after the
// snapshot.
type file struct {
	Stream

	compressed *s2.Writer
	last       uint64 // the sequence up to which the file has the messages
	on         *os.File
	out        *archive.Writer
	sum        hash.Hash
}

// begin creates the file of a stream and writes the snapshot to it. The caller calls finish, and then close.
func (c Config) begin(ctx context.Context, dir *os.Root, name string) (f *file, err error) {
	f = &file{Stream: Stream{Name: name}, sum: sha256.New()}
	if f.on, err = create(dir, f.file()); err != nil {
		return nil, err
	}
	f.compressed = s2.NewWriter(io.MultiWriter(f.on, f.sum))
	f.out = archive.NewWriter(f.compressed)
	if err := c.snapshot(ctx, f); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// close closes the file, and discards unwritten bytes.
func (f *file) close() {
	errors.Join(f.compressed.Close(), f.on.Close()) //nolint:errcheck,gosec // finish has reported it
}

// snapshot writes the present messages and consumers of the stream.
func (c Config) snapshot(ctx context.Context, f *file) error {
	if _, err := c.stream(ctx, f.Name); errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w (make it with expediter apply, or leave its service out: --account NOTIFIER goes with --services notifier)", err)
	} else if err != nil {
		return err
	}
	var chunks *chunks
	err := jsretry.Do(ctx, jsretry.Wait, func(context.Context) (err error) { // each attempt has a subject and a time limit of its own
		chunks, err = c.request(ctx, &f.Stream)
		return err
	})
	if err != nil {
		return err
	}
	defer chunks.sub.Unsubscribe() //nolint:errcheck // it ends with the connection, too
	var state jetstream.StreamState
	if err := json.Unmarshal(f.State, &state); err != nil {
		return fmt.Errorf("decode the state of the stream: %w", err)
	}
	f.last = state.LastSeq
	if err := f.copy(f.out, archive.NewReader(s2.NewReader(chunks))); err != nil {
		return fmt.Errorf("read the snapshot: %w", err)
	}
	if _, err := io.Copy(io.Discard, chunks); err != nil { // until the server reports that it has sent the whole snapshot
		return fmt.Errorf("read the end of the snapshot: %w", err)
	}
	c.reached(f.Name)
	return nil
}

// finish appends the messages after the snapshot, and returns when the file is on the disk.
func (c Config) finish(ctx context.Context, f *file) (Stream, error) {
	until, err := c.end(ctx, &f.Stream)
	if err != nil {
		return f.Stream, err
	}
	if err := c.appendBehind(ctx, f, until); err != nil {
		return f.Stream, err
	}
	if err := f.out.WriteHeader(&archive.Header{}); err != nil { // the end of the snapshot
		return f.Stream, fmt.Errorf("write: %w", err)
	}
	if err := errors.Join(f.compressed.Close(), f.on.Sync()); err != nil {
		return f.Stream, fmt.Errorf("write: %w", err)
	}
	info, err := f.on.Stat()
	if err != nil {
		return f.Stream, fmt.Errorf("write: %w", err)
	}
	f.Bytes, f.SHA256 = info.Size(), hex.EncodeToString(f.sum.Sum(nil))
	return f.Stream, nil
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
	if err != nil {
		return nil, errors.Join(err, sub.Unsubscribe())
	}
	s.Config, s.State = answer.Config, answer.State
	return &chunks{Config: c, ctx: ctx, stream: s.Name, sub: sub}, nil
}

// subscribe subscribes to a subject at which the server can send to this client from the account.
func (c Config) subscribe() (*nats.Subscription, error) {
	nc := c.JS.Conn()
	subject := nc.NewInbox()
	if c.Account != "" { // the account exports this subject
		subject = "backup." + c.Account + "." + nuid.Next()
	}
	sub, err := nc.SubscribeSync(subject)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return sub, nil
}

// ask sends a request to the API of JetStream, and decodes the answer.
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

// decode decodes an answer, or returns the error in it.
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

// chunks reads a snapshot. It acknowledges a chunk when the next is read, so that the server sends no more than a window
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
	// The server waits for 5 seconds for an acknowledgement, and then reports that it gives up.
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

// copy copies and counts the entries of a snapshot, except the last, which marks the end.
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

// copyState copies the state of the stream. A stream that never had a message has 0 as the first sequence, after which the
// server would restore no message, so copyState writes 1, which means the same.
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

// object decodes a JSON object, and keeps its numbers as they are written.
func object(r io.Reader) (map[string]any, error) {
	found := map[string]any{}
	decoder := json.NewDecoder(r)
	decoder.UseNumber()
	err := decoder.Decode(&found)
	return found, err //nolint:wrapcheck // the caller does
}

// end returns the sequence up to which the messages after a snapshot are needed: the present last sequence. If messages
// replace others it is the largest sequence, because a later message may have replaced a needed one.
func (c Config) end(ctx context.Context, s *Stream) (uint64, error) {
	var config jetstream.StreamConfig
	if err := json.Unmarshal(s.Config, &config); err != nil {
		return 0, fmt.Errorf("decode the configuration of the stream: %w", err)
	}
	if config.MaxMsgsPerSubject > 0 && !config.DiscardNewPerSubject {
		return math.MaxUint64, nil
	}
	stream, err := c.stream(ctx, s.Name)
	if err != nil {
		return 0, err
	}
	return stream.CachedInfo().State.LastSeq, nil
}

// appendBehind appends the messages after the snapshot, up to the sequence until. It asks the stream's leader.
func (c Config) appendBehind(ctx context.Context, f *file, until uint64) error {
	for range maxBehind {
		if f.last >= until {
			return nil
		}
		var answer struct {
			Message struct {
				Data    []byte    `json:"data"`
				Header  []byte    `json:"hdrs"`
				Seq     uint64    `json:"seq"`
				Subject string    `json:"subject"`
				Time    time.Time `json:"time"`
			} `json:"message"`
		}
		err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
			return c.ask(ctx, "STREAM.MSG.GET."+f.Name, map[string]any{"seq": f.last + 1, "next_by_subj": ">"}, &answer)
		})
		if apiErr, ok := errors.AsType[*jetstream.APIError](err); ok && apiErr.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return nil
		}
		if err != nil {
			return err
		}
		m := answer.Message
		if m.Seq <= f.last {
			return fmt.Errorf("the server answers with message %d for the one behind %d", m.Seq, f.last)
		}
		if err := f.out.WriteHeader(&archive.Header{
			Name: m.Subject, HeaderSize: int64(len(m.Header)), PayloadSize: int64(len(m.Data)), Timestamp: m.Time.UnixNano(), Sequence: m.Seq,
		}); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if _, err := f.out.Write(append(m.Header, m.Data...)); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		f.Messages++
		f.last = m.Seq
	}
	return ErrBusy
}
