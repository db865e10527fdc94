// Package directget reads the last messages of many subjects of a JetStream stream in one round trip.
//
// It speaks two server APIs: the multi-subject form of DIRECT.GET (ADR-31), which any replica may answer, and
// STREAM.MSG.GET, which only the stream's leader answers. Neither is linearizable.
package directget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// MaxSubjects is how many subjects one request asks for. The server refuses more than 1,024 results.
const MaxSubjects = 512

// ErrNoReply is returned when no server answered for the stream.
var ErrNoReply = errors.New("no server answers for the stream")

// Message is the last message of a subject.
type Message struct {
	Subject  string
	Sequence uint64
	Time     time.Time
	Header   nats.Header
	Data     []byte
}

// Getter reads from one stream. All its requests share one subscription.
type Getter struct {
	nc     *nats.Conn
	api    string // the API prefix, with its final dot
	stream string
	inbox  string // the common prefix of replies, with its final dot
	sub    *nats.Subscription

	mu    sync.Mutex
	calls map[string]*call
}

type call struct {
	messages []Message
	err      error
	again    uint64 // where to go on, when the server cut the answer short
	upTo     uint64
	done     chan struct{}
}

// New returns a Getter for stream, whose API is reached under the prefix api (such as "$JS.API.").
func New(nc *nats.Conn, api, stream string) (*Getter, error) {
	g := &Getter{nc: nc, api: api, stream: stream, inbox: nc.NewInbox() + ".", calls: map[string]*call{}}
	sub, err := nc.Subscribe(g.inbox+"*", g.receive)
	if err != nil {
		return nil, fmt.Errorf("subscribe to replies: %w", err)
	}
	g.sub = sub
	return g, nil
}

// Close ends the subscription. Calls under way end by their contexts.
func (g *Getter) Close() error { return g.sub.Unsubscribe() }

// Last returns the last message of each of the subjects that has one, in no particular order: one round trip for each
// MaxSubjects subjects. Any replica may answer, so what it returns may be older than an acknowledged write.
func (g *Getter) Last(ctx context.Context, subjects []string) ([]Message, error) {
	var all []Message
	for len(subjects) > 0 {
		n := min(len(subjects), MaxSubjects)
		messages, err := g.last(ctx, subjects[:n])
		if err != nil {
			return nil, err
		}
		all = append(all, messages...)
		subjects = subjects[n:]
	}
	return all, nil
}

type request struct {
	MultiLast []string `json:"multi_last,omitempty"`
	LastBy    string   `json:"last_by_subj,omitempty"`
	Sequence  uint64   `json:"seq,omitempty"`
	UpTo      uint64   `json:"up_to_seq,omitempty"`
}

func (g *Getter) last(ctx context.Context, subjects []string) ([]Message, error) {
	req := request{MultiLast: subjects}
	var all []Message
	for {
		c, err := g.ask(ctx, req)
		if err != nil {
			return nil, err
		}
		all = append(all, c.messages...)
		if c.again == 0 {
			return all, nil
		}
		req.Sequence, req.UpTo = c.again, c.upTo
	}
}

func (g *Getter) ask(ctx context.Context, req request) (*call, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	token := nuid.Next()
	c := &call{done: make(chan struct{})}
	g.mu.Lock()
	g.calls[token] = c
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.calls, token)
		g.mu.Unlock()
	}()

	if err := g.nc.PublishRequest(g.api+"DIRECT.GET."+g.stream, g.inbox+token, body); err != nil {
		return nil, fmt.Errorf("send request: %w", err)
	}
	select {
	case <-c.done:
		return c, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the answer of stream %s: %w", g.stream, context.Cause(ctx))
	}
}

// receive sorts one reply into its call. Replies of one call arrive in order, and the last has a status.
func (g *Getter) receive(m *nats.Msg) {
	token := strings.TrimPrefix(m.Subject, g.inbox)
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.calls[token]
	if c == nil {
		return // its caller has gone
	}
	if status := m.Header.Get("Status"); status != "" {
		delete(g.calls, token)
		c.finish(status, m.Header)
		return
	}
	message, err := parse(m)
	if err != nil {
		delete(g.calls, token)
		c.err = err
		close(c.done)
		return
	}
	c.messages = append(c.messages, message)
}

func (c *call) finish(status string, h nats.Header) {
	defer close(c.done)
	switch status {
	case "204": // end of batch
		if pending, _ := strconv.ParseUint(h.Get("Nats-Num-Pending"), 10, 64); pending > 0 {
			last, err := strconv.ParseUint(h.Get("Nats-Last-Sequence"), 10, 64)
			if err != nil {
				c.err = fmt.Errorf("answer was cut short without its last sequence: %w", err)
				return
			}
			c.again = last + 1
			c.upTo, _ = strconv.ParseUint(h.Get("Nats-UpTo-Sequence"), 10, 64)
		}
	case "404": // none of the subjects has a message, or one went away while the server was answering
	case "503":
		c.err = ErrNoReply
	default:
		c.err = fmt.Errorf("server answered %s %s", status, h.Get("Description"))
	}
}

func parse(m *nats.Msg) (Message, error) {
	sequence, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return Message{}, fmt.Errorf("answer without a sequence: %w", err)
	}
	created, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err != nil {
		return Message{}, fmt.Errorf("answer without a time: %w", err)
	}
	return Message{Subject: m.Header.Get("Nats-Subject"), Sequence: sequence, Time: created, Header: m.Header, Data: m.Data}, nil
}

// Pushed reads a message that a stream republished: the same headers as an answer of Last.
func Pushed(m *nats.Msg) (Message, error) { return parse(m) }

// Leader returns the last message of subject as the stream's leader knows it, or ok false when it has none. One round
// trip. A leader that was deposed without knowing may still answer.
func (g *Getter) Leader(ctx context.Context, subject string) (message Message, ok bool, err error) {
	body, err := json.Marshal(request{LastBy: subject})
	if err != nil {
		return Message{}, false, fmt.Errorf("encode request: %w", err)
	}
	reply, err := g.nc.RequestWithContext(ctx, g.api+"STREAM.MSG.GET."+g.stream, body)
	if err != nil {
		if errors.Is(err, nats.ErrNoResponders) {
			err = ErrNoReply
		}
		return Message{}, false, fmt.Errorf("ask the leader of stream %s: %w", g.stream, err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Sequence uint64    `json:"seq"`
			Time     time.Time `json:"time"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
		} `json:"message"`
	}
	switch err := json.Unmarshal(reply.Data, &answer); {
	case err != nil:
		return Message{}, false, fmt.Errorf("answer of stream %s is not JSON: %w", g.stream, err)
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return Message{}, false, nil
	case answer.Error != nil:
		return Message{}, false, fmt.Errorf("stream %s: %w", g.stream, answer.Error)
	case answer.Message == nil:
		return Message{}, false, fmt.Errorf("answer of stream %s has no message", g.stream)
	}
	header, err := decodeHeader(answer.Message.Header)
	if err != nil {
		return Message{}, false, err
	}
	return Message{
		Subject: subject, Sequence: answer.Message.Sequence, Time: answer.Message.Time, Header: header, Data: answer.Message.Data,
	}, true, nil
}

func decodeHeader(raw []byte) (nats.Header, error) {
	if len(raw) == 0 {
		return nats.Header{}, nil
	}
	h, err := nats.DecodeHeadersMsg(raw)
	if err != nil {
		return nil, fmt.Errorf("headers of a stored message: %w", err)
	}
	return h, nil
}
