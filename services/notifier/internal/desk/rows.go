package desk

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/ledger"
)

const (
	// MaxLimit is how many rows one page may have.
	MaxLimit = 1000

	// defaultLimit is how many it has when nothing is said.
	defaultLimit = 100

	// scanned is how many rows one question looks at, whatever it finds.
	scanned = 2000

	// lookups is how many records are read at a time.
	lookups = 32
)

// Query selects rows. Fields that are empty select all.
type Query struct {
	Channel       string
	Cursor        string // where the page before has ended
	EventID       string
	Limit         int    // at most MaxLimit; defaults to 100
	Reason        string // why rows are in their state, such as a channel.Kind
	RecipientType contracts.RecipientType
	State         ledger.State
	UserID        string
}

// Notification is one row: one event, one user, one channel, and what became of it. What the row itself says is there for
// as long as the stream keeps it.
type Notification struct {
	Attempts      []ledger.Attempt        `json:"attempts,omitempty"`
	Category      string                  `json:"category,omitempty"`
	Channel       string                  `json:"channel"`
	CreatedAt     time.Time               `json:"created_at,omitzero"`
	Digest        string                  `json:"digest,omitempty"` // the event id of the digest that tells it
	EventID       string                  `json:"event_id"`
	EventType     string                  `json:"event_type,omitempty"`
	FellBackTo    string                  `json:"fell_back_to,omitempty"`
	MessageID     string                  `json:"message_id"`
	Priority      contracts.Urgency       `json:"priority,omitempty"`
	ProviderID    string                  `json:"provider_id,omitempty"`
	Reason        string                  `json:"reason,omitempty"`
	RecipientType contracts.RecipientType `json:"recipient_type"`
	Replays       int                     `json:"replays,omitempty"`
	State         ledger.State            `json:"state"`
	Template      string                  `json:"template,omitempty"`
	Until         time.Time               `json:"until,omitzero"`
	UpdatedAt     time.Time               `json:"updated_at,omitzero"`
	UserID        string                  `json:"user_id"`

	kept *ledger.Delivery
}

// Page is a part of what a query selects.
type Page struct {
	// Next is the cursor of the page behind, "" when there is none. A page may be empty and have a next one.
	Next string `json:"next,omitempty"`

	// Notifications are in the order in which their rows were stored; those that are selected by state alone in that in
	// which their records were written.
	Notifications []Notification `json:"notifications"`
}

// filter is the end of a subject, or a key, that selects rows: the tokens in the order of names, "*" for what is empty.
func (q Query) filter() (send, key string, err error) {
	tokens := map[string]string{"event": q.EventID, "channel": q.Channel, "type": string(q.RecipientType), "user": q.UserID}
	var problems []contracts.FieldError
	for name, value := range tokens {
		if tokens[name] = "*"; value == "" {
			continue
		}
		token, err := contracts.EncodeToken(value)
		if err != nil || (name == "channel" || name == "type") && token != value {
			problems = append(problems, contracts.FieldError{Path: "?" + name, Problem: "is none that there can be"})
			continue
		}
		tokens[name] = token
	}
	if q.Limit < 0 || q.Limit > MaxLimit {
		problems = append(problems, contracts.FieldError{Path: "?limit", Problem: fmt.Sprintf("must be 1 to %d", MaxLimit)})
	}
	if q.State != "" && !q.State.Known() {
		problems = append(problems, contracts.FieldError{
			Path: "?state", Problem: "must be pending, deferred, sending, sent, delivered, bounced, suppressed or failed",
		})
	}
	if len(problems) > 0 {
		return "", "", &contracts.ValidationError{Type: "query", Fields: problems}
	}
	send = strings.Join([]string{"notify.send", tokens["channel"], tokens["type"], tokens["user"], tokens["event"]}, ".")
	key = strings.Join([]string{tokens["event"], tokens["channel"], tokens["type"], tokens["user"]}, ".")
	return send, key, nil
}

func (q Query) from() (uint64, error) {
	if q.Cursor == "" {
		return 1, nil
	}
	from, err := strconv.ParseUint(q.Cursor, 36, 64)
	if err != nil || from == 0 {
		return 0, &contracts.ValidationError{Type: "query", Fields: []contracts.FieldError{
			{Path: "?cursor", Problem: "is none that was given out"},
		}}
	}
	return from, nil
}

// Notifications returns rows: by event, by user, by state, or by reason. One that is selected by nothing but its state has to have
// been tried, or put off, at least once: a row that nobody has touched has a record in no state. A question looks at 2,000
// rows at most and goes on with the cursor; memory is bounded by the page.
func (d *Desk) Notifications(ctx context.Context, q Query) (Page, error) {
	send, key, err := q.filter()
	if err != nil {
		return Page{}, err
	}
	from, err := q.from()
	if err != nil {
		return Page{}, err
	}
	q.Limit = cmp.Or(q.Limit, defaultLimit)
	wanted := func(k *ledger.Delivery) bool {
		return (q.State == "" || q.State == k.State) && (q.Reason == "" || q.Reason == k.Reason)
	}
	if q.EventID == "" && q.UserID == "" && (q.State != "" || q.Reason != "") {
		return d.byState(ctx, q, key, from, wanted)
	}
	return d.byRow(ctx, q, send, from, wanted)
}

// byRow looks through the rows.
func (d *Desk) byRow(ctx context.Context, q Query, filter string, from uint64, wanted func(*ledger.Delivery) bool) (Page, error) {
	page := Page{Notifications: []Notification{}}
	for looked := 0; looked < scanned && from > 0; {
		ask := min(q.Limit-len(page.Notifications), scanned-looked)
		if ask == 0 {
			break
		}
		found, next, err := d.rows.Scan(ctx, filter, from, ask)
		if err != nil {
			return Page{}, err
		}
		rows := make([]contracts.Notification, 0, len(found))
		for _, m := range found {
			row, err := contracts.Decode[contracts.Notification](m.Data)
			if err != nil {
				continue // somebody else's: the worker dead-letters it
			}
			rows = append(rows, row)
		}
		told, err := d.told(ctx, rows)
		if err != nil {
			return Page{}, err
		}
		for _, n := range told {
			if wanted(n.kept) {
				page.Notifications = append(page.Notifications, n)
			}
		}
		looked += len(found)
		from = next
	}
	page.Next = cursor(from)
	return page, nil
}

// told adds what became of rows.
func (d *Desk) told(ctx context.Context, rows []contracts.Notification) ([]Notification, error) {
	told := make([]Notification, len(rows))
	errs := make([]error, len(rows))
	var reading sync.WaitGroup
	room := make(chan struct{}, lookups)
	for i, row := range rows {
		room <- struct{}{}
		reading.Go(func() {
			defer func() { <-room }()
			told[i], errs[i] = d.one(ctx, row)
		})
	}
	reading.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return told, nil
}

func (d *Desk) one(ctx context.Context, row contracts.Notification) (Notification, error) {
	key, err := contracts.DeliveryKey(row.EventID, row.Channel, row.RecipientType, row.UserID)
	if err != nil {
		return Notification{}, err
	}
	kept, err := d.cfg.Ledger.Get(ctx, key)
	if err != nil {
		return Notification{}, err
	}
	n := became(key, kept)
	n.Category, n.Channel, n.CreatedAt, n.EventID, n.EventType = row.Category, row.Channel, row.CreatedAt, row.EventID, row.EventType
	n.Priority, n.RecipientType, n.Template, n.UserID = row.Priority, row.RecipientType, row.Template, row.UserID
	return n, nil
}

// became is what the record of a row says.
func became(key string, d *ledger.Delivery) Notification {
	return Notification{
		Attempts: d.Attempts, Digest: d.Digest, FellBackTo: d.FellBackTo,
		MessageID: deliver.MessageID(key), ProviderID: d.ProviderID, Reason: d.Reason, Replays: d.Replays,
		State: d.State, Until: d.Until, UpdatedAt: d.UpdatedAt, kept: d,
	}
}

// byState looks through the records.
func (d *Desk) byState(ctx context.Context, q Query, filter string, from uint64, wanted func(*ledger.Delivery) bool) (Page, error) {
	page := Page{Notifications: []Notification{}}
	for looked := 0; looked < scanned && from > 0 && len(page.Notifications) < q.Limit; {
		entries, next, err := d.cfg.Ledger.Scan(ctx, filter, from, min(q.Limit, scanned-looked))
		if err != nil {
			return Page{}, err
		}
		looked += max(len(entries), 1)
		from = next
		for _, e := range entries {
			if !wanted(e.Delivery) {
				continue
			}
			if len(page.Notifications) == q.Limit {
				from = e.Revision
				break
			}
			n := became(e.Key, e.Delivery)
			if err := n.name(e.Key); err == nil {
				page.Notifications = append(page.Notifications, n)
			}
		}
	}
	page.Next = cursor(from)
	return page, nil
}

// name reads whose row it is out of its key.
func (n *Notification) name(key string) error {
	tokens := strings.Split(key, ".")
	if len(tokens) != len([]string{"event", "channel", "type", "user"}) {
		return fmt.Errorf("key %s: %w", key, contracts.ErrTokenMalformed)
	}
	var err error
	if n.EventID, err = contracts.DecodeToken(tokens[0]); err != nil {
		return err
	}
	n.Channel, n.RecipientType = tokens[1], contracts.RecipientType(tokens[2])
	n.UserID, err = contracts.DecodeToken(tokens[3])
	return err
}

func cursor(from uint64) string {
	if from == 0 {
		return ""
	}
	return strconv.FormatUint(from, 36)
}
