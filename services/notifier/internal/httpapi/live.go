package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
)

// seen returns the last change that the client saw, 0 for none.
func seen(id string) uint64 {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// open begins a feed of the inbox that a request names.
func (h *handler) open(r *http.Request, after string) (*inapp.Feed, error) {
	kind, userID, err := whose(r)
	if err != nil {
		return nil, err
	}
	return h.Inbox.Follow(r.Context(), kind, userID, seen(after))
}

// follow answers GET /v1/users/{user}/inbox/events with server-sent events: every item, or those that have changed since
// Last-Event-ID, and then each new or changed item.
func (h *handler) follow(w http.ResponseWriter, r *http.Request) error {
	feed, err := h.open(r, service.LastEventID(r))
	if err != nil {
		return err
	}
	defer feed.Close()
	stream, err := service.OpenStream(w, r)
	for err == nil {
		var item inapp.Item
		item, err = service.Wait(r.Context(), h.Heartbeat, feed.Next)
		switch {
		case errors.Is(err, service.ErrIdle):
			err = stream.Heartbeat()
		case err == nil:
			err = stream.Event(strconv.FormatUint(item.Revision, 10), "item", item)
		}
	}
	return nil // the client has gone; it comes back with its last event id
}

// frame is a frame of a WebSocket.
type frame struct {
	Type string     `json:"type"`
	ID   string     `json:"id"`
	Item inapp.Item `json:"item"`
}

// webSocket answers GET /v1/users/{user}/inbox/ws?last_event_id=... with the events of follow, one JSON object in each frame.
func (h *handler) webSocket(w http.ResponseWriter, r *http.Request) error {
	feed, err := h.open(r, r.URL.Query().Get("last_event_id"))
	if err != nil {
		return err
	}
	defer feed.Close()
	h.Router.ServeSocket(w, r, func(ctx context.Context, s *service.Socket) error {
		for {
			item, err := service.Wait(ctx, h.Heartbeat, feed.Next)
			switch {
			case errors.Is(err, service.ErrIdle):
				err = s.Heartbeat()
			case err == nil:
				err = s.Frame(frame{Type: "item", ID: strconv.FormatUint(item.Revision, 10), Item: item})
			}
			if err != nil {
				return err
			}
		}
	})
	return nil
}
