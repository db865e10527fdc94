package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/expediter-io/expediter/internal/service/access"
)

// Retry is the time after which clients come back to a stream that was cut off.
const Retry = 2 * time.Second

// streamTimeout bounds the write of one event to a client that does not read.
const streamTimeout = 10 * time.Second

// Heartbeat is the time after which an idle stream gets a heartbeat, so that proxies keep it open.
const Heartbeat = 15 * time.Second

var errIdle = errors.New("nothing happened")

// Stream writes server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) to a client that may have stopped
// reading. An error means that the client has disconnected; it comes back with the id of the last event that it saw.
type Stream struct {
	control *http.ResponseController
	ctx     context.Context
	w       http.ResponseWriter
}

// OpenStream answers a request with an event stream. The handler writes nothing else to w. A client that is cut off comes back
// after retry, which is [Retry] for most streams. A write fails when the caller's key or token is no longer in force.
func OpenStream(w http.ResponseWriter, r *http.Request, retry time.Duration) (*Stream, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	s := &Stream{control: http.NewResponseController(w), ctx: r.Context(), w: w}
	// The server's deadline for reading a request would end the stream.
	if err := s.control.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("set deadline: %w", err)
	}
	if err := s.write(fmt.Sprintf("retry: %d\n\n", retry.Milliseconds())); err != nil {
		return nil, err
	}
	return s, nil
}

// Event sends one event. The id and the kind have no line breaks. An empty id makes the client forget its last id.
func (s *Stream) Event(id, kind string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return s.write(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", id, kind, data))
}

// HTML sends one event to a page that shows the HTML unchanged. The id and the kind are as for Event.
func (s *Stream) HTML(id, kind, html string) error {
	html = strings.NewReplacer("\r", "", "\n", "\ndata: ").Replace(html)
	return s.write(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", id, kind, html))
}

// Heartbeat sends a comment, so that proxies keep an idle stream open.
func (s *Stream) Heartbeat() error { return s.write(": heartbeat\n\n") }

func (s *Stream) write(text string) error {
	if err := access.Check(s.ctx); err != nil {
		return err
	}
	if err := s.control.SetWriteDeadline(time.Now().Add(streamTimeout)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	// HTTP/2 ends a stream whose deadline passes, even between writes.
	if err := s.control.SetWriteDeadline(time.Time{}); err != nil {
		return fmt.Errorf("clear deadline: %w", err)
	}
	return nil
}

const lastEventID = "last_event_id"

// LastEventID returns the id of the last event that the client saw: from the header that EventSource sends when it comes back, or from the
// query parameter last_event_id of a client that cannot set headers.
func LastEventID(r *http.Request) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	return r.URL.Query().Get(lastEventID)
}

// Relay passes on what next returns, and has a heartbeat sent to the stream or socket whenever next did not return within idle. It returns
// nil when next returns io.EOF, and any other error of next, send or the heartbeat.
func Relay[T any](
	ctx context.Context, to interface{ Heartbeat() error }, idle time.Duration,
	next func(context.Context) (T, error), send func(T) error,
) error {
	for {
		waiting, cancel := context.WithTimeoutCause(ctx, idle, errIdle)
		got, err := next(waiting)
		isIdle := ctx.Err() == nil && errors.Is(context.Cause(waiting), errIdle)
		cancel()
		switch {
		case err == nil:
			err = send(got)
		case errors.Is(err, io.EOF):
			return nil
		case isIdle:
			err = to.Heartbeat()
		}
		if err != nil {
			return err
		}
	}
}

// farewellTimeout is the time that a client has to read the frame being written when the service stops, and to answer the
// closing handshake.
const farewellTimeout = time.Second

// Socket sends frames over a WebSocket (RFC 6455) to a client that may have stopped reading. An error means that the client has
// disconnected; it comes back with the id of the last event that it saw.
type Socket struct {
	conn    *websocket.Conn
	writing context.Context
}

// ServeSocket answers a request with a WebSocket. send writes to it until send returns or its context ends. The context ends when the
// service stops, when the client closes the connection or sends a message, which is a violation, and when the caller's key or token is no
// longer in force. The connection closes with "complete" (1000) when send returns nil, and with "come back" (1001) when it returns an
// error. Pages of other hosts are refused unless RouterConfig.Origins has their origin.
func (a *Router) ServeSocket(w http.ResponseWriter, r *http.Request, send func(context.Context, *Socket) error) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		OriginPatterns: patterns(a.cfg.Origins), Subprotocols: []string{access.Subprotocol},
	})
	if err != nil {
		return // Accept has answered
	}
	// Reads go on when the service stops and ends the request's context, for the client's answer to the closing handshake.
	reading, cut := context.WithCancel(context.WithoutCancel(r.Context()))
	ctx, cancel := context.WithCancel(r.Context())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer cancel()
		listen(reading, conn)
	}()
	defer func() {
		cancel()
		cut()
		_ = conn.CloseNow() // closed already
		<-read
	}()
	defer context.AfterFunc(r.Context(), func() { time.AfterFunc(farewellTimeout, cut) })()
	s := &Socket{conn: conn, writing: reading}
	code, reason := websocket.StatusNormalClosure, "complete"
	if send(ctx, s) != nil {
		code, reason = websocket.StatusGoingAway, "come back"
	}
	defer time.AfterFunc(farewellTimeout, cut).Stop()
	_ = conn.Close(code, reason) // the client may have gone
}

// listen answers pings until the client closes the connection, or sends a message, which ends the connection. Conn.CloseRead would do the
// same, but its goroutine waits 15 seconds for itself after a message.
func listen(ctx context.Context, conn *websocket.Conn) {
	if _, _, err := conn.Reader(ctx); err == nil {
		_ = conn.Close(websocket.StatusPolicyViolation, "unexpected data message") // the client may have gone
		return
	}
	_ = conn.CloseNow() // closed already
}

// Frame sends a body as one JSON object.
func (s *Socket) Frame(body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	return s.do(func(ctx context.Context) error { return s.conn.Write(ctx, websocket.MessageText, data) })
}

// Heartbeat sends a ping, so that proxies keep an idle WebSocket open, and waits for its answer.
func (s *Socket) Heartbeat() error { return s.do(s.conn.Ping) }

// do writes with a separate context, not that of send: a context that ends in the middle of a frame cuts the connection off.
func (s *Socket) do(write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.writing, streamTimeout)
	defer cancel()
	if err := access.Check(ctx); err != nil {
		return err
	}
	if err := write(ctx); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// Feed is a sequence of changes that a client follows.
type Feed[T any] interface {
	// Next returns the next change, and io.EOF after the last.
	Next(ctx context.Context) (T, error)

	// Close ends the feed.
	Close()
}

// Event is a change as it is sent to a client. A client that comes back gives the ID of the last one that it has.
type Event struct {
	ID, Type string
	Body     any
}

// LastEvent describes the parameters of a stream of server-sent events.
type LastEvent struct {
	// Header is the id of the last event that the client has seen. Browsers send it.
	Header string `header:"Last-Event-ID"`

	// Query is the same for clients that cannot set the header.
	Query string `query:"last_event_id"`
}

// LastFrame describes the parameter of a WebSocket.
type LastFrame struct {
	// ID is the id of the last frame that the client has seen, empty for none.
	ID string `empty:"true" query:"last_event_id"`
}

// Follow returns two operations by which clients follow a feed: server-sent events, and a WebSocket, each frame of which is JSON. open
// begins a feed after the last event that the client has, "" for none. frames returns the frames of a change; resumes reports whether
// the client has given the id of an event, empty or not. A feed with a method Over that returns true ends the return of its
// clients with 204, on which EventSource stops.
func Follow[Q, T, F any](
	events, socket Op, open func(ctx context.Context, q Q, last string) (Feed[T], error), event func(T) Event,
	frames func(t T, resumes bool) []F,
) []Op {
	in := newReader(reflect.TypeFor[Q](), Op{})
	start := func(w http.ResponseWriter, r *http.Request, last string) (Feed[T], error) {
		var q Q
		if err := in.http(w, r, &q); err != nil {
			return nil, err
		}
		return open(r.Context(), q, last)
	}
	request := reflect.TypeFor[Q]()
	events.requests, events.response, events.streams = []reflect.Type{request, reflect.TypeFor[LastEvent]()}, reflect.TypeFor[T](), true
	events.serve = func(a *Router, w http.ResponseWriter, r *http.Request) error {
		feed, err := start(w, r, LastEventID(r))
		if err != nil {
			return err
		}
		defer feed.Close()
		if f, ok := feed.(interface{ Over() bool }); ok && f.Over() {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
		stream, err := OpenStream(w, r, Retry)
		if err == nil {
			_ = Relay(r.Context(), stream, a.cfg.Heartbeat, feed.Next, func(t T) error {
				e := event(t)
				return stream.Event(e.ID, e.Type, e.Body)
			})
		}
		return nil // the client has gone; it comes back with the id of its last event
	}
	socket.requests, socket.response, socket.socket = []reflect.Type{request, reflect.TypeFor[LastFrame]()}, reflect.TypeFor[F](), true
	socket.serve = func(a *Router, w http.ResponseWriter, r *http.Request) error {
		query := r.URL.Query()
		feed, err := start(w, r, query.Get(lastEventID))
		if err != nil {
			return err
		}
		defer feed.Close()
		a.ServeSocket(w, r, func(ctx context.Context, s *Socket) error {
			return Relay(ctx, s, a.cfg.Heartbeat, feed.Next, func(t T) error {
				for _, frame := range frames(t, query.Has(lastEventID)) {
					if err := s.Frame(frame); err != nil {
						return err
					}
				}
				return nil
			})
		})
		return nil
	}
	return []Op{events, socket}
}
