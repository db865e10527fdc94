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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/retry"
)

// pageBytes bounds one answer to From.
const pageBytes = 8 << 20

// MaxSubjects is the largest number of subjects in one request. The server refuses more than 1,024 results.
const MaxSubjects = 512

const (
	// idleTimeout is the time without progress of an answer after which the rest is requested again: a request or reply that was lost with a
	// connection must not use up the caller's time. It doubles with each repetition that brought nothing. Otherwise no answer of a busier
	// server would ever be in time.
	idleTimeout = 500 * time.Millisecond
	maxIdles    = 10 // doublings

	// The waits before a request is repeated, when no server answers.
	minWait = 5 * time.Millisecond
	maxWait = 100 * time.Millisecond
)

// ErrNoReply is returned when no server answered for the stream.
var ErrNoReply = fmt.Errorf("no server answers for the stream: %w", nats.ErrNoResponders)

var (
	errGone = errors.New("a message went away while it was read") // it was replaced, and has to be requested again
	errGap  = errors.New("messages were lost on their way")
	errIdle = errors.New("no answer")
)

// Getter reads from streams. All its requests share one subscription.
type Getter struct {
	nc    *nats.Conn
	api   jsapi.Client
	down  func() error // of a connection that is lost, see New
	inbox string       // the common prefix of replies, with its final dot
	sub   *nats.Subscription

	mu    sync.Mutex
	calls map[string]*answer
}

// New returns a Getter for the streams whose API is reached under the prefix api (such as "$JS.API."). down returns an error while the
// connection is lost, as [jsapi.Inbox.Down] does; nil asks the connection, which may hold a call up.
func New(nc *nats.Conn, api string, down func() error) (*Getter, error) {
	if down == nil {
		down = func() error {
			if !nc.IsConnected() && !nc.IsClosed() {
				return fmt.Errorf("not sent: %w", nats.ErrDisconnected)
			}
			return nil
		}
	}
	g := &Getter{
		nc: nc, down: down, api: jsapi.Client{Prefix: api, Sender: jsapi.Over(nc), Within: leaderTimeout},
		inbox: nc.NewInbox() + ".", calls: map[string]*answer{},
	}
	sub, err := nc.Subscribe(g.inbox+"*", g.receive)
	if err != nil {
		return nil, fmt.Errorf("subscribe to replies: %w", err)
	}
	// The server bounds the messages of one answer. A bound here would drop a part of an answer silently.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, errors.Join(fmt.Errorf("lift the limits of replies: %w", err), sub.Unsubscribe())
	}
	g.sub = sub
	return g, nil
}

// Close ends the subscription. Calls under way end by their contexts.
func (g *Getter) Close() error {
	if err := g.sub.Unsubscribe(); err != nil {
		return fmt.Errorf("unsubscribe: %w", err)
	}
	return nil
}

// Last returns the last message of each subject of stream that has one, in no particular order. One round trip for each MaxSubjects
// subjects. Any replica may answer, so a message may be older than an acknowledged write. A subject that was written while they were
// read may be there twice; the later message has the greater sequence.
//
// Requests without an answer, and missing parts of answers, are requested again until ctx ends.
func (g *Getter) Last(ctx context.Context, stream string, subjects []string) ([]jsapi.Message, error) {
	var all []jsapi.Message
	for part := range slices.Chunk(subjects, MaxSubjects) {
		req := request{MultiLast: part}
		var p pace
		for more := true; more; {
			c, err := g.ask(ctx, stream, req, idleTimeout<<min(p.idles, maxIdles))
			// Messages arrive in the order of their sequences, so the next request begins behind the last message that arrived. The server's
			// option to read as of the first request (up_to_seq) is not used: the earlier message of a key that was written since is gone.
			if c != nil && len(c.messages) > 0 {
				p = pace{}
				all = append(all, c.messages...)
				req.Sequence = c.messages[len(c.messages)-1].Sequence + 1
			}
			if err != nil && (!isTransient(err) || !p.pause(ctx, err)) {
				return nil, err
			}
			more = err != nil || c.more
		}
	}
	return all, nil
}

type request struct {
	MultiLast []string   `json:"multi_last,omitempty"`
	NextBy    string     `json:"next_by_subj,omitempty"`
	Batch     int        `json:"batch,omitempty"`
	MaxBytes  int        `json:"max_bytes,omitempty"`
	Sequence  uint64     `json:"seq,omitempty"`
	StartTime *time.Time `json:"start_time,omitempty"`
}

// From returns the messages of stream at the sequence from or later, in their order: at most limit, and 8 MB. more reports whether further
// messages follow. Any replica may answer. One round trip; missing parts are requested again until ctx ends.
func (g *Getter) From(ctx context.Context, stream string, from uint64, limit int) (all []jsapi.Message, more bool, err error) {
	return g.page(ctx, stream, request{NextBy: ">", Batch: limit, Sequence: from})
}

// Matching is From for the messages whose subjects match a filter. With an error it returns the messages that have arrived.
func (g *Getter) Matching(
	ctx context.Context, stream, filter string, from uint64, limit int,
) (all []jsapi.Message, more bool, err error) {
	return g.page(ctx, stream, request{NextBy: filter, Batch: limit, Sequence: from})
}

// Since is From for the messages that were stored at a time or later.
func (g *Getter) Since(ctx context.Context, stream string, at time.Time, limit int) (all []jsapi.Message, more bool, err error) {
	return g.page(ctx, stream, request{NextBy: ">", Batch: limit, StartTime: &at})
}

func (g *Getter) page(ctx context.Context, stream string, req request) (all []jsapi.Message, more bool, err error) {
	req.MaxBytes = pageBytes
	var p pace
	for {
		c, err := g.ask(ctx, stream, req, idleTimeout<<min(p.idles, maxIdles))
		if c != nil && c.cutAtGap() {
			err = errGap
		}
		if c != nil && len(c.messages) > 0 {
			p = pace{}
			all = append(all, c.messages...)
			req.Sequence, req.StartTime = c.messages[len(c.messages)-1].Sequence+1, nil
			req.Batch -= len(c.messages)
		}
		switch {
		case errors.Is(err, errGone): // no message at the sequence, or later
			return all, false, nil
		case err == nil:
			return all, c.more, nil
		case req.Batch <= 0: // nothing but the end is missing
			return all, true, nil
		case !isTransient(err) || !p.pause(ctx, err):
			return all, true, err
		}
	}
}

// pace has the waits of one read since its last message.
type pace struct{ pauses, idles int }

// pause waits before the next request, after one that ended with err, and reports whether ctx has time left.
func (p *pace) pause(ctx context.Context, err error) bool {
	n := p.pauses
	p.pauses++
	if errors.Is(err, errIdle) {
		p.idles++
	}
	return retry.Backoff(ctx, n, minWait, maxWait)
}

// isTransient reports whether the same request may succeed a moment later.
func isTransient(err error) bool {
	return errors.Is(err, errGap) || errors.Is(err, errGone) || errors.Is(err, errIdle) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrDisconnected)
}

// ask sends one request to any replica of stream and collects the answer. When ctx ends, or nothing arrives for patience, it returns the
// part that arrived with the error, errIdle in the second case.
func (g *Getter) ask(ctx context.Context, stream string, req request, patience time.Duration) (*answer, error) {
	if err := context.Cause(ctx); err != nil { // an answer may still arrive while ctx is checked
		return nil, fmt.Errorf("not sent: %w", err)
	}
	if err := g.down(); err != nil { // the client would keep the request, and send it too late
		return nil, err
	}
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	token := nuid.Next()
	c := &answer{done: make(chan struct{})}
	g.mu.Lock()
	g.calls[token] = c
	g.mu.Unlock()
	defer func() { // after it, receive adds no reply to c
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.calls, token)
	}()
	subject := g.api.Prefix + "DIRECT.GET." + stream
	denied.Sent(ctx, subject)
	if err := g.nc.PublishRequest(subject, g.inbox+token, body); err != nil {
		return nil, fmt.Errorf("send request: %w", err)
	}

	idle := time.NewTimer(patience)
	defer idle.Stop()
	for before := 0; ; {
		select {
		case <-c.done:
			denied.Answered(ctx, subject, c.err)
			return c, c.err
		case <-ctx.Done():
			return c, fmt.Errorf("wait for the answer of stream %s: %w", stream, context.Cause(ctx))
		case <-idle.C:
		}
		g.mu.Lock()
		now := len(c.messages)
		g.mu.Unlock()
		if now == before {
			return c, fmt.Errorf("stream %s: %w within %s", stream, errIdle, patience)
		}
		before = now
		idle.Reset(patience)
	}
}

// receive sorts one reply into its call. Replies of one call arrive in order, and the last has a status.
func (g *Getter) receive(m *nats.Msg) {
	token := strings.TrimPrefix(m.Subject, g.inbox)
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.calls[token]
	if c != nil && c.add(m) { // nil when its caller has gone
		delete(g.calls, token)
		close(c.done)
	}
}

// answer collects the replies to one request.
type answer struct {
	messages []jsapi.Message
	err      error
	last     string // the sequence of the last message, from the end of the answer
	more     bool   // the server ended the answer early
	done     chan struct{}
}

// add adds one reply, and reports whether it was the last.
func (c *answer) add(m *nats.Msg) (last bool) {
	if status := m.Header.Get("Status"); status != "" && m.Header.Get(headerSequence) == "" { // a message may have such a header, too
		c.finish(status, m.Header)
		return true
	}
	message, err := parse(m)
	if err != nil {
		c.err = err
		return true
	}
	c.messages = append(c.messages, message)
	return false
}

const (
	// headerBefore is the sequence of the previous message in the same answer, 0 for the first.
	headerBefore = "Nats-Last-Sequence"

	// headerPending is the number of messages that follow.
	headerPending = "Nats-Num-Pending"

	headerSequence = "Nats-Sequence"
)

// cutAtGap removes the messages behind a missing message, and reports whether one is missing: a broken connection may come back in the
// middle of an answer.
func (c *answer) cutAtGap() bool {
	before := "0"
	for i, m := range c.messages {
		if own(m.Header, headerBefore) != before {
			c.messages = c.messages[:i]
			return true
		}
		before = strconv.FormatUint(m.Sequence, 10)
	}
	return c.last != "" && c.last != before
}

func (c *answer) finish(status string, h nats.Header) {
	description := h.Get("Description")
	switch status {
	case "204": // the end; messages are left when the bound on bytes was reached
		pending := h.Get(headerPending)
		c.more = pending != "" && pending != "0"
		c.last = h.Get(headerBefore)
		c.date(h.Get("Nats-UpTo-Sequence"))
	case "404": // none of the subjects has a message, or a message went away while the server was answering
		if description == "Message Not Found" {
			c.err = errGone
		}
	case "503":
		c.err = ErrNoReply
	case "413": // a filter that matches more subjects than MaxSubjects
		c.err = fmt.Errorf("server answered %s %s: %w", status, description, errors.ErrUnsupported)
	default:
		c.err = fmt.Errorf("server answered %s %s", status, description)
	}
}

// date sets, in all messages, the stream's sequence at which the replica answered.
func (c *answer) date(sequence string) {
	asOf, _ := strconv.ParseUint(sequence, 10, 64) // without one, messages are as old as they say
	for i := range c.messages {
		c.messages[i].AsOf = max(c.messages[i].AsOf, asOf)
	}
}

// own returns the last value of a header. The server adds its headers behind those of the message, which may have the same names.
func own(h nats.Header, name string) string {
	values := h[name]
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

func parse(m *nats.Msg) (jsapi.Message, error) {
	sequence, err := strconv.ParseUint(own(m.Header, headerSequence), 10, 64)
	if err != nil {
		return jsapi.Message{}, fmt.Errorf("answer without a sequence: %w", err)
	}
	created, err := time.Parse(time.RFC3339Nano, own(m.Header, "Nats-Time-Stamp"))
	if err != nil {
		return jsapi.Message{}, fmt.Errorf("answer without a time: %w", err)
	}
	var behind uint64
	if pending := own(m.Header, headerPending); pending != "" { // not in every answer
		behind, _ = strconv.ParseUint(pending, 10, 64) // then it is 0
	}
	return jsapi.Message{
		Subject: own(m.Header, "Nats-Subject"), Sequence: sequence, Time: created, Header: m.Header, Data: m.Data, AsOf: sequence, Behind: behind,
	}, nil
}

// Pushed parses a message that a stream republished. The message has the same headers as an answer to Last.
func Pushed(m *nats.Msg) (jsapi.Message, error) { return parse(m) }

// Answer parses a replica's answer to a request for the last message of one subject; ok is false when the subject has no message.
func Answer(m *nats.Msg) (message jsapi.Message, ok bool, err error) {
	status := m.Header.Get("Status")
	switch {
	case status == "", m.Header.Get(headerSequence) != "":
		message, err = parse(m)
		return message, err == nil, err
	case status == "404":
		return jsapi.Message{}, false, nil
	case status == "503":
		return jsapi.Message{}, false, ErrNoReply
	default:
		return jsapi.Message{}, false, fmt.Errorf("server answered %s %s", status, m.Header.Get("Description"))
	}
}

const (
	// batchBytes is the size at which the server ends an answer. It bounds the bytes under way to a slow client.
	batchBytes = 4 << 20

	// batchMessages is far above any answer: without it the server sends one message.
	batchMessages = 1 << 20

	// leaderTimeout is the time after which a request to a silent leader is repeated.
	leaderTimeout = time.Second
)

// All returns the data of the messages of subject in stream, in their order. size is the expected number of bytes: with another number the
// messages are not the expected messages. Any replica may answer, so the end may be missing. One round trip for each 4 MB, and one more
// where an answer ends early.
func (g *Getter) All(ctx context.Context, stream, subject string, size int) ([]byte, error) {
	data := make([]byte, 0, size)
	req := request{NextBy: subject, Batch: batchMessages, MaxBytes: batchBytes, Sequence: 1}
	for {
		c, err := g.ask(ctx, stream, req, idleTimeout)
		if errors.Is(err, errGone) { // it has no messages
			return data, nil
		}
		if err != nil && (c == nil || len(c.messages) == 0) {
			return nil, err
		}
		for _, m := range c.messages {
			data = append(data, m.Data...)
			req.Sequence = m.Sequence + 1
		}
		if err == nil && (!c.more || len(c.messages) == 0) || len(data) > size {
			return data, nil
		}
	}
}

// AllLeader is All with answers of the stream's leader. It requests each message by itself, and repeats a request for as long as patience
// while no server answers. A missing stream has no messages. One round trip for each message.
func (g *Getter) AllLeader(ctx context.Context, stream, subject string, size int, patience time.Duration) ([]byte, error) {
	data := make([]byte, 0, size)
	query := jsapi.Query{NextBySubject: subject, Sequence: 1}
	for {
		m, ok, err := g.getPatiently(ctx, stream, query, patience)
		if err != nil {
			return nil, err
		}
		if !ok {
			return data, nil
		}
		data = append(data, m.Data...)
		query.Sequence = m.Sequence + 1
		if len(data) > size {
			return data, nil
		}
	}
}

// getPatiently asks the leader for one message until there is an answer, and waits longer after each request. ok is false where the
// message or its stream does not exist.
func (g *Getter) getPatiently(
	ctx context.Context, stream string, query jsapi.Query, patience time.Duration,
) (message jsapi.Message, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	api := g.api
	for n := 0; ; n++ {
		message, ok, err = api.Get(ctx, stream, query)
		switch {
		case err == nil:
			return message, ok, nil
		case jsapi.IsNoStream(err):
			return message, false, nil
		case errors.Is(err, context.DeadlineExceeded):
			api.Within *= 2 // a message of an object may take long to arrive
		case !isTransient(err):
			return message, false, err
		}
		if !retry.Backoff(ctx, n, minWait, maxWait) {
			return message, false, err
		}
	}
}

// burst is the number of messages that Singly requests before it has an answer.
const burst = 64

// Singly is From with a request for each message. For a request for several messages, the server counts all messages behind them. If some
// were removed from the middle of the stream, that count goes through all subjects, 0.1 seconds for a million. Singly takes a round trip
// for each 64 messages. It reads messages without an answer, and messages behind many removed ones, as From does.
func (g *Getter) Singly(ctx context.Context, stream string, from uint64, limit int) (all []jsapi.Message, more bool, err error) {
	inbox := g.nc.NewInbox() + "."
	sub, err := g.nc.SubscribeSync(inbox + "*")
	if err != nil {
		return nil, false, fmt.Errorf("subscribe to replies: %w", err)
	}
	defer sub.Unsubscribe()

	for next, size := from, 0; ; {
		n, before := min(burst, limit+1-len(all)), len(all)
		got, whole, end := g.burst(ctx, sub, inbox, stream, next, n)
		for _, m := range got {
			if m.Sequence >= next {
				all, next = append(all, m), m.Sequence+1
				size += len(m.Data)
			}
		}
		switch {
		case len(all) > limit, end, size >= pageBytes:
			return all[:min(len(all), limit)], !end || len(all) > limit, nil
		case !whole || len(all)-before < n/2:
			rest, further, err := g.From(ctx, stream, next, limit+1-len(all))
			all = append(all, rest...)
			return all[:min(len(all), limit)], further || len(all) > limit, err
		}
	}
}

// burst requests the messages at n sequences, or the next message behind each. It reports whether all answers arrived, and whether the
// last one is that no further message exists.
func (g *Getter) burst(
	ctx context.Context, sub *nats.Subscription, inbox, stream string, from uint64, n int,
) (got []jsapi.Message, whole, end bool) {
	prefix := inbox + strconv.FormatUint(from, 10) + "-" // an answer to an earlier burst may be late
	for i := range n {
		body := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":">"}`, from+uint64(i))
		if g.nc.PublishRequest(g.api.Prefix+"DIRECT.GET."+stream, prefix+strconv.Itoa(i), body) != nil {
			return nil, false, false
		}
	}
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	answers, none := make([]*jsapi.Message, n), n // the first answer without a message
	for range n {
		reply, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			break
		}
		i, err := strconv.Atoi(strings.TrimPrefix(reply.Subject, prefix))
		message, ok, failed := Answer(reply)
		switch {
		case err != nil || i >= n || failed != nil:
		case ok:
			answers[i] = &message
		default:
			none = min(none, i)
		}
	}
	for i, m := range answers {
		if m == nil {
			end = i == none && !slices.ContainsFunc(answers[i:], func(m *jsapi.Message) bool { return m != nil }) // else that replica lags
			return got, end, end
		}
		got = append(got, *m)
	}
	return got, true, false
}
