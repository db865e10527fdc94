package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/coder/websocket"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
)

// webSocket answers GET /v1/requests/{requestId}/ws. Every frame is one JSON object with a type. A plain client gets the
// RESULT_PATCH frames that existing front ends know, for what is known already too. A client that gives last_event_id,
// be it empty, gets what an event stream gets: a snapshot first, an eventId in every frame, and the end.
func (a *api) webSocket(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	resumable := query.Has("last_event_id")
	sub, err := a.Service.Subscribe(r.Context(), r.PathValue("requestId"), query.Get("last_event_id"))
	if err != nil {
		a.fail(w, r, err)
		return
	}
	defer sub.Close()
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{OriginPatterns: a.Origins})
	if err != nil {
		return // Accept has answered
	}
	defer func() { _ = conn.CloseNow() }()
	ctx := conn.CloseRead(r.Context()) // ends when the client closes; a message from it is a violation
	for {
		update, ok, err := next(ctx, sub, a.Heartbeat)
		switch {
		case errors.Is(err, errIdle):
			err = ping(ctx, conn)
		case err != nil:
			_ = conn.Close(websocket.StatusGoingAway, "come back")
			return
		case !ok:
			_ = conn.Close(websocket.StatusNormalClosure, "complete")
			return
		default:
			err = send(ctx, conn, update, resumable)
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
