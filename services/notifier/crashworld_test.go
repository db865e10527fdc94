package notifier

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel/email"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush"
)

var kinds = []contracts.RecipientType{
	contracts.RecipientRestaurantUser, contracts.RecipientCustomer, contracts.RecipientAgencyUser, contracts.RecipientAdmin,
}

// crashRules have each kind told on every channel. What is urgent is told to those who opted out, and in quiet hours. Customers
// find everything in the application too.
func crashRules() string {
	var b strings.Builder
	b.WriteString("version: 1\nevents:\n")
	for event, priority := range map[string]string{"NEWS": "normal", "ALARM": "critical"} {
		fmt.Fprintf(&b, "  %s:\n", event)
		for _, kind := range kinds {
			more := ""
			if kind == contracts.RecipientCustomer {
				more = ", inapp"
			}
			fmt.Fprintf(&b, "    %s: {scope: all, channels: [email, webhook, webpush%s], category: news, template: news, priority: %s}\n", kind, more, priority)
		}
	}
	return b.String()
}

func writeTexts(t testing.TB, name, subject, text, html string) string {
	t.Helper()
	dir := t.TempDir()
	check.OK(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	for part, content := range map[string]string{"subject": subject, "txt": text, "html": html} {
		if content == "" {
			continue
		}
		check.OK(t, os.WriteFile(filepath.Join(dir, name, "default."+part), []byte(content), 0o600))
	}
	return dir
}

// mood is what is special about a user.
type mood int

const (
	noMail      mood = iota // opted out of the news by email
	asleep                  // has quiet hours all the time
	goneBrowser             // has a subscription that is not there any more
	noHook                  // has no server
	plain                   // nothing
)

// temper is the mood of a user, one of each in ten.
func temper(user string) mood {
	n, err := strconv.Atoi(strings.TrimPrefix(user, "u"))
	if err != nil {
		return plain
	}
	return min(mood(n%10), plain)
}

// user is what the directory holds of one.
func (c *cell) user(kind contracts.RecipientType, n int) contracts.Recipient {
	id := fmt.Sprint("u", n)
	place := "/" + string(kind) + "/" + id
	r := contracts.Recipient{UserID: id, RecipientType: kind, Addresses: map[string]string{
		email.Name:   id + "." + string(kind) + "@example.org",
		webhook.Name: c.far.http.URL + "/hook" + place,
		webpush.Name: c.far.browser.Address(c.far.http.URL + "/push" + place),
	}}
	switch temper(id) {
	case noMail:
		r.OptOut = map[string][]string{"news": {email.Name}}
	case asleep:
		clock := func(d time.Duration) string { return time.Now().UTC().Add(d).Format("15:04") }
		r.QuietHours = &contracts.QuietHours{From: clock(-2 * time.Hour), To: clock(4 * time.Hour)}
	case noHook:
		delete(r.Addresses, webhook.Name)
	case goneBrowser, plain:
	}
	return r
}

// want is what is to become of a row.
type want struct {
	channel, event, user string
	kind                 contracts.RecipientType
	urgent               bool
}

// ending is how a row ends whatever happens, beside that it is sent.
type ending string

const (
	told       ending = "told"
	suppressed ending = "suppressed: opt_out"
	deferred   ending = "deferred: quiet_hours"
	nowhere    ending = "suppressed: no_address"
	vanished   ending = "bounced: gone, or suppressed: no_address"
)

func (w want) ending() ending {
	switch mood := temper(w.user); {
	case w.channel == inapp.Name:
		return told
	case mood == noMail && w.channel == email.Name && !w.urgent:
		return suppressed
	case mood == asleep && !w.urgent:
		return deferred
	case mood == noHook && w.channel == webhook.Name:
		return nowhere
	case mood == goneBrowser && w.channel == webpush.Name:
		return vanished
	}
	return told
}

// event is the n-th event: every fourth brings its recipients along, and every fifth is urgent.
func (c *cell) event(n int) contracts.Event {
	e := contracts.Event{
		EventID: fmt.Sprint("evt-", n), EventType: "NEWS", AggregateType: "RESTAURANT", RecipientType: contracts.RecipientBroadcast,
		Payload: fmt.Appendf(nil, `{"n":%d}`, n),
	}
	if n%5 == 4 {
		e.EventType = "ALARM"
	}
	if n%4 == 3 {
		for _, kind := range kinds {
			for i := range c.users {
				e.Recipients = append(e.Recipients, contracts.Recipient{RecipientType: kind, UserID: fmt.Sprint("u", i), Locale: "en"})
			}
		}
	}
	return e
}

// rowsOf are the rows that an event has, by key.
func (c *cell) rowsOf(e contracts.Event) map[string]want {
	c.Helper()
	rows := map[string]want{}
	for _, kind := range kinds {
		channels := []string{email.Name, webhook.Name, webpush.Name}
		if kind == contracts.RecipientCustomer {
			channels = append(channels, inapp.Name)
		}
		for i := range c.users {
			for _, channel := range channels {
				w := want{channel: channel, event: e.EventID, user: fmt.Sprint("u", i), kind: kind, urgent: e.EventType == "ALARM"}
				key, err := contracts.DeliveryKey(w.event, w.channel, w.kind, w.user)
				check.OK(c, err)
				rows[key] = w
			}
		}
	}
	return rows
}
