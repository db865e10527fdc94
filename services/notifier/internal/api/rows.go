package api

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

const (
	// MaxLimit is the largest number of notifications of a page.
	MaxLimit = 1000

	// defaultLimit is the number of notifications of a page by default.
	defaultLimit = 100

	// scanned is the largest number of notifications that one query looks at.
	scanned = 2000

	// maxReads is the largest number of reads of one query, each of 8 MiB at most.
	maxReads = 5

	// slack is the number of records that are read in addition to the size of a page, because there are records of
	// events among the records of notifications.
	slack = 16

	// atOnce is the number of notifications that are changed at a time.
	atOnce = 32

	// keyTokens is the number of tokens in the key of a notification: event, channel, type, user.
	keyTokens = 4
)

// Query selects notifications. Empty fields select all.
type Query struct {
	// Address is the id of one of the addresses that a user has on a channel.
	Address string `json:"address,omitempty" query:"address"`

	// Channel is the name of the channel.
	Channel string `example:"webhook" json:"channel,omitempty" query:"channel"`

	// Cursor is the next of the page before.
	Cursor string `json:"cursor,omitempty" query:"cursor"`

	// EventID is the id of the event.
	EventID string `example:"evt-001" json:"event_id,omitempty" jsonschema:"maxLength=320" query:"event"`

	// Limit is the largest number of notifications. Defaults to 100.
	Limit int `example:"10" json:"limit,omitempty" jsonschema:"minimum=1,maximum=1000" query:"limit"`

	// Reason is the reason for the state, such as a channel.Kind.
	Reason string `example:"permanent" json:"reason,omitempty" query:"reason"`

	// RecipientType is the kind of recipient.
	RecipientType contracts.RecipientType `example:"CUSTOMER" json:"recipient_type,omitempty" query:"type"`

	// Since is the earliest time of the last change.
	Since time.Time `example:"2026-12-01T08:00:00Z" json:"since,omitzero" query:"since"`

	// State is the state of the notifications.
	State deliveries.State `example:"delivered" json:"state,omitempty" jsonschema:"enum=pending,enum=deferred,enum=sending,enum=sent,enum=delivered,enum=bounced,enum=suppressed,enum=failed,enum=split" query:"state"` //nolint:lll // a tag

	// UserID is the id of the user.
	UserID string `example:"carla" json:"user_id,omitempty" jsonschema:"maxLength=320" query:"user"`
}

// target describes the query in a record of the audit. It has a hash of the user, so that the audit has no data to erase
// with a user.
func (q Query) target() string {
	var b strings.Builder
	b.WriteString("notifications")
	for _, part := range [][2]string{
		{"event", q.EventID},
		{"channel", q.Channel},
		{"address", q.Address},
		{"since", timeOf(q.Since)},
		{"state", string(q.State)},
		{"reason", q.Reason},
		{"type", string(q.RecipientType)},
		{"user", audit.User(q.UserID)},
	} {
		if part[1] != "" {
			fmt.Fprintf(&b, " %s=%.128q", part[0], part[1])
		}
	}
	return b.String()
}

func timeOf(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// Notification is one notification, for one event, one user, one channel, and perhaps one of several addresses, with its outcome. The
// fields of the notification itself are present for as long as the stream keeps the notification.
type Notification struct {
	Address       string                  `json:"address,omitempty"`   // the id of the address that it is for, or that was tried
	Addresses     []string                `json:"addresses,omitempty"` // the ids of the addresses whose notifications have taken its place
	Attempts      []deliveries.Attempt    `json:"attempts,omitempty"`
	Category      string                  `json:"category,omitempty"`
	Channel       string                  `json:"channel"`
	CreatedAt     time.Time               `json:"created_at,omitzero"`
	Detail        string                  `json:"detail,omitempty"` // a description of a failure without an attempt
	Digest        string                  `json:"digest,omitempty"` // the event id of the digest that delivers it
	EventID       string                  `json:"event_id"`
	EventType     string                  `json:"event_type,omitempty"`
	FellBackTo    string                  `json:"fell_back_to,omitempty"`
	MessageID     string                  `json:"message_id"`
	Priority      string                  `json:"priority,omitempty"`
	ProviderID    string                  `json:"provider_id,omitempty"`
	Reason        string                  `json:"reason,omitempty"`
	RecipientType contracts.RecipientType `json:"recipient_type"`
	Replays       int                     `json:"replays,omitempty"`
	State         deliveries.State        `json:"state"`
	Template      string                  `json:"template,omitempty"`
	Until         time.Time               `json:"until,omitzero"`
	UpdatedAt     time.Time               `json:"updated_at,omitzero"`
	UserID        string                  `json:"user_id"`

	at   position // of the notification, or of the notification that was split into it
	kept *deliveries.Delivery
	key  string
}

// Page is a page of the notifications that a query selects.
type Page struct {
	// Next is the cursor of the next page, "" when there is none. An empty page may have a next one.
	Next string `json:"next,omitempty"`

	// Notifications are in the order in which they were stored, followed by notifications of the inbox that were not
	// stored. The notifications of an event are in the order of its plan, and notifications that are selected by state alone in the
	// order in which their records were written. An item that its user marks between two pages may be on both. Notifications of
	// addresses follow the notification that was split into them, on the same page.
	Notifications []Notification `json:"notifications"`
}

// validate reports every mistake of a query at once.
func (q Query) validate() error {
	var wrong contracts.Mistakes
	for name, value := range map[string]string{"event": q.EventID, "user": q.UserID} {
		_, err := contracts.EncodeToken(value)
		wrong.Add(value != "" && err != nil, "?"+name, fmt.Sprintf("must be at most %d bytes of Unicode", contracts.MaxID))
	}
	for name, value := range map[string]string{"address": q.Address, "channel": q.Channel, "type": string(q.RecipientType)} {
		wrong.Add(value != "" && !isToken(value), "?"+name, unnameable)
	}
	checkLimit(&wrong, q.Limit)
	wrong.Add(q.State != "" && !q.State.Known(), "?state",
		"must be pending, deferred, sending, sent, delivered, bounced, suppressed, split or failed")
	return wrong.In("query")
}

// tokens returns the tokens of event, channel, type and user, "*" for an empty field.
func (q Query) tokens() (tokens [keyTokens]string) {
	for i, value := range []string{q.EventID, q.Channel, string(q.RecipientType), q.UserID} {
		tokens[i] = "*"
		if token, err := contracts.EncodeToken(value); value != "" && err == nil { // see validate
			tokens[i] = token
		}
	}
	return tokens
}

// key returns the filter for the keys of the notifications, digestKey for the keys of the digests with the event's id, and
// subject for the subjects of the notifications.
func (q Query) key() string {
	tokens := q.tokens()
	return strings.Join(tokens[:], ".")
}

func (q Query) digestKey() string { return "digest." + q.key() }

func (q Query) subject() string {
	tokens := q.tokens()
	return strings.Join([]string{"notify.send", tokens[1], tokens[2], tokens[3], tokens[0]}, ".")
}

// matches reports whether a query selects the notification of a key, whatever its state.
func (q Query) matches(key string) bool {
	tokens := strings.Split(key, ".")
	if len(tokens) > keyTokens { // the address follows the channel
		tokens = slices.Delete(tokens, 2, 3)
	}
	for i, want := range q.tokens() {
		if want != "*" && want != tokens[i] {
			return false
		}
	}
	return true
}

// selects reports whether a query selects a notification by its address. A notification without an address is the notification of main.
func (q Query) selects(n Notification) bool {
	return q.Address == "" || q.Address == cmp.Or(n.Address, contracts.MainEndpoint) && len(n.Addresses) == 0
}

// Notifications returns notifications: by event, by user, by state, or by reason. A query by state alone finds only notifications that
// have been tried, or put off, at least once: a notification that no worker has begun has no record. A call looks at 2,000
// notifications at most, and the next continues with the cursor; memory is bounded by the page. The cost does not depend on the number
// of all notifications. It grows with the notifications of the user, when the query names one.
func (a *API) Notifications(ctx context.Context, q Query) (Page, error) {
	from, err := q.begin()
	if err != nil {
		return Page{}, err
	}
	q.Limit = cmp.Or(q.Limit, defaultLimit)
	return a.page(ctx, q, from, func(k *deliveries.Delivery) bool {
		return (q.State == "" || q.State == k.State) && (q.Reason == "" || q.Reason == k.Reason) && !k.UpdatedAt.Before(q.Since)
	})
}

// begin checks a query and returns the position at which it begins.
func (q Query) begin() (position, error) {
	if err := q.validate(); err != nil {
		return position{}, err
	}
	return parse(q.Cursor)
}

// each calls f for all notifications, some at a time, and returns the first error.
func each[T any](rows []T, f func(i int, row T) error) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, row := range rows {
		group.Go(func() error { return f(i, row) })
	}
	return group.Wait()
}

// page returns the notifications that a query selects. It reads the records when the query names a state or a reason, and
// neither event nor user.
func (a *API) page(ctx context.Context, q Query, next position, wanted func(*deliveries.Delivery) bool) (Page, error) {
	read := a.byRow
	if q.EventID == "" && q.UserID == "" && (q.State != "" || q.Reason != "") {
		read = a.byState
	}
	page := Page{Notifications: []Notification{}}
	for looked, reads := 0, 0; !next.end && looked < scanned && reads < maxReads && len(page.Notifications) < q.Limit; reads++ {
		// The limit of the page at first, and more when few of the notifications were wanted.
		rows, some, after, err := read(ctx, q, next, min((q.Limit+slack)<<(2*reads), scanned-looked))
		if err != nil {
			return Page{}, err
		}
		looked, next = looked+some, after
		for _, n := range rows {
			if !wanted(n.kept) || !q.selects(n) {
				continue
			}
			if have := len(page.Notifications); have >= q.Limit && page.Notifications[have-1].at != n.at {
				next = n.at
				break
			}
			page.Notifications = append(page.Notifications, n)
		}
	}
	page.Next = next.String()
	return page, nil
}

// byRow searches the notifications. looked is the number of records that were looked at.
func (a *API) byRow(ctx context.Context, q Query, from position, most int) (rows []Notification, looked int, next position, err error) {
	found, err := a.find(ctx, q, from, most)
	if err != nil {
		return nil, 0, from, err
	}
	found.rows = slices.DeleteFunc(found.rows, stored.isUnreadable)
	rows, err = a.became(ctx, found.rows, q.EventID != "" || q.UserID != "")
	return rows, found.looked, found.next, err
}

// became returns notifications with their outcomes, in their order. With split it also returns the notifications of single addresses,
// stored or not yet, after the notification that was split into them. One round trip for each 512.
func (a *API) became(ctx context.Context, rows []stored, split bool) ([]Notification, error) {
	known, err := a.kept(ctx, rows)
	if err != nil {
		return nil, err
	}
	var parts []stored
	for _, row := range rows {
		if kept := known[row.key]; split && kept != nil {
			parts = append(parts, row.parts(kept)...)
		}
	}
	if len(parts) > 0 {
		of, err := a.kept(ctx, parts)
		if err != nil {
			return nil, err
		}
		maps.Copy(known, of)
	}
	list := make([]Notification, 0, len(rows)+len(parts))
	for _, row := range rows {
		n := row.became(known)
		list = append(list, n)
		for range n.Addresses[:min(len(n.Addresses), len(parts))] { // in the same order
			list, parts = append(list, parts[0].became(known)), parts[1:]
		}
	}
	return list, nil
}

// kept returns the records of notifications, by their keys. It makes those of erased users, who have none. Up to two round trips for
// each 512 notifications.
func (a *API) kept(ctx context.Context, rows []stored) (map[string]*deliveries.Delivery, error) {
	of := make([]string, len(rows))
	for i, row := range rows {
		of[i] = row.key
	}
	known, err := a.cfg.Deliveries.GetMany(ctx, of)
	if err != nil {
		return nil, err
	}
	open := slices.DeleteFunc(slices.Clone(rows), func(s stored) bool { return known[s.key] != nil })
	users := make([]contracts.Recipient, len(open))
	for i, row := range open {
		users[i] = contracts.Recipient{RecipientType: row.RecipientType, UserID: row.UserID}
	}
	erased, err := a.cfg.Directory.Forgotten(ctx, users)
	for i, is := range erased {
		if is {
			known[open[i].key] = &deliveries.Delivery{State: deliveries.Suppressed, Reason: deliveries.ReasonErased}
		}
	}
	return known, err
}

// became returns a notification with its outcome.
func (s stored) became(known map[string]*deliveries.Delivery) Notification {
	kept, ok := known[s.key]
	if !ok {
		kept = &deliveries.Delivery{State: deliveries.Pending}
	}
	n := recorded(s.key, kept)
	n.Category, n.CreatedAt, n.EventType, n.Priority, n.Template = s.Category, s.CreatedAt, s.EventType, s.Priority, s.Template
	n.at = s.at
	return n
}

// parts returns the notifications of the addresses that a notification was split into.
func (s stored) parts(split *deliveries.Delivery) (rows []stored) {
	for _, id := range split.Addresses {
		row := s
		row.Address = id
		row.key, _ = keys.Of(&row.Notification) // the notification was read
		rows = append(rows, row)
	}
	return rows
}

// recorded returns the outcome that the record of a notification has.
func recorded(key string, d *deliveries.Delivery) Notification {
	of, _ := keys.Parse(key) // of a notification
	return Notification{
		Address: cmp.Or(of.Address, d.Endpoint), Addresses: d.Addresses, Channel: of.Channel, EventID: of.EventID,
		RecipientType: of.RecipientType, UserID: of.UserID, key: key,
		Attempts: d.Attempts, Detail: d.Detail, Digest: d.Digest, FellBackTo: d.FellBackTo,
		MessageID: deliveries.MessageID(key), ProviderID: d.ProviderID, Reason: d.Reason, Replays: d.Replays,
		State: d.State, Until: d.Until, UpdatedAt: d.UpdatedAt, kept: d,
	}
}

// byState searches the records, from a position on, and then those of the inbox.
func (a *API) byState(ctx context.Context, q Query, from position, most int) (rows []Notification, looked int, next position, err error) {
	scan := a.cfg.Deliveries.Scan
	if from.items {
		scan = a.cfg.Deliveries.ScanItems
	}
	entries, looked, after, err := scan(ctx, from.revision, most)
	if err != nil {
		return nil, 0, from, err
	}
	next = at(after)
	if next.items = from.items; next.end && !from.items && q.inInboxToo() {
		next = position{items: true, revision: 1}
	}
	for _, e := range entries {
		if q.matches(e.Key) {
			n := recorded(e.Key, e.Delivery)
			n.at = position{items: from.items, revision: e.Revision}
			rows = append(rows, n)
		}
	}
	return rows, looked, next, nil
}
