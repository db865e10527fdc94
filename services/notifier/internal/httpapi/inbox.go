package httpapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
)

const (
	// maxItems bounds the items of a page, and the items that one request marks.
	maxItems = 1000

	// maxMark bounds the body of a request that marks items.
	maxMark = 512 << 10
)

// whose returns the user whose inbox a request names, if the caller may use it. An empty type stands for all types of the user.
func whose(r *http.Request) (contracts.RecipientType, string, error) {
	kind, userID := r.URL.Query().Get("type"), r.PathValue("user")
	caller := access.From(r.Context())
	if !caller.For(userID) {
		return "", "", access.Forbidden("the inbox is not that of the key's user")
	}
	if caller.RecipientType != "" {
		if kind != "" && kind != caller.RecipientType {
			return "", "", access.Forbidden("the key's user is of the type %q", caller.RecipientType)
		}
		kind = caller.RecipientType
	}
	if kind != "" {
		if token, err := contracts.EncodeToken(kind); err != nil || token != kind {
			return "", "", contracts.Mistake("query", "?type", "must be a kind of recipient, such as CUSTOMER")
		}
	}
	if _, err := contracts.EncodeToken(userID); err != nil {
		return "", "", contracts.Mistake("query", "user", fmt.Sprintf("must be an id of at most %d bytes", contracts.MaxID))
	}
	return contracts.RecipientType(kind), userID, nil
}

// inbox answers GET /v1/users/{user}/inbox?type=...&state=unread,read&limit=...&cursor=...
func (h *handler) inbox(w http.ResponseWriter, r *http.Request) error {
	kind, userID, err := whose(r)
	if err != nil {
		return err
	}
	v := parameters{Values: r.URL.Query()}
	options := inapp.ListOptions{Limit: v.limit()}
	if err := v.err(); err != nil {
		return err
	}
	if states := v.Get("state"); states != "" {
		for name := range strings.SplitSeq(states, ",") {
			state := inapp.State(name)
			if !state.Known() {
				return contracts.Mistake("query", "?state", "must be of unread, read and archived, with commas")
			}
			options.States = append(options.States, state)
		}
	}
	if cursor := v.Get("cursor"); cursor != "" {
		data, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil || json.Unmarshal(data, &options.After) != nil {
			return contracts.Mistake("query", "?cursor", "is none that was given out")
		}
	}
	page, err := h.items.Page(r.Context(), kind, userID, options)
	if err != nil {
		return err
	}
	answer := struct {
		inapp.Page

		Next string `json:"next,omitempty"`
	}{Page: page}
	if n := len(page.Items); page.More && n > 0 {
		data, err := json.Marshal(page.Items[n-1].Bookmark())
		if err != nil {
			return fmt.Errorf("encode the cursor: %w", err)
		}
		answer.Next = base64.RawURLEncoding.EncodeToString(data)
	}
	service.WriteJSON(w, http.StatusOK, answer)
	return nil
}

// mark is the body of a request that marks items.
type mark struct {
	// Events names the items by the ids of their events. Defaults to all unread items.
	Events []string `json:"events"`

	// State is the new state of the items.
	State inapp.State `json:"state"`
}

// markIn reads a request that marks items of a user's inbox.
func markIn(w http.ResponseWriter, r *http.Request) (kind contracts.RecipientType, userID string, m mark, err error) {
	if kind, userID, err = whose(r); err != nil {
		return kind, userID, m, err
	}
	body, err := service.Body(w, r, maxMark)
	if err != nil {
		return kind, userID, m, err
	}
	switch m, err = contracts.Read[mark](body); {
	case err != nil:
		return kind, userID, m, err
	case !m.State.Known():
		return kind, userID, m, contracts.Mistake("mark", "/state", "must be unread, read or archived")
	case len(m.Events) > maxItems:
		return kind, userID, m, contracts.Mistake("mark", "/events", fmt.Sprintf("has %d items, at most %d", len(m.Events), maxItems))
	}
	return kind, userID, m, nil
}

// markOne answers PATCH /v1/users/{user}/inbox/{event} with the changed item. A user with several recipient types needs the
// type.
func (h *handler) markOne(w http.ResponseWriter, r *http.Request) error {
	kind, userID, m, err := markIn(w, r)
	if err != nil {
		return err
	}
	item, err := h.items.MarkAny(r.Context(), kind, userID, r.PathValue("event"), m.State)
	return reply(w, item, err)
}

// markMany answers POST /v1/users/{user}/inbox with the number of marked items and the new counts. It leaves out items that
// do not exist.
func (h *handler) markMany(w http.ResponseWriter, r *http.Request) error {
	kind, userID, m, err := markIn(w, r)
	if err != nil {
		return err
	}
	marked, err := h.items.MarkAll(r.Context(), kind, userID, m.Events, m.State)
	if err != nil {
		return err
	}
	counts, err := h.items.Counts(r.Context(), kind, userID)
	return reply(w, map[string]any{"marked": marked, "counts": counts}, err)
}

// open begins a feed of the inbox that a request names.
func (h *handler) open(r *http.Request, after string) (*inapp.Feed, error) {
	kind, userID, err := whose(r)
	if err != nil {
		return nil, err
	}
	seen, _ := strconv.ParseUint(after, 10, 64) // a revision that is none counts as 0
	return h.items.Follow(r.Context(), kind, userID, seen)
}

// follow answers GET /v1/users/{user}/inbox/events with server-sent events: every item, or the items that have changed
// since Last-Event-ID, and then each new or changed item.
func (h *handler) follow(w http.ResponseWriter, r *http.Request) error {
	feed, err := h.open(r, service.LastEventID(r))
	if err != nil {
		return err
	}
	defer feed.Close()
	stream, err := service.OpenStream(w, r, service.Retry)
	if err == nil {
		_ = service.Relay(r.Context(), stream, service.Heartbeat, feed.Next, func(item inapp.Item) error {
			return stream.Event(strconv.FormatUint(item.Revision, 10), "item", item)
		})
	}
	return nil // the client has gone; it comes back with its last event id
}

// webSocket answers GET /v1/users/{user}/inbox/ws?last_event_id=... with the events of follow, one JSON object in each frame.
func (h *handler) webSocket(w http.ResponseWriter, r *http.Request) error {
	feed, err := h.open(r, r.URL.Query().Get("last_event_id"))
	if err != nil {
		return err
	}
	defer feed.Close()
	h.router.ServeSocket(w, r, func(ctx context.Context, s *service.Socket) error {
		return service.Relay(ctx, s, service.Heartbeat, feed.Next, func(item inapp.Item) error {
			return s.Frame(map[string]any{"type": "item", "id": strconv.FormatUint(item.Revision, 10), "item": item})
		})
	})
	return nil
}
