package notifier

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel/email"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

var kinds = []contracts.RecipientType{
	"RESTAURANT_USER", "CUSTOMER", "AGENCY_USER", "ADMIN",
}

// crashRules notify each kind on every channel. Urgent events reach users who opted out, and come in quiet hours. Customers
// find everything in the application too.
func crashRules() string {
	var b strings.Builder
	b.WriteString("version: 1\nevents:\n")
	for event, priority := range map[string]string{"NEWS": "normal", "ALARM": "critical"} {
		fmt.Fprintf(&b, "  %s:\n", event)
		for _, kind := range kinds {
			more := ""
			if kind == "CUSTOMER" {
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

// mood is a property of a user that decides how their notifications end.
type mood int

const (
	noMail      mood = iota // opted out of the news by email
	asleep                  // has quiet hours all the time
	goneBrowser             // has a subscription that is not there any more
	noHook                  // has no server
	several                 // has several servers and browsers
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

// addresses are the ids of the addresses of a user who has several on a channel.
func addresses(user, channel string) []string {
	switch {
	case temper(user) == several && channel == webhook.Name:
		return []string{contracts.MainEndpoint, "desk", "phone"}
	case temper(user) == several && channel == webpush.Name:
		return []string{contracts.MainEndpoint, "phone"}
	}
	return nil
}

// generation is that of the secret of each address but main.
const generation = 7

// user returns the directory's record of a user.
func (c *cell) user(kind contracts.RecipientType, n int) contracts.Recipient {
	id := fmt.Sprint("u", n)
	place := "/" + string(kind) + "/" + id + "/"
	r := contracts.Recipient{UserID: id, RecipientType: kind, Addresses: map[string]string{
		email.Name: id + "." + string(kind) + "@example.org",
	}, Endpoints: map[string]map[string]contracts.Endpoint{webhook.Name: {}, webpush.Name: {}}}
	for channel, at := range map[string]func(address string) string{
		webhook.Name: func(address string) string { return c.far.http.URL + "/hook" + place + address },
		webpush.Name: func(address string) string { return c.far.browser.Address(c.far.http.URL + "/push" + place + address) },
	} {
		for _, address := range addresses(id, channel) {
			r.Endpoints[channel][address] = contracts.Endpoint{Address: at(address), Generation: generation}
		}
		delete(r.Endpoints[channel], contracts.MainEndpoint)
		r.Addresses[channel] = at(contracts.MainEndpoint)
	}
	switch temper(id) {
	case noMail:
		r.OptOut = map[string][]string{"news": {email.Name}}
	case asleep:
		clock := func(d time.Duration) string { return time.Now().UTC().Add(d).Format("15:04") }
		r.QuietHours = &contracts.QuietHours{From: clock(-2 * time.Hour), To: clock(4 * time.Hour)}
	case noHook:
		delete(r.Addresses, webhook.Name)
	case goneBrowser, several, plain:
	}
	return r
}

// want is a notification whose outcome is checked.
type want struct {
	contracts.Notification

	urgent bool
}

// ending is how a notification ends whatever happens, beside that it is sent.
type ending string

const (
	told       ending = "told"
	divided    ending = "split: "
	suppressed ending = "suppressed: opt_out"
	deferred   ending = "deferred: quiet_hours"
	nowhere    ending = "suppressed: no_address"
	vanished   ending = "bounced: gone, or suppressed: no_address"
)

func (w want) ending() ending {
	switch mood := temper(w.UserID); {
	case w.Address == "" && addresses(w.UserID, w.Channel) != nil:
		return divided
	case w.Channel == inapp.Name:
		return told
	case mood == noMail && w.Channel == email.Name && !w.urgent:
		return suppressed
	case mood == asleep && !w.urgent:
		return deferred
	case mood == noHook && w.Channel == webhook.Name:
		return nowhere
	case mood == goneBrowser && w.Channel == webpush.Name:
		return vanished
	}
	return told
}

// event is the n-th event: every fourth brings its recipients along, and every fifth is urgent.
func (c *cell) event(n int) recipient.Event {
	e := recipient.Event{
		EventID: fmt.Sprint("evt-", n), EventType: "NEWS", AggregateType: "RESTAURANT", RecipientType: "BROADCAST",
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

// rowsOf are the notifications that an event has, and those of addresses, by key.
func (c *cell) rowsOf(e recipient.Event) map[string]want {
	c.Helper()
	rows := map[string]want{}
	for _, kind := range kinds {
		channels := []string{email.Name, webhook.Name, webpush.Name}
		if kind == "CUSTOMER" {
			channels = append(channels, inapp.Name)
		}
		for i := range c.users {
			user := fmt.Sprint("u", i)
			for _, channel := range channels {
				for _, address := range append(addresses(user, channel), "") {
					n := contracts.Notification{Address: address, Channel: channel, EventID: e.EventID, RecipientType: kind, UserID: user}
					key := check.Must(keys.Of(&n))(c)
					rows[key] = want{n, e.EventType == "ALARM"}
				}
			}
		}
	}
	return rows
}

const freezing = "was frozen"

// trouble makes everything else happen, each thing when the providers have been called some more times.
func (c *cell) trouble(all *sync.WaitGroup) {
	calls := 0
	for n := range c.events {
		for _, w := range c.rowsOf(c.event(n)) {
			if w.ending() == told && w.Channel != "inapp" {
				calls++
			}
		}
	}
	misfortunes := []func(){c.killOne, c.forgetConsumers, c.killOne, c.freezeOne}
	if c.on.Restart != nil {
		misfortunes = []func(){c.killOne, c.killServer, c.freezeOne, c.killServer, c.forgetConsumers}
	}
	misfortunes = slices.Repeat(misfortunes, c.chaos)
	passes := make([]chan struct{}, len(misfortunes))
	for i := range passes {
		passes[i] = make(chan struct{})
		c.far.at((i+1)*calls/(len(misfortunes)+1), passes[i])
	}
	all.Go(func() {
		for i, pass := range passes {
			select {
			case <-pass:
				misfortunes[i]()
			case <-c.Context().Done():
				return
			}
		}
	})
}

// killOne kills one of the crew, wherever it is: providers are being called.
func (c *cell) killOne() {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := int(c.far.seed % uint64(len(c.hands)))
	p := c.hands[i]
	p.Kill()
	c.accidents.workers[nameOf(p)] = "was killed"
	c.accidents.kills++
	c.hands[i] = c.spawn("", 0)
}

// freezeOne stops one process of the crew until others have taken its jobs over, and lets it go on.
func (c *cell) freezeOne() {
	c.mu.Lock()
	p := c.hands[len(c.hands)-1]
	c.mu.Unlock()
	c.note(p, freezing)
	p.Pause()
	helper := c.spawn("", 0)
	<-time.After(2*ackWait + callTimeout)
	p.Continue()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hands = append(c.hands, helper)
}

// killServer kills a server, and starts it again.
func (c *cell) killServer() {
	from := time.Now()
	check.ErrorIs(c, c.on.Restart(c.Context(), contracts.StreamNotifications), nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accidents.servers = append(c.accidents.servers, span{from, time.Now()})
}

// forgetConsumers has every event, every plan and every notification delivered again, also those that are done.
func (c *cell) forgetConsumers() {
	for stream, names := range c.consumers() {
		for _, name := range names {
			err := natstest.UntilAnswered(c.T, func(ctx context.Context) error { return c.js.DeleteConsumer(ctx, stream, name) })
			check.That(c, err == nil || errors.Is(err, jetstream.ErrConsumerNotFound), // the answer to a first try was lost
				"consumer %s: %v", name, err)
		}
	}
}
