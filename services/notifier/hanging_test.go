package notifier

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// With default settings, endpoints that have never been called and hang, more than there are slots for a provider, hold up no
// others: all of these have their message before the first call that hangs has ended.
func TestNewEndpointsThatHangHoldUpNoOthers(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const each, timeout = 100, 15 * time.Second
		p := newPlace(t, srv)
		for i := range each {
			for _, user := range []string{fmt.Sprint("hang-", i), fmt.Sprint("well-", i)} {
				p.directory(contracts.Recipient{
					RecipientType: contracts.RecipientCustomer, UserID: user, Addresses: map[string]string{"pigeon": "https://" + user + ".example/"},
				})
			}
		}
		birds := &pigeon{}
		birds.send = func(ctx context.Context, m channel.Message) (channel.Receipt, error) {
			if strings.HasPrefix(m.UserID, "hang") {
				<-ctx.Done()
				return channel.Receipt{}, &channel.Error{Kind: channel.KindTimeout}
			}
			return channel.Receipt{}, nil
		}
		p.start(birds, func(c *Config) {
			c.Channels[0].Endpoints, c.Channels[0].Timeout = true, timeout
			c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: all, channels: [pigeon]}}}")
		})
		p.publish(event("e", "X"))
		elapse(timeout - 5*time.Second)
		sent := 0
		for key, d := range p.deliveries() {
			if strings.Contains(key, "well") && d.State.Ended() {
				sent++
			}
		}
		check.Same(t, "sent", sent, each)
	})
}

// street is endpoints on one server: those under /hang/ never answer.
type street struct {
	mu    sync.Mutex
	known map[string]time.Time // when each message came
}

func (s *street) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/hang/") {
		_, _ = io.Copy(io.Discard, r.Body) //nolint:errcheck // its caller has given up
		<-r.Context().Done()
		return
	}
	var got struct {
		Data struct {
			EventID string `json:"event_id"`
		} `json:"data"`
	}
	if json.NewDecoder(r.Body).Decode(&got) == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.known[got.Data.EventID+r.URL.Path] = time.Now()
	}
}

// BenchmarkHangingEndpoints measures how long a message to a webhook that answers takes, from its event, while none or half of 1,000
// webhooks hang: of one event for all, when nothing is known of any, and then of 40 events a second for one user each.
func BenchmarkHangingEndpoints(b *testing.B) {
	for name, hang := range map[string]int{"none": 0, "half": 2} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				measureHanging(b, hang)
			}
		})
	}
}

// measureHanging has one of so many webhooks hang, none for 0.
func measureHanging(b *testing.B, one int) {
	b.Helper()
	const all, later = 1000, 1200
	srv := natstest.Server(b)
	nc, _ := natstest.Connect(b, srv)
	endpoints := &street{known: map[string]time.Time{}}
	far := httptest.NewServer(endpoints)
	hooks := check.Must(webhook.New(webhook.Config{
		AllowHTTP: true, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Secrets: []string{"whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"},
	}))(b)
	cfg := config(hooks, writeRules(b, "version: 1\nevents: {X: {CUSTOMER: {channels: [webhook]}}}"))
	cfg.Channels[0].Endpoints, cfg.Channels[0].Retries = true, webhook.Retries()
	n := check.Must(Start(b.Context(), nc, cfg))(b)
	hangs := func(i int) bool { return one > 0 && i%one == 0 }
	for i := range all {
		path := fmt.Sprint("/well/", i)
		if hangs(i) {
			path = fmt.Sprint("/hang/", i)
		}
		check.OK(b, n.Directory.Put(b.Context(), contracts.Recipient{
			RecipientType: contracts.RecipientCustomer, UserID: fmt.Sprint("u", i), Addresses: map[string]string{webhook.Name: far.URL + path},
		}, recipient.Member{Type: "RESTAURANT", ID: "5"}))
	}
	ticker := time.NewTicker(time.Second / 40)
	defer ticker.Stop()
	begun, want := map[string]time.Time{}, all
	if one > 0 {
		want -= all / one
	}
	publish := func(id, user string) {
		begun[id] = time.Now()
		check.OK(b, check.Err(n.Publish(b.Context(), event(id, "X", func(e *contracts.Event) {
			if e.UserID = user; user != "" {
				e.RecipientType = contracts.RecipientCustomer
			}
		}))))
	}
	publish("first", "")
	for endpoints.count() < want {
		<-ticker.C
	}
	for i := range later {
		<-ticker.C
		to := i * 7 % all
		publish(fmt.Sprint("e", i), fmt.Sprint("u", to))
		if !hangs(to) {
			want++
		}
	}
	for endpoints.count() < want {
		<-ticker.C
	}
	endpoints.report(b, begun)
	far.CloseClientConnections() // which ends the calls that hang
	check.OK(b, n.Stop())
	hooks.Close()
	far.Close()
}

func (s *street) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known)
}

// report prints the quantiles of the first event and of the later ones.
func (s *street) report(b *testing.B, begun map[string]time.Time) {
	b.Helper()
	took := map[string][]time.Duration{}
	for key, at := range s.known {
		id, _, _ := strings.Cut(key, "/")
		name := "later"
		if id == "first" {
			name = id
		}
		took[name] = append(took[name], at.Sub(begun[id]))
	}
	for name, all := range took {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Milliseconds()), name+"-p50-ms")
		b.ReportMetric(float64(all[len(all)*99/100].Milliseconds()), name+"-p99-ms")
		b.ReportMetric(float64(all[len(all)-1].Milliseconds()), name+"-max-ms")
	}
}
