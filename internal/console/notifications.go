package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/operate"
)

// pageRows is the number of rows on a page: each may have its attempts with it, and all of them are in one message.
const pageRows = 100

type rowQuery struct {
	operate.Notifications

	Cursor string `json:"cursor,omitempty"`
	Limit  int    `json:"limit,omitempty"`
}

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

type attempt struct {
	At      time.Time `json:"at"`
	Detail  string    `json:"detail"`
	Outcome string    `json:"outcome"`
	TookMS  int64     `json:"took_ms"`
	Worker  string    `json:"worker"`
}

// Took returns the duration of the call.
func (a attempt) Took() time.Duration { return time.Duration(a.TookMS) * time.Millisecond }

// Words returns the outcome.
func (a attempt) Words() string { return cmp.Or(a.Outcome, "under way") }

// Class returns good, bad, warn or soft.
func (n notification) Class() string {
	for _, s := range operate.NotificationStates {
		if s[0] == n.State {
			return s[1]
		}
	}
	return "soft"
}

// Words returns the state of a row, and its reason.
func (n notification) Words() string {
	words := n.State
	if n.Reason != "" && n.Reason != n.State {
		words += " (" + n.Reason + ")"
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

type rowsPage struct {
	rowQuery

	Event   *eventState
	Failed  bool // a row could be sent again
	Next    template.URL
	Open    bool // a row could be cancelled
	Problem string
	Rows    []notification
	States  [][2]string
	Words   string // of the event
}

// summary counts rows by outcome: "sent 3, suppressed 1 (opt_out)".
func summary(rows []notification) string {
	counts := map[[2]string]int{} // by state and reason
	var order [][2]string
	for _, n := range rows {
		o := [2]string{n.State, n.Reason}
		counts[o]++
		if counts[o] == 1 {
			order = append(order, o)
		}
	}
	slices.SortStableFunc(order, func(a, b [2]string) int { return counts[b] - counts[a] })
	parts := make([]string, len(order))
	for i, o := range order {
		parts[i] = o[0] + " " + number(counts[o])
		if o[1] != "" && o[1] != o[0] {
			parts[i] += " (" + o[1] + ")"
		}
	}
	return strings.Join(parts, ", ")
}

func (e eventState) words(rows []notification, more bool) string {
	switch e.State {
	case "seen":
		return "It is not planned yet. If that lasts, look at the dead letters of EVENTS."
	case "refused":
		return "It could not be planned: " + e.Reason + ". Fix that, and replay its dead letter of EVENTS."
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
	c.page("GET /notifications", names(&rowQuery{}, "cursor"), c.showNotifications)
	c.action("POST /notifications/cancel", nil, func(r *request) (deed, error) {
		return r.ofEvent("notifier.v1.cancel", map[string]string{}, func(all changed) (int, string) {
			return all.Suppressed, fmt.Sprintf("Cancelled: %d suppressed, %d had been sent, %d had ended otherwise, %d being sent.",
				all.Suppressed, all.Sent, all.Ended, all.Sending)
		})
	})
	c.action("POST /notifications/replay", nil, func(r *request) (deed, error) {
		return r.ofEvent("notifier.v1.replay", map[string]string{"state": "failed"}, func(all changed) (int, string) {
			return all.Replayed, fmt.Sprintf("%s sent again, %s gone: the stream keeps them no more.",
				counted(all.Replayed, "row"), counted(all.Gone, "row"))
		})
	})
}

// showNotifications shows the rows that are named, or those that failed.
func (c *Console) showNotifications(r *request) error {
	v := r.URL.Query()
	p := rowsPage{rowQuery: rowQuery{Cursor: v.Get("cursor"), Limit: pageRows}, States: operate.NotificationStates}
	operate.Read(&p.rowQuery, v)
	named := p.Notifications != operate.Notifications{}
	if !named {
		p.State = "failed"
	}
	r.Command = operate.Line("notifications", &p.rowQuery)
	title := "Notifications"
	if p.EventID != "" {
		title = "Event " + p.EventID
		if err := r.ask(r.Context(), "notifier.v1.get", map[string]string{"event_id": p.EventID}, &p.Event); err != nil {
			return err
		}
	}
	var found struct {
		Next          string         `json:"next"`
		Notifications []notification `json:"notifications"`
	}
	err := r.ask(r.Context(), "notifier.v1.list", p.rowQuery, &found)
	if f, ok := errors.AsType[*failure](err); ok && !named { // there is perhaps no notifier
		p.Problem, err = f.text, nil
	}
	if err != nil {
		return err
	}
	p.Rows = found.Notifications
	p.Open = slices.ContainsFunc(p.Rows, notification.Open)
	p.Failed = slices.ContainsFunc(p.Rows, func(n notification) bool { return n.State == "failed" })
	if found.Next != "" {
		v.Set("cursor", found.Next)
		p.Next = address(c.cfg.Prefix+r.URL.EscapedPath(), v)
	}
	if p.Words = summary(p.Rows); p.Event != nil {
		p.Words = p.Event.words(p.Rows, found.Next != "" || p.Cursor != "")
		p.Open = p.Open || p.Event.State == "seen" || found.Next != ""
	}
	return r.render("notifications", title, p)
}

// changed counts the rows of an answer to a change, of which Next is the cursor.
type changed struct {
	Ended, Gone, Replayed, Sending, Sent, Suppressed int
	Next                                             string
}

// ofEvent returns the deed of a request to the notifier about the rows of an event, in parts. The notifier writes the record itself.
func (r *request) ofEvent(subject string, question map[string]string, tell func(changed) (int, string)) (deed, error) {
	event, err := r.required("event")
	question["event_id"] = event
	do := func(ctx context.Context) (int, string, error) {
		var all changed
		for {
			var one changed
			if err := r.ask(ctx, subject, question, &one); err != nil {
				return 0, "", err
			}
			all.Ended, all.Gone, all.Replayed = all.Ended+one.Ended, all.Gone+one.Gone, all.Replayed+one.Replayed
			all.Sending, all.Sent, all.Suppressed = all.Sending+one.Sending, all.Sent+one.Sent, all.Suppressed+one.Suppressed
			if question["cursor"] = one.Next; one.Next == "" {
				n, note := tell(all)
				return n, note, nil
			}
		}
	}
	return deed{Action: operate.Action{Do: do}, Recorded: true, To: r.c.href("/notifications", query("event", event))}, err
}
