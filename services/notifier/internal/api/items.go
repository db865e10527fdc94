package api

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
	// maxItems bounds the items that one request marks.
	maxItems = 1000

	// maxMark bounds the body of a request that marks items.
	maxMark = 512 << 10
)

// inbox answers requests about the items of users.
type inbox struct{ items *inapp.Inbox }

func (i inbox) operations() []service.Op {
	get := service.Op{
		Name: "getInbox", Route: "GET /v1/users/{user}/inbox", Need: access.Own(access.Read), Tag: "inbox",
		Summary: "Lists the items of a user, the newest first.", Good: map[int]string{http.StatusOK: "A page of items."},
		Bad: []int{http.StatusBadRequest},
	}
	markAll := service.Op{
		Name: "markItems", Route: "POST /v1/users/{user}/inbox", Need: access.Own(access.Mark), MaxBody: maxMark, Tag: "inbox",
		Summary: "Marks items of a user, all unread items without a list.", Example: service.JSON(`{"state":"read"}`),
		Good: map[int]string{http.StatusOK: "The number of marked items."},
	}
	markOne := markAll
	markOne.Name, markOne.Route, markOne.Summary = "markItem", "PATCH /v1/users/{user}/inbox/{event}", "Marks an item."
	markOne.Description, markOne.Example = "A user with several recipient types needs the type.", service.JSON(`{"state":"archived"}`)
	markOne.Good, markOne.Bad = map[int]string{http.StatusOK: "The changed item."}, []int{http.StatusNotFound}
	events, socket := get, get
	events.Name, events.Route = "followInbox", "GET /v1/users/{user}/inbox/events"
	events.Summary = "Sends the inbox live, as server-sent events."
	events.Description = "Every item, or those that have changed since Last-Event-ID, and then each new or changed one, as events " +
		"of the name item."
	events.Gives, events.Good = map[string]any{"text/event-stream": inapp.Item{}}, map[int]string{http.StatusOK: "The data of each event."}
	socket.Name, socket.Route, socket.Summary = "followInboxBySocket", "GET /v1/users/{user}/inbox/ws", "Sends the inbox live, over WebSocket."
	socket.Description = "The events of the event stream, each as one JSON object in a frame."
	socket.Good = map[int]string{http.StatusSwitchingProtocols: "The frames, see Frame."}
	return append(service.Follow(events, socket, i.follow,
		func(item inapp.Item) service.Event { return service.Event{ID: idOf(item), Type: typeItem, Body: item} },
		func(item inapp.Item, _ bool) []Frame { return []Frame{{Type: typeItem, ID: idOf(item), Item: item}} }),
		service.NewOp(get, i.list), service.NewOp(markAll, i.markAll), service.NewOp(markOne, i.markOne))
}

// InboxName names the inbox of a user.
type InboxName struct {
	// UserID is the id of the user.
	UserID string `example:"carla" jsonschema:"maxLength=320" path:"user"`

	// Kind is the kind of recipient. Defaults to all kinds that the user is.
	Kind string `example:"CUSTOMER" query:"type"`
}

// whose returns the kind of recipient whose inbox a request names, if the caller may use it. An empty type stands for all types of the
// user.
func (r InboxName) whose(ctx context.Context) (contracts.RecipientType, error) {
	caller, kind := access.From(ctx), r.Kind
	if !caller.For(r.UserID) {
		return "", access.Forbidden("the inbox is not that of the key's user")
	}
	if caller.RecipientType != "" {
		if kind != "" && kind != caller.RecipientType {
			return "", access.Forbidden("the key's user is of the type %q", caller.RecipientType)
		}
		kind = caller.RecipientType
	}
	var wrong contracts.Mistakes
	wrong.Add(kind != "" && !isToken(kind), "?type", "must be a kind of recipient, such as CUSTOMER")
	_, err := contracts.EncodeToken(r.UserID)
	wrong.Add(err != nil, "user", fmt.Sprintf("must be an id of at most %d bytes", contracts.MaxID))
	return contracts.RecipientType(kind), wrong.In("query")
}

// InboxQuery selects items of an inbox.
type InboxQuery struct {
	InboxName

	// State has states of items, with commas: unread, read, archived. Defaults to all but archived.
	State string `example:"unread,read" query:"state"`

	// Limit is the largest number of items.
	Limit int `example:"10" jsonschema:"minimum=1,maximum=1000" query:"limit"`

	// Cursor is the next of the page before.
	Cursor string `query:"cursor"`
}

// InboxPage is a part of an inbox.
type InboxPage struct {
	inapp.Page

	// Next is the cursor of the next page, "" when there is none.
	Next string `json:"next,omitempty"`
}

func (i inbox) list(ctx context.Context, r InboxQuery) (answer InboxPage, err error) {
	kind, err := r.whose(ctx)
	if err != nil {
		return answer, err
	}
	options := inapp.ListOptions{Limit: r.Limit}
	var wrong contracts.Mistakes
	if r.State != "" {
		for name := range strings.SplitSeq(r.State, ",") {
			state := inapp.State(name)
			wrong.Add(!state.Known(), "?state", "must be of unread, read and archived, with commas")
			options.States = append(options.States, state)
		}
	}
	if r.Cursor != "" {
		data, err := base64.RawURLEncoding.DecodeString(r.Cursor)
		wrong.Add(err != nil || json.Unmarshal(data, &options.After) != nil, "?cursor", "is none that was given out")
	}
	if err := wrong.In("query"); err != nil {
		return answer, err
	}
	if answer.Page, err = i.items.Page(ctx, kind, r.UserID, options); err != nil {
		return answer, err
	}
	if n := len(answer.Items); answer.More && n > 0 {
		data, err := json.Marshal(answer.Items[n-1].Bookmark())
		if err != nil {
			return answer, fmt.Errorf("encode the cursor: %w", err)
		}
		answer.Next = base64.RawURLEncoding.EncodeToString(data)
	}
	return answer, nil
}

// Mark marks items.
type Mark struct {
	// Events names the items by the ids of their events. Defaults to all unread items.
	Events []string `json:"events,omitempty"`

	// State is the new state of the items.
	State inapp.State `json:"state"`
}

// Validate implements [contracts.Message].
func (m Mark) Validate() error {
	var wrong contracts.Mistakes
	wrong.Add(!m.State.Known(), "/state", "must be unread, read or archived")
	wrong.Add(len(m.Events) > maxItems, "/events", fmt.Sprintf("has %d items, at most %d", len(m.Events), maxItems))
	return wrong.In("mark")
}

// MarkRequest marks items of an inbox.
type MarkRequest struct {
	InboxName

	Body Mark `body:"true" json:"-"`
}

// MarkOneRequest marks one item.
type MarkOneRequest struct {
	MarkRequest

	// EventID is the id of the item's event.
	EventID string `example:"welcome-carla" jsonschema:"maxLength=320" path:"event"`
}

func (i inbox) markOne(ctx context.Context, r MarkOneRequest) (item inapp.Item, err error) {
	kind, err := r.whose(ctx)
	if err != nil {
		return item, err
	}
	return i.items.MarkAny(ctx, kind, r.UserID, r.EventID, r.Body.State)
}

// Marked is the outcome of marking items. Items that do not exist are left out.
type Marked struct {
	// Counts are the new counts of the inbox.
	Counts inapp.Counts `json:"counts"`

	// Marked is the number of marked items.
	Marked int `json:"marked"`
}

func (i inbox) markAll(ctx context.Context, r MarkRequest) (done Marked, err error) {
	kind, err := r.whose(ctx)
	if err != nil {
		return done, err
	}
	if done.Marked, err = i.items.MarkAll(ctx, kind, r.UserID, r.Body.Events, r.Body.State); err != nil {
		return done, err
	}
	done.Counts, err = i.items.Counts(ctx, kind, r.UserID)
	return done, err
}

const typeItem = "item"

// Frame is a new or changed item, as a frame of the WebSocket.
type Frame struct {
	Type string `json:"type" jsonschema:"enum=item"`

	// ID is the position of the item, for last_event_id.
	ID string `json:"id"`

	Item inapp.Item `json:"item"`
}

func idOf(item inapp.Item) string { return strconv.FormatUint(item.Revision, 10) }

func (i inbox) follow(ctx context.Context, r InboxName, last string) (service.Feed[inapp.Item], error) {
	kind, err := r.whose(ctx)
	if err != nil {
		return nil, err
	}
	seen, _ := strconv.ParseUint(last, 10, 64) // a revision that is none counts as 0
	feed, err := i.items.Follow(ctx, kind, r.UserID, seen)
	if err != nil {
		return nil, err
	}
	return feed, nil
}
