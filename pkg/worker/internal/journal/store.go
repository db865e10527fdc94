package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// partRoom is left for the headers of a message.
	partRoom = 1 << 10

	// lateTTL is how long the journal of a completed job is kept.
	lateTTL = time.Minute
)

// Config says where journals are kept and how.
type Config struct {
	Bucket  string
	Conn    *nats.Conn
	Prefix  string        // of the JetStream API, with its last dot
	Request time.Duration // how long one request may take
	Settle  time.Duration // how long a write is tried
	TTL     time.Duration // how long a journal is kept after its last write
}

// Store keeps the journals of one bucket.
type Store struct {
	acked  []byte // how the server's acknowledgements begin
	cfg    Config
	codec  codec
	domain string   // before a subject, to publish to it
	ttl    []string // a header
}

// New returns the store of a bucket. It makes no request.
func New(cfg Config) *Store {
	s := &Store{acked: []byte(`{"stream":"KV_` + cfg.Bucket + `","seq":`), cfg: cfg, codec: newCodec(), ttl: []string{seconds(cfg.TTL)}}
	if cfg.Prefix != jetstream.DefaultAPIPrefix {
		s.domain = cfg.Prefix // as nats.go does for a bucket behind a domain
	}

	return s
}

// Open returns the journal of an attempt. It makes no request: that is left to the first
// step. Nothing is written after base has ended.
func (s *Store) Open(base context.Context, attempt Attempt) *Journal {
	return &Journal{attempt: attempt, base: base, limits: s.limits(), server: s, turn: make(chan struct{}, 1)}
}

// journal returns the backend of one journal.
func (s *Store) journal(a Attempt) *journalOf {
	key := a.Resume
	if key == "" {
		key = Key(a.Sequence, a.Stored)
	}

	return &journalOf{Store: s, subject: "$KV." + s.cfg.Bucket + ".steps." + a.Stream + "." + a.Consumer + "." + key}
}

func (s *Store) limits() limits {
	part := maxPart
	if most := int(s.cfg.Conn.MaxPayload()) - partRoom; most > 0 { // 0 as long as it was never connected
		part = min(part, most)
	}

	return limits{codec: &s.codec, part: part, settle: s.cfg.Settle, timeout: s.cfg.Request, ttl: s.cfg.TTL}
}

// Key names the journal of a message, for headers. The time tells the message from one with
// the same sequence in a stream that was deleted and made again.
func Key(sequence uint64, stored time.Time) string {
	return strconv.FormatUint(sequence, 10) + "-" + strconv.FormatInt(stored.UnixNano(), 10)
}

var keyForm = regexp.MustCompile(`^[0-9]{1,20}-[0-9]{1,20}$`)

// ValidKey reports whether Key may have returned it.
func ValidKey(key string) bool { return keyForm.MatchString(key) }

// journalOf is the backend of one journal.
type journalOf struct {
	*Store

	expected []string // a header of record
	record   nats.Msg // of save, which is called by one at a time
	subject  string
}

func (j *journalOf) load(ctx context.Context) ([]byte, uint64, error) {
	data, revision, err := j.get(ctx, j.subject)
	if errors.Is(err, errMissing) {
		return nil, 0, nil
	}

	return data, revision, err
}

func (j *journalOf) fetch(ctx context.Context, part string) ([]byte, error) {
	data, _, err := j.get(ctx, j.subject+"."+part)
	if err == nil && len(data) == 0 {
		return nil, errMissing
	}

	return data, err
}

func (j *journalOf) put(ctx context.Context, part string, data []byte) error {
	_, err := j.send(ctx, j.message("."+part, data, j.cfg.TTL))

	return err
}

func (j *journalOf) save(ctx context.Context, data []byte, expect uint64) (uint64, error) {
	if j.expected == nil {
		j.expected = []string{""}
		j.record = nats.Msg{
			Header:  nats.Header{jetstream.MsgTTLHeader: j.ttl, jetstream.ExpectedLastSubjSeqHeader: j.expected},
			Subject: j.domain + j.subject,
		}
	}

	j.expected[0], j.record.Data = strconv.FormatUint(expect, 10), data

	return j.send(ctx, &j.record) // which keeps nothing of it
}

func (j *journalOf) forget(data []byte, expect uint64) {
	_ = j.cfg.Conn.PublishMsg(expecting(j.message("", data, lateTTL), expect)) //nolint:errcheck // it goes by its TTL
}

func (j *journalOf) drop(part string) {
	_ = j.cfg.Conn.PublishMsg(j.message("."+part, nil, time.Second)) //nolint:errcheck // it goes by its TTL
}

// message is a write that lasts for ttl.
func (j *journalOf) message(suffix string, data []byte, ttl time.Duration) *nats.Msg {
	return &nats.Msg{
		Subject: j.domain + j.subject + suffix, Data: data,
		Header: nats.Header{jetstream.MsgTTLHeader: {seconds(ttl)}},
	}
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d/time.Second)) + "s" }

// expecting makes the server refuse a message unless its subject is at the given revision,
// 0 for none.
func expecting(msg *nats.Msg, revision uint64) *nats.Msg {
	msg.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(revision, 10)}

	return msg
}

// get reads the last message of a subject from the stream's leader: a follower may not have
// it yet.
func (s *Store) get(ctx context.Context, subject string) ([]byte, uint64, error) {
	query, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return nil, 0, fmt.Errorf("encode a request: %w", err)
	}

	reply, err := s.request(ctx, &nats.Msg{Subject: s.cfg.Prefix + "STREAM.MSG.GET.KV_" + s.cfg.Bucket, Data: query})
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", subject, err)
	}

	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Data []byte `json:"data"`
			Seq  uint64 `json:"seq"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return nil, 0, fmt.Errorf("answer about %s: %w", subject, err)
	}

	switch {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, 0, errMissing
	case answer.Error != nil:
		return nil, 0, fmt.Errorf("read %s: %w", subject, answer.Error)
	}

	return answer.Message.Data, answer.Message.Seq, nil
}

// send publishes a message, once, and returns where it was stored.
func (s *Store) send(ctx context.Context, msg *nats.Msg) (uint64, error) {
	reply, err := s.request(ctx, msg)
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", msg.Subject, err)
	}

	if sequence, ok := s.acknowledged(reply.Data); ok {
		return sequence, nil
	}

	var ack struct {
		Error    *jetstream.APIError `json:"error"`
		Sequence uint64              `json:"seq"`
		Stream   string              `json:"stream"`
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return 0, fmt.Errorf("acknowledgement of %s: %w", msg.Subject, err)
	}

	if ack.Error != nil {
		return 0, fmt.Errorf("write %s: %w", msg.Subject, ack.Error)
	}

	if ack.Stream != "KV_"+s.cfg.Bucket || ack.Sequence == 0 {
		return 0, fmt.Errorf("write %s: acknowledged by stream %q at %d", msg.Subject, ack.Stream, ack.Sequence)
	}

	return ack.Sequence, nil
}

// acknowledged reads an acknowledgement in the form that servers give it, which takes a tenth
// of the time of reading any JSON.
func (s *Store) acknowledged(data []byte) (sequence uint64, ok bool) {
	rest, ok := bytes.CutPrefix(data, s.acked)
	if !ok {
		return 0, false
	}

	digits, ok := bytes.CutSuffix(rest, []byte("}"))
	if !ok {
		return 0, false
	}

	sequence, err := strconv.ParseUint(string(bytes.TrimSpace(digits)), 10, 64)

	return sequence, err == nil && sequence > 0
}

// request sends nothing while the connection is down: the client would keep the message and
// send it much later.
func (s *Store) request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	if nc := s.cfg.Conn; !nc.IsConnected() && !nc.IsClosed() {
		return nil, nats.ErrDisconnected
	}

	reply, err := s.cfg.Conn.RequestMsgWithContext(ctx, msg)
	if errors.Is(err, nats.ErrNoResponders) {
		return nil, fmt.Errorf("no stream KV_%s answers: %w", s.cfg.Bucket, err)
	}

	return reply, err //nolint:wrapcheck // callers say what was asked
}

// Codes of the server that the client has no names for.
const (
	codeAccountFull = 10002
	codeMemoryFull  = 10028
	codeStorageFull = 10047
	codeInProcess   = 10158 // the same message was sent before, and is being stored
	codeStoreFailed = 10077 // whatever the reason; the limits of the stream are among them
)

// isPermanent says that sending the same again cannot help: the message itself, the settings
// or limits of the bucket, or the connection are at fault. What a change of leader can
// cause is left out.
func isPermanent(err error) bool {
	_, unreadable := errors.AsType[*RecordError](err)
	if unreadable || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrMaxPayload) {
		return true
	}

	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return false
	}

	switch api.ErrorCode {
	case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant, codeInProcess:
		return false
	case codeAccountFull, codeMemoryFull, codeStorageFull:
		return true
	case codeStoreFailed:
		return strings.HasPrefix(api.Description, "maximum ")
	default:
		return api.Code >= 400 && api.Code < 500
	}
}
