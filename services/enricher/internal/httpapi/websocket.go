package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
)

// webSocket answers GET /v1/requests/{requestId}/ws. Every frame is one JSON object with a type. A plain client gets the
// RESULT_PATCH frames that existing front ends know, for what is known already too. A client that gives last_event_id,
// be it empty, gets what an event stream gets: a snapshot first, an eventId in every frame, and the end.
func (a *API) webSocket(w http.ResponseWriter, r *http.Request) error {
	a.sockets.Add(1)
	defer a.sockets.Done()
	query := r.URL.Query()
	resumable := query.Has("last_event_id")
	sub, err := a.Service.Subscribe(r.Context(), r.PathValue("requestId"), query.Get("last_event_id"))
	if err != nil {
		return err
	}
	defer sub.Close()
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
	code, reason := a.push(ctx, reading, conn, sub, resumable)
	if reason != "" {
		defer time.AfterFunc(closeTimeout, cut).Stop()
		_ = conn.Close(code, reason) //nolint:errcheck // the client may have gone
	}
	return nil
}

// push sends what there is to tell until there is no more. It returns how to take leave, or no reason when there is
// nobody to take leave of. What it writes has a context of its own: one that ends in the middle of a frame would cut the
// connection off.
func (a *API) push(
	ctx, writing context.Context, conn *websocket.Conn, sub *enrich.Subscription, resumable bool,
) (code websocket.StatusCode, reason string) {
	for {
		next, err := wait(ctx, sub, a.Heartbeat)
		switch {
		case errors.Is(err, service.ErrIdle):
			err = ping(writing, conn)
		case err != nil:
			return websocket.StatusGoingAway, "come back"
		case next.over:
			return websocket.StatusNormalClosure, "complete"
		default:
			err = send(writing, conn, next.Update, resumable)
		}
		if err != nil {
			return 0, ""
		}
	}
}

func ping(ctx context.Context, conn *websocket.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return conn.Ping(ctx) //nolint:wrapcheck // only ends the connection
}

// send writes the frames of one update.
func send(ctx context.Context, conn *websocket.Conn, u enrich.Update, resumable bool) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if resumable {
		return write(ctx, conn, u.Body, u.ID)
	}
	switch body := u.Body.(type) {
	case contracts.ResultPatch:
		return write(ctx, conn, body, "")
	case enrich.Snapshot:
		for _, patch := range body.Patches() {
			if err := write(ctx, conn, patch, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// write sends one frame; with an eventID as its last member when there is one.
func write(ctx context.Context, conn *websocket.Conn, body any, eventID string) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if eventID != "" {
		data = fmt.Appendf(data[:len(data)-1], `,"eventId":%q}`, eventID)
	}
	return conn.Write(ctx, websocket.MessageText, data) //nolint:wrapcheck // only ends the connection
}
