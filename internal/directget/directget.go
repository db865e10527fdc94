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
	inbox string // the common prefix of replies, with its final dot
	sub   *nats.Subscription

	mu    sync.Mutex
	calls map[string]*call
}

// New returns a Getter for the streams whose API is reached under the prefix api (such as "$JS.API.").
func New(nc *nats.Conn, api string) (*Getter, error) {
	g := &Getter{
		nc: nc, api: jsapi.Client{Prefix: api, Sender: jsapi.Over(nc), Within: leaderTimeout},
		inbox: nc.NewInbox() + ".", calls: map[string]*call{},
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
// subjects. Any replica may answer, so a message may be older than an acknowledged write. A subject that was written meanwhile may be
// there twice; the later message has the greater sequence.
//
// Requests without an answer, and missing parts of answers, are requested again until ctx ends.
func (g *Getter) Last(ctx context.Context, stream string, subjects []string) ([]jsapi.Message, error) {
	var all []jsapi.Message
	for len(subjects) > 0 {
		n := min(len(subjects), MaxSubjects)
		messages, err := g.complete(ctx, stream, request{MultiLast: subjects[:n]})
		if err != nil {
			return nil, err
		}
		all = append(all, messages...)
		subjects = subjects[n:]
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
		c, err := g.ask(ctx, stream, req, p.idle())
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

// complete repeats a request until the answer is complete. Messages arrive in the order of their sequences, so the next request begins
// behind the last message that arrived. The server's option to read as of the first request (up_to_seq) is not used: the earlier message
// of a key that was written meanwhile is gone.
func (g *Getter) complete(ctx context.Context, stream string, req request) ([]jsapi.Message, error) {
	var all []jsapi.Message
	var p pace
	for {
		c, err := g.ask(ctx, stream, req, p.idle())
		if c != nil && len(c.messages) > 0 {
			p = pace{}
			all = append(all, c.messages...)
			req.Sequence = c.messages[len(c.messages)-1].Sequence + 1
		}
		switch {
		case err == nil && !c.more:
			return all, nil
		case err == nil:
			continue
		case !isTransient(err) || !p.pause(ctx, err):
			return nil, err
		}
	}
}

// pace has the waits of one read since its last message.
type pace struct{ pauses, idles int }

// idle returns the time for which the next request waits for an answer.
func (p *pace) idle() time.Duration { return idleTimeout << min(p.idles, 10) }

// pause waits before the next request, after one that ended with err, and reports whether ctx has time left.
func (p *pace) pause(ctx context.Context, err error) bool {
	wait := min(minWait<<min(p.pauses, 10), maxWait)
	p.pauses++
	if errors.Is(err, errIdle) {
		p.idles++
	}
	return retry.Jitter(ctx, wait)
}

// isTransient reports whether the same request may succeed a moment later.
func isTransient(err error) bool {
	return errors.Is(err, errGap) || errors.Is(err, errGone) || errors.Is(err, errIdle) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrDisconnected)
}

// ask sends one request to any replica of stream and collects the answer. When ctx ends, or nothing arrives for patience, it returns the
// part that arrived with the error, errIdle in the second case.
func (g *Getter) ask(ctx context.Context, stream string, req request, patience time.Duration) (*call, error) {
	if err := context.Cause(ctx); err != nil { // an answer may still arrive while ctx is checked
		return nil, fmt.Errorf("not sent: %w", err)
	}
	if !g.nc.IsConnected() && !g.nc.IsClosed() {
		return nil, fmt.Errorf("not sent: %w", nats.ErrDisconnected) // the client would keep it, and send it too late
	}
	body, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	token := nuid.Next()
	c := &call{done: make(chan struct{})}
	g.mu.Lock()
	g.calls[token] = c
	g.mu.Unlock()
	defer g.forget(token)
	work, subject := denied.From(ctx), g.api.Prefix+"DIRECT.GET."+stream
	work.Sent(subject)
	if err := g.nc.PublishRequest(subject, g.inbox+token, body); err != nil {
		return nil, fmt.Errorf("send request: %w", err)
	}

	idle := time.NewTimer(patience)
	defer idle.Stop()
	for before := 0; ; {
		select {
		case <-c.done:
			work.Answered(subject, c.err)
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

// forget removes a call: after it, no reply is added to the call.
func (g *Getter) forget(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.calls, token)
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
