package service

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// farewellTimeout is for a client to take what is being written to it when the service stops, and to agree to the end of a
// WebSocket.
const farewellTimeout = time.Second

// Socket sends frames over a WebSocket (RFC 6455) to a client that may have stopped to read. Its errors say that the
// client has gone: it comes back with the id of what it saw.
type Socket struct {
	conn    *websocket.Conn
	writing context.Context //nolint:containedctx // the life of the connection, not of a call
}

// ServeSocket answers a request with a WebSocket, which tell writes to until it has no more to tell or its context ends:
// because the service stops, or because the client closes or sends a message, which is a violation. The client is told
// "complete" when tell returns nil, "come back" (1001) when it returns an error. Pages of other hosts are refused unless one of
// the patterns of origins matches theirs.
func ServeSocket(w http.ResponseWriter, r *http.Request, origins []string, tell func(context.Context, *Socket) error) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{OriginPatterns: origins})
	if err != nil {
		return // Accept has answered
	}
	// Reading goes on when the request's context ends, because the service stops: the end is to be agreed on with the
	// client.
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
	if tell(ctx, s) != nil {
		code, reason = websocket.StatusGoingAway, "come back"
	}
	defer time.AfterFunc(farewellTimeout, cut).Stop()
	_ = conn.Close(code, reason) //nolint:errcheck // the client may have gone
}

// listen answers pings until the client closes, or says something, which ends the connection. It is what CloseRead of the
// connection does, whose goroutine waits for itself, for 15 seconds, when the client says something.
func listen(ctx context.Context, conn *websocket.Conn) {
	if _, _, err := conn.Reader(ctx); err == nil {
		_ = conn.Close(websocket.StatusPolicyViolation, "unexpected data message") //nolint:errcheck // the client may have gone
		return
	}
	_ = conn.CloseNow() //nolint:errcheck // closed already
}

// Frame sends a body as one object of JSON.
func (s *Socket) Frame(body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	return s.do(func(ctx context.Context) error { return s.conn.Write(ctx, websocket.MessageText, data) })
}

// Heartbeat sends a ping, so that proxies keep an idle WebSocket open, and waits for its answer.
func (s *Socket) Heartbeat() error { return s.do(s.conn.Ping) }

// do has a context of its own, not that of tell: one that ends in the middle of a frame would cut the connection off.
func (s *Socket) do(write func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(s.writing, streamTimeout)
	defer cancel()
	if err := write(ctx); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
