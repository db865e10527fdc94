package service

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/expediter-io/expediter/pkg/service/access"
)

// farewellTimeout is the time that a client has to read the frame being written when the service stops, and to answer the
// closing handshake.
const farewellTimeout = time.Second

// Socket sends frames over a WebSocket (RFC 6455) to a client that may have stopped reading. An error says that the client
// has gone; it comes back with the id of the last event that it saw.
type Socket struct {
	conn    *websocket.Conn
	writing context.Context //nolint:containedctx // the life of the connection, not of a call
}

// ServeSocket answers a request with a WebSocket, which send writes to until it is done or its context ends: the service
// stops, or the client closes the connection or sends a message, which is a violation. The connection closes with "complete"
// (1000) when send returns nil, and with "come back" (1001) when it returns an error. Pages of other hosts are refused unless
// RouterConfig.Origins has their origin. It also ends when the caller's key or token is not in
// force any more.
func (a *Router) ServeSocket(w http.ResponseWriter, r *http.Request, send func(context.Context, *Socket) error) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		OriginPatterns: patterns(a.cfg.Origins), Subprotocols: []string{access.Subprotocol},
	})
	if err != nil {
		return // Accept has answered
	}
	// Reading goes on when the service stops and ends the request's context: the client answers the closing handshake.
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
		_ = conn.CloseNow() //nolint:errcheck // closed already
		<-read
	}()
	defer context.AfterFunc(r.Context(), func() { time.AfterFunc(farewellTimeout, cut) })()
	s := &Socket{conn: conn, writing: reading}
	code, reason := websocket.StatusNormalClosure, "complete"
	if send(ctx, s) != nil {
		code, reason = websocket.StatusGoingAway, "come back"
	}
	defer time.AfterFunc(farewellTimeout, cut).Stop()
	_ = conn.Close(code, reason) //nolint:errcheck // the client may have gone
}

// listen answers pings until the client closes the connection or sends a message, which ends it. Conn.CloseRead would do the
// same, but its goroutine waits 15 seconds for itself after a message.
func listen(ctx context.Context, conn *websocket.Conn) {
	if _, _, err := conn.Reader(ctx); err == nil {
		_ = conn.Close(websocket.StatusPolicyViolation, "unexpected data message") //nolint:errcheck // the client may have gone
		return
	}
	_ = conn.CloseNow() //nolint:errcheck // closed already
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

// do uses a context of its own, not that of send: a context that ends in the middle of a frame cuts the connection off.
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
