package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
)

const (
	writeTimeout = 10 * time.Second // for one frame to a client that does not read
	closeTimeout = time.Second      // for a client to agree to the end of a WebSocket
)

// seen is the change that a client saw last, 0 for none.
func seen(id string) uint64 {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// open begins a feed of the inbox that a request is about.
func (a *API) open(r *http.Request, after string) (*inapp.Feed, error) {
	kind, userID, err := whose(r)
	if err != nil {
		return nil, err
	}
	return a.Inbox.Follow(r.Context(), kind, userID, seen(after))
}

// follow answers GET /v1/users/{user}/inbox/events with server-sent events: every item, or those that have changed since
// Last-Event-ID, and from then on each that is new or changes, as it is.
func (a *API) follow(w http.ResponseWriter, r *http.Request) error {
	feed, err := a.open(r, service.LastEventID(r))
	if err != nil {
		return err
	}
	defer feed.Close()
	stream, err := service.OpenStream(w)
	for err == nil {
		var item inapp.Item
		item, err = service.Wait(r.Context(), a.Heartbeat, feed.Next)
		switch {
		case errors.Is(err, service.ErrIdle):
			err = stream.Heartbeat()
		case err == nil:
			err = stream.Event(strconv.FormatUint(item.Revision, 10), "item", item)
		}
	}
	return nil // the client has gone, and comes back with the id of what it saw
}

// frame is what a WebSocket is sent.
type frame struct {
	Type string     `json:"type"`
	ID   string     `json:"id"`
	Item inapp.Item `json:"item"`
}

// webSocket answers GET /v1/users/{user}/inbox/ws?last_event_id=... with the same, a JSON object in each frame.
func (a *API) webSocket(w http.ResponseWriter, r *http.Request) error {
	a.sockets.Add(1)
	defer a.sockets.Done()
	feed, err := a.open(r, r.URL.Query().Get("last_event_id"))
	if err != nil {
		return err
	}
	defer feed.Close()
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{OriginPatterns: a.Origins})
	if err != nil {
		return nil // Accept has answered
	}
	// Reading goes on when the request's context ends, because the service stops: the end is to be agreed on with the
	// client. It ends when the client closes; a message from it is a violation.
	reading, cut := context.WithCancel(context.WithoutCancel(r.Context()))
	defer func() {
		cut()
		_ = conn.CloseNow() //nolint:errcheck // closed already
	}()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(conn.CloseRead(reading), cancel)()
	a.push(ctx, reading, conn, feed)
	if r.Context().Err() != nil {
		defer time.AfterFunc(closeTimeout, cut).Stop()
		_ = conn.Close(websocket.StatusGoingAway, "come back") //nolint:errcheck // the client may have gone
	}
	return nil
}

// push sends what there is to tell until ctx ends or the client has gone. What it writes has a context of its own: one that
// ends in the middle of a frame would cut the connection off.
func (a *API) push(ctx, writing context.Context, conn *websocket.Conn, feed *inapp.Feed) {
	for {
		item, err := service.Wait(ctx, a.Heartbeat, feed.Next)
		switch {
		case errors.Is(err, service.ErrIdle):
			err = ping(writing, conn)
		case err == nil:
			err = send(writing, conn, frame{Type: "item", ID: strconv.FormatUint(item.Revision, 10), Item: item})
		}
		if err != nil {
			return
		}
	}
}

func ping(ctx context.Context, conn *websocket.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return conn.Ping(ctx) //nolint:wrapcheck // only ends the connection
}

func send(ctx context.Context, conn *websocket.Conn, f frame) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	data, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	return conn.Write(ctx, websocket.MessageText, data) //nolint:wrapcheck // only ends the connection
}
