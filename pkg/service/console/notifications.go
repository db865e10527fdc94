package console

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/operate"
)

// pageRows is the number of rows on a page: each may have its attempts with it, and all of them are in one message.
const pageRows = 100

// rowQuery selects rows, in the form that the notifier reads.
type rowQuery struct {
	Address       string `json:"address,omitempty"`
	Channel       string `json:"channel,omitempty"`
	Cursor        string `json:"cursor,omitempty"`
	EventID       string `json:"event_id,omitempty"`
	Limit         int    `json:"limit,omitempty"`
	Reason        string `json:"reason,omitempty"`
	RecipientType string `json:"recipient_type,omitempty"`
	State         string `json:"state,omitempty"`
	UserID        string `json:"user_id,omitempty"`
}

// eventState is the notifier's state of an event.
type eventState struct {
	At         time.Time `json:"at"`
	EventID    string    `json:"event_id"`
	EventType  string    `json:"event_type"`
	Reason     string    `json:"reason"`
	Recipients int       `json:"recipients"`
	Rows       int       `json:"rows"`
	State      string    `json:"state"`
}

// notification is a row: one event, one user, one channel, and its outcome.
type notification struct {
	Address       string    `json:"address"`
	Addresses     []string  `json:"addresses"`
	Attempts      []attempt `json:"attempts"`
	Category      string    `json:"category"`
	Channel       string    `json:"channel"`
	CreatedAt     time.Time `json:"created_at"`
	Detail        string    `json:"detail"`
	Digest        string    `json:"digest"`
	EventID       string    `json:"event_id"`
	EventType     string    `json:"event_type"`
	FellBackTo    string    `json:"fell_back_to"`
	MessageID     string    `json:"message_id"`
	ProviderID    string    `json:"provider_id"`
	Reason        string    `json:"reason"`
	RecipientType string    `json:"recipient_type"`
	Replays       int       `json:"replays"`
	State         string    `json:"state"`
	Until         time.Time `json:"until"`
	UpdatedAt     time.Time `json:"updated_at"`
	UserID        string    `json:"user_id"`
}

// attempt is one call of a channel.
type attempt struct {
	At      time.Time `json:"at"`
	Detail  string    `json:"detail"`
	Outcome string    `json:"outcome"`
	TookMS  int64     `json:"took_ms"`
	Worker  string    `json:"worker"`
}

// Took returns the duration of the call.
func (a attempt) Took() time.Duration { return time.Duration(a.TookMS) * time.Millisecond }

// Words returns the outcome in words.
func (a attempt) Words() string { return cmp.Or(inWords(a.Outcome), "under way") }

// rowStates are the states of rows in words, and whether they are good, bad, or neither.
var rowStates = []struct{ Name, Words, Class string }{ //nolint:gochecknoglobals // a table
	{"pending", "waits to be sent", "warn"},
	{"deferred", "put off", "warn"},
	{"sending", "is being sent", "warn"},
	{"sent", "sent", "good"},
	{"delivered", "delivered", "good"},
	{"bounced", "bounced", "bad"},
	{"suppressed", "not sent", "soft"},
	{"split", "split", "soft"},
	{"failed", "failed", "bad"},
}

// reasons are the reasons of states in words.
var reasons = map[string]string{ //nolint:gochecknoglobals // a table
	"bounced": "the address does not exist", "cancelled": "it was cancelled", "digest": "it is told in a digest",
	"empty":             "the digest has no events",
	"endpoint_disabled": "the address has failed for days", "endpoint_down": "the address was not reached lately",
	"erased":         "the data of the user was erased",
	"exhausted":      "no attempts are left",
	"fallback_after": "it was tried for as long as it may", "gone": "the address is gone, and was removed",
	"misconfigured": "the channel is not set up",
	"muted":         "the user asked for silence", "no_address": "the user has no address there",
	"not_before": "the event is to be told later",
	"opt_out":    "the user has opted out", "quiet_hours": "the user's quiet hours", "rate_limited": "the far side asked for fewer",
	"read": "the user has read it in the inbox", "recipient": "the record of the user cannot be read",
	"rejected":  "the far side refused it",
	"throttled": "the user was told enough for now", "timeout": "the far side did not answer in time",
	"unavailable":     "the far side does not work",
	"unknown_outcome": "it may have been sent, and must not be sent twice",
}

func inWords(reason string) string {
	return cmp.Or(reasons[reason], strings.ReplaceAll(reason, "_", " "))
}

// state returns the state of a row in words, and its class.
func (n notification) state() (words, class string) {
	for _, s := range rowStates {
		if s.Name == n.State {
			return s.Words, s.Class
		}
	}
	return n.State, "soft"
}

// Class returns good, bad, warn or soft.
func (n notification) Class() string {
	_, class := n.state()
	return class
}

// Words returns the outcome of a row, and the reason, in words.
func (n notification) Words() string {
	words, _ := n.state()
	if n.Reason != "" && n.Reason != n.State {
		words += ": " + inWords(n.Reason)
	}
	switch {
	case n.FellBackTo != "":
		words += "; " + n.FellBackTo + " is tried instead"
	case len(n.Addresses) > 0:
		words += " into " + strings.Join(n.Addresses, ", ")
	}
	return words
}

// Open reports whether a row may still be sent.
func (n notification) Open() bool { return n.Class() == "warn" }

// rowsPage is the data of the screen.
type rowsPage struct {
	rowQuery

	Event  *eventState
	Failed bool // a row could be sent again
	Next   string
	Open   bool // a row could be cancelled
	Person bool // the screen shows the notifications of one user
	Rows   []notification
	States []string
	Words  string // of the event
}

// ByEvent groups rows by event, the latest first.
func (p rowsPage) ByEvent() (all [][]notification) {
	at := map[string]int{}
	rows := slices.SortedStableFunc(slices.Values(p.Rows), func(a, b notification) int { return b.CreatedAt.Compare(a.CreatedAt) })
	for _, n := range rows {
		i, ok := at[n.EventID]
		if !ok {
			i, at[n.EventID], all = len(all), len(all), append(all, nil)
		}
		all[i] = append(all[i], n)
	}
	return all
}

// Asked reports whether the query selects anything.
func (p rowsPage) Asked() bool { return p.rowQuery != rowQuery{Limit: pageRows} }

// summary counts rows by outcome: "sent 3, suppressed 1 (the user has opted out)".
func summary(rows []notification) string {
	type outcome struct{ state, reason string }
	counts := map[outcome]int{}
	var order []outcome
	for _, n := range rows {
		o := outcome{n.State, n.Reason}
		if counts[o] == 0 {
			order = append(order, o)
		}
		counts[o]++
	}
	slices.SortStableFunc(order, func(a, b outcome) int { return counts[b] - counts[a] })
	parts := make([]string, len(order))
	for i, o := range order {
		parts[i] = o.state + " " + number(counts[o])
		if o.reason != "" && o.reason != o.state {
			parts[i] += " (" + inWords(o.reason) + ")"
		}
	}
	return strings.Join(parts, ", ")
}

// words describes the handling of an event.
func (e eventState) words(rows []notification, more bool) string {
	switch e.State {
	case "seen":
		return "It is not planned yet. If that lasts, look at the dead letters of EVENTS."
	case "refused":
		return "It could not be planned: " + e.Reason + ". Mend that, and replay its dead letter of EVENTS."
	}
	words := fmt.Sprintf("planned %s for %s", counted(e.Rows, "row"), counted(e.Recipients, "recipient"))
	switch {
	case more:
		words += fmt.Sprintf("; of the first %d: ", len(rows)) + summary(rows)
	case len(rows) > 0:
		words += ": " + summary(rows)
	}
	if e.State == "cancelled" {
		words = "cancelled; " + words
	}
	return words
}

// addNotifications adds the screen of events, rows and attempts. A page costs two requests to the notifier.
func (c *Console) addNotifications() {
	show := func(r *request) error {
		v := r.URL.Query()
		p := rowsPage{Person: r.PathValue("user") != "", rowQuery: rowQuery{Cursor: v.Get("cursor"), Limit: pageRows}}
		operate.Read(&p.rowQuery, v)
		p.UserID = cmp.Or(r.PathValue("user"), p.UserID)
		for _, s := range rowStates {
			p.States = append(p.States, s.Name)
		}
		r.Command = operate.Line("notifications", &p.rowQuery)
		title := "Notifications"
		if !p.Asked() {
			return r.render("notifications", title, p)
		}
		if p.EventID != "" {
			title = "Event " + p.EventID
			if err := r.ask(r.Context(), "notifier.v1.get", map[string]string{"event_id": p.EventID}, &p.Event); err != nil {
				return err
			}
		} else if p.UserID != "" {
			title = "What " + p.UserID + " was sent"
		}
		var found struct {
			Next          string         `json:"next"`
			Notifications []notification `json:"notifications"`
		}
		if err := r.ask(r.Context(), "notifier.v1.list", p.rowQuery, &found); err != nil {
			return err
		}
		p.Rows = found.Notifications
		p.Open = slices.ContainsFunc(p.Rows, notification.Open)
		p.Failed = slices.ContainsFunc(p.Rows, func(n notification) bool { return n.State == "failed" })
		if found.Next != "" {
			v.Set("cursor", found.Next)
			p.Next = c.cfg.Prefix + r.URL.EscapedPath() + "?" + v.Encode()
		}
		if p.Words = summary(p.Rows); p.Event != nil {
			p.Words = p.Event.words(p.Rows, found.Next != "" || p.Cursor != "")
			p.Open = p.Open || p.Event.State == "seen" || found.Next != ""
		}
		return r.render("notifications", title, p)
	}
	c.page("GET /notifications", show)
	c.page("GET /people/{user}", show)
	c.action("POST /notifications/cancel", "cancel", func(r *request) (deed, error) {
		return r.ofEvent("notifier.v1.cancel", map[string]string{}, func(done map[string]any) (int, string) {
			return figure(done, "suppressed"), fmt.Sprintf("Cancelled: %d suppressed, %d had been sent, %d had ended otherwise, %d being sent.",
				figure(done, "suppressed"), figure(done, "sent"), figure(done, "ended"), figure(done, "sending"))
		})
	})
	c.action("POST /notifications/replay", "replay", func(r *request) (deed, error) {
		return r.ofEvent("notifier.v1.replay", map[string]string{"state": "failed"}, func(done map[string]any) (int, string) {
			return figure(done, "replayed"), fmt.Sprintf("%s sent again, %s gone: the stream keeps them no more.",
				counted(figure(done, "replayed"), "row"), counted(figure(done, "gone"), "row"))
		})
	})
}

func figure(answer map[string]any, name string) int {
	n, _ := answer[name].(float64) // absent is none
	return int(n)
}

// ofEvent returns the deed of a request to the notifier about the rows of an event, in parts. The notifier writes the record itself.
func (r *request) ofEvent(subject string, question map[string]string, tell func(map[string]any) (int, string)) (deed, error) {
	event, err := r.required("event")
	question["event_id"] = event
	note := ""
	return deed{
		Do: func(ctx context.Context) (int, error) {
			all := map[string]any{}
			for {
				var done map[string]any
				if err := r.ask(ctx, subject, question, &done); err != nil {
					return 0, err
				}
				for name := range done {
					if _, ok := done[name].(float64); ok {
						all[name] = float64(figure(all, name) + figure(done, name))
					}
				}
				next, _ := done["next"].(string)
				if question["cursor"] = next; next == "" {
					var n int
					n, note = tell(all)
					return n, nil
				}
			}
		},
		Note: func(int) string { return note }, Recorded: true, Target: event,
		To: r.c.href("/notifications") + "?" + url.Values{"event": {event}}.Encode(),
	}, err
}

// Fields implements [operate.Filter].
func (q *rowQuery) Fields() []operate.Field {
	return []operate.Field{
		{Name: "event", Value: &q.EventID},
		{Name: "user", Value: &q.UserID},
		{Name: "type", Value: &q.RecipientType},
		{Name: "channel", Value: &q.Channel},
		{Name: "address", Value: &q.Address},
		{Name: "state", Value: &q.State},
		{Name: "reason", Value: &q.Reason},
	}
}
