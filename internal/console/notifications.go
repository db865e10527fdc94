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

// notificationsPerPage is bounded because one message carries them all, each with its attempts.
const notificationsPerPage = 100

type notificationQuery struct {
	operate.Notifications

	Cursor string `json:"cursor,omitempty"`
	Limit  int    `json:"limit,omitempty"`
}

type eventState struct {
	At         time.Time `json:"at"`
	EventID    string    `json:"event_id"`
	EventType  string    `json:"event_type"`
	Reason     string    `json:"reason"`
	Planned    int       `json:"planned"`
	Recipients int       `json:"recipients"`
	State      string    `json:"state"`
}

// notification is that of one event to one user on one channel, with its outcome.
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

// Words returns the attempt's outcome.
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

// Words returns the state and its reason.
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

// Open reports whether the notification may still be sent.
func (n notification) Open() bool { return n.Class() == "warn" }

type notificationsPage struct {
	notificationQuery

	Event   *eventState
	Failed  bool // one could be resent
	List    []notification
	Next    template.URL
	Open    bool // one could be cancelled
	Problem string
	States  [][2]string
	Words   string // of the event
}

// summary counts notifications by outcome: "sent 3, suppressed 1 (opt_out)".
func summary(all []notification) string {
	counts := map[[2]string]int{} // by state and reason
	var order [][2]string
	for _, n := range all {
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

func (e eventState) words(shown []notification, more bool) string {
	switch e.State {
	case "seen":
		return "It is not planned yet. If that does not change, look at the dead letters of EVENTS."
	case "refused":
		return "It could not be planned: " + e.Reason + ". Fix that, and replay its dead letter of EVENTS."
	}
	words := fmt.Sprintf("planned %s for %s", counted(e.Planned, "notification"), counted(e.Recipients, "recipient"))
	switch {
	case more:
		words += fmt.Sprintf("; of the first %d: ", len(shown)) + summary(shown)
	case len(shown) > 0:
		words += ": " + summary(shown)
	}
	if e.State == "cancelled" {
		words = "cancelled; " + words
	}
	return words
}

// addNotifications adds the screen of events, notifications and attempts. A page costs two requests to the notifier.
func (c *Console) addNotifications() {
	c.page("GET /notifications", names(&notificationQuery{}, "cursor"), c.showNotifications)
	c.action("POST /notifications/cancel", nil, func(r *request) (deed, error) {
		return r.ofEvent("notifier.v1.cancel", map[string]string{}, func(all changed) (int, string) {
			return all.Suppressed, fmt.Sprintf("Cancelled: %d suppressed, %d had been sent, %d had ended otherwise, %d being sent.",
				all.Suppressed, all.Sent, all.Ended, all.Sending)
		})
	})
	c.action("POST /notifications/replay", nil, func(r *request) (deed, error) {
		return r.ofEvent("notifier.v1.replay", map[string]string{"state": "failed"}, func(all changed) (int, string) {
			return all.Replayed, fmt.Sprintf("%s resent, %d gone: the stream no longer stores them.",
				counted(all.Replayed, "notification"), all.Gone)
		})
	})
}

// showNotifications shows the notifications that the request selects, or those that failed.
func (c *Console) showNotifications(r *request) error {
	v := r.URL.Query()
	p := notificationsPage{
		notificationQuery: notificationQuery{Cursor: v.Get("cursor"), Limit: notificationsPerPage}, States: operate.NotificationStates,
	}
	operate.Read(&p.notificationQuery, v)
	named := p.Notifications != operate.Notifications{}
	if !named {
		p.State = "failed"
	}
	r.Command = operate.Line("notifications", &p.notificationQuery)
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
	err := r.ask(r.Context(), "notifier.v1.list", p.notificationQuery, &found)
	if f, ok := errors.AsType[*failure](err); ok && !named { // there is perhaps no notifier
		p.Problem, err = f.text, nil
	}
	if err != nil {
		return err
	}
	p.List = found.Notifications
	p.Open = slices.ContainsFunc(p.List, notification.Open)
	p.Failed = slices.ContainsFunc(p.List, func(n notification) bool { return n.State == "failed" })
	if found.Next != "" {
		v.Set("cursor", found.Next)
		p.Next = address(c.cfg.Prefix+r.URL.EscapedPath(), v)
	}
	if p.Words = summary(p.List); p.Event != nil {
		p.Words = p.Event.words(p.List, found.Next != "" || p.Cursor != "")
		p.Open = p.Open || p.Event.State == "seen" || found.Next != ""
	}
	return r.render("notifications", title, p)
}

// changed counts the notifications of an answer to a change, of which Next is the cursor.
type changed struct {
	Ended, Gone, Replayed, Sending, Sent, Suppressed int
	Next                                             string
}

// ofEvent returns the deed of a request to the notifier about the notifications of an event, in parts. The notifier writes the record
// itself.
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
