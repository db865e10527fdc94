package notifier

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// planner plans the large event. It is told the server's URL, and after a space that of the source, or nothing for the
// directory.
var planner = crash.Role[string]{Name: "source", Run: source}

// maxListHeap is what planning from the directory may have in memory, in bytes: what keys there are comes in one answer.
const maxListHeap = 64 << 20

// The directory has 100,000 members of one aggregate. The planner holds a page of them.
func TestAHundredThousandFromTheDirectory(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("stores 100,000 members")
	}
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	p := newPlace(t, srv)
	_, js := natstest.Connect(t, srv)
	for i := range audience {
		key, err := contracts.DirectoryMemberKey("RESTAURANT", "5", contracts.RecipientCustomer, userOf(i))
		check.OK(t, err)
		check.OK(t, check.Err(js.PublishAsync("$KV."+contracts.BucketDirectory+"."+key, nil, jetstream.WithStallWait(patience))))
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(patience):
		t.Fatal("the directory does not fill")
	}
	inItsOwnProcess(t, planner, srv.URL(), maxListHeap)
	p.planned()
}

// A service knows 100,000 recipients and tells 5,000 of them at a time.
func TestAHundredThousandOverHTTP(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("plans 100,000 recipients")
	}
	const page = 5_000
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Cursor string `json:"cursor"`
		}
		check.Is(t, json.NewDecoder(r.Body).Decode(&ask), nil)
		from, _ := strconv.Atoi(ask.Cursor) //nolint:errcheck // the first page has none
		var answer struct {
			Recipients []contracts.Recipient `json:"recipients"`
			Next       string                `json:"next,omitempty"`
		}
		for i := range page {
			answer.Recipients = append(answer.Recipients, contracts.Recipient{
				RecipientType: contracts.RecipientCustomer, UserID: userOf(from + i), Addresses: map[string]string{"email": userOf(from+i) + "@example.com"},
			})
		}
		if from+page < audience {
			answer.Next = strconv.Itoa(from + page)
		}
		check.Is(t, json.NewEncoder(w).Encode(answer), nil)
	}))
	defer source.Close()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	p := newPlace(t, srv)
	inItsOwnProcess(t, planner, srv.URL()+" "+source.URL, maxHeap)
	p.planned()
}

func userOf(i int) string { return "customer-number-" + strconv.Itoa(i) }

// planned checks that the large event's plan has every one of the recipients, once.
func (p *place) planned() {
	p.Helper()
	reader := plan.NewReader(recordtest.Client(p, p.js))
	committed, err := reader.Get(p.Context(), "large")
	if err != nil || committed.Rows != audience || committed.Recipients != audience {
		p.Fatalf("%+v: %v", committed, err)
	}
	seen := make(map[string]bool, audience)
	for entry, err := range reader.Entries(p.Context(), committed) {
		check.OK(p, err)
		seen[entry.UserID] = true
	}
	for i := range audience {
		if !seen[userOf(i)] {
			p.Fatalf("%s is not in the plan", userOf(i))
		}
	}
}

// source is the life of the process that plans the large event, and says what that took.
func source(ctx context.Context, urls string) error {
	url, resolverURL, _ := strings.Cut(urls, " ")
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	records, err := kvrecord.New(kvrecord.Config{JetStream: js})
	if err != nil {
		return err
	}
	defer records.Close()
	var resolver recipient.Resolver
	if resolver, err = recipient.OpenDirectory(ctx, js, records); err != nil {
		return err
	}
	if resolverURL != "" {
		if resolver, err = recipient.NewHTTP(recipient.HTTPConfig{URL: resolverURL}); err != nil {
			return err
		}
	}
	parsed, err := rules.Parse([]byte("{version: 1, events: {X: {CUSTOMER: {channels: [inapp]}}}}"), []string{"inapp"})
	if err != nil {
		return err
	}
	planner := plan.New(records, plan.Config{Resolver: resolver, Rules: func() *rules.Rules { return parsed }})
	peak := watchHeap()
	begin := time.Now()
	outcome, err := planner.Plan(ctx, contracts.Event{EventID: "large", EventType: "X", AggregateType: "RESTAURANT", AggregateID: "5"})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stdout, "%s in %s; heap %d bytes at most\n", outcome, time.Since(begin).Round(time.Millisecond), peak())
	return err
}
