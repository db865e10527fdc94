package notifier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
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
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// planner plans the large event, and expands it. It is told the server's URL.
var planner = crash.Role[string]{Name: "source", Run: source}

// The directory has 100,000 members of one aggregate. The planner holds a page of them, and the expander some hundred notifications. It
// all is in a separate process, so that the server's memory does not count.
func TestAHundredThousandFromTheDirectory(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("stores 100,000 members")
	}
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	p := newPlace(t, srv)
	_, js := natstest.Connect(t, srv)
	for i := range audience {
		key := check.Must(keys.Member("RESTAURANT", "5", "CUSTOMER", userOf(i)))(t)
		check.OK(t, check.Err(js.PublishAsync("$KV."+contracts.BucketDirectory+"."+key, nil, jetstream.WithStallWait(patience))))
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(patience):
		t.Fatal("the directory does not fill")
	}
	process := planner.Start(t, srv.URL())
	found := process.Await(`.*heap (\d+).*`)
	process.Stop()
	t.Logf("R1, default sync: %s", found[0])
	heap, err := strconv.Atoi(found[1])
	check.That(t, err == nil && heap <= maxHeap, "the heap had %d bytes, at most %d: %v", heap, maxHeap, err)
	p.planned()
}

func userOf(i int) string { return "customer-number-" + strconv.Itoa(i) }

// planned checks that the large event's plan has every one of the recipients, once, and that each has one notification.
func (p *place) planned() {
	p.Helper()
	reader := plan.NewReader(recordtest.Client(p, p.js))
	committed, err := reader.Get(p.Context(), "large")
	check.Require(p, err == nil && committed.Notifications == audience && committed.Recipients == audience,
		"%+v: %v", committed, err)
	seen := make(map[string]bool, audience)
	for n := range committed.Parts() {
		for _, entry := range check.Must(reader.Part(p.Context(), committed, n))(p) {
			seen[entry.UserID] = true
		}
	}
	for i := range audience {
		if !seen[userOf(i)] {
			p.Fatalf("%s is not in the plan", userOf(i))
		}
	}
	stream := check.Must(p.js.Stream(p.Context(), contracts.StreamNotifications))(p)
	info := check.Must(stream.Info(p.Context()))(p)
	want := uint64(audience + committed.Pages + 1)
	check.That(p, info.State.Msgs == want && info.State.LastSeq == want, "%d messages of %d, want %d", info.State.Msgs, info.State.LastSeq,
		want)
	kept, err := reader.Event(p.Context(), "large")
	check.That(p, err == nil && kept.State == plan.StateExpanded, "%+v: %v", kept, err)
}

// source runs in the process that plans and expands the large event, and reports the memory that it took.
func source(ctx context.Context, url string) error {
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
	directory := recipient.NewDirectory(js, records)
	parsed, err := rules.Parse([]byte("{version: 1, events: {X: {CUSTOMER: {channels: [inapp]}}}}"), []string{"inapp"})
	if err != nil {
		return err
	}
	planner := plan.New(records, plan.Config{Resolver: directory, Rules: func() *rules.Rules { return parsed }})
	peak := watchHeap()
	begin := time.Now()
	event := recipient.Event{EventID: "large", EventType: "X", AggregateType: "RESTAURANT", AggregateID: "5"}
	outcome, err := planner.Plan(ctx, event)
	for errors.Is(err, kvrecord.ErrUnavailable) && ctx.Err() == nil { // as the event's job would: the machine may be busy
		outcome, err = planner.Plan(ctx, event)
	}
	if err != nil {
		return err
	}
	planned := time.Since(begin)
	p, err := plan.NewReader(records).Get(ctx, "large")
	if err != nil {
		return err
	}
	var stored [2]deliver.Stored
	for i := range stored {
		if stored[i], err = deliver.NewExpander(records, nil).Expand(ctx, p); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(os.Stdout, "%s in %s; %d rows stored, and %d found again, in %s; heap %d bytes at most\n",
		outcome, planned.Round(time.Millisecond), stored[0].New, stored[1].Old, (time.Since(begin) - planned).Round(time.Millisecond), peak())
	return err
}

// failing is a source of recipients that fails for each of errs, and then knows one user of each kind, whom it names twice. It notes
// when it is asked.
type failing struct {
	asked []time.Time
	errs  []error
}

func (f *failing) Resolve(_ context.Context, q recipient.Query) iter.Seq2[contracts.Recipient, error] {
	tried := len(f.asked)
	f.asked = append(f.asked, time.Now())
	return func(yield func(contracts.Recipient, error) bool) {
		if tried < len(f.errs) {
			yield(contracts.Recipient{}, f.errs[tried])
			return
		}
		for more := range 2 {
			if !yield(contracts.Recipient{RecipientType: q.Type, UserID: "u"}, nil) || more > 0 {
				return
			}
		}
	}
}

// A source of recipients that fails is asked again after 1 s, 2 s and so on up to 5 minutes, a fifth more or less. Then the event is
// told.
func TestASourceThatFailsIsAskedAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newPlace(t, srv)
		source, waits := &failing{}, []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} // in seconds
		for range waits {
			source.errs = append(source.errs, &recipient.Error{})
		}
		n := p.start(&pigeon{}, func(c *Config) { c.Resolver = source })
		p.publish(event("evt-001", "RESERVATION_REQUESTED"))
		for _, wait := range waits {
			natstest.Pass(time.Second + time.Duration(float64(wait)*1.2*float64(time.Second)))
		}
		e, err := n.Event(t.Context(), "evt-001")
		check.That(t, err == nil && e.Planned == 3 && e.Recipients == 2, "%+v: %v", e, err)
		check.ErrorIs(t, n.Stop(), nil)
		check.Require(t, len(source.asked) > len(waits), "asked %d times, want more than %d", len(source.asked), len(waits))
		for i, wait := range waits {
			took, want := source.asked[i+1].Sub(source.asked[i]), time.Duration(wait)*time.Second
			most := want/5 + 50*time.Millisecond
			check.That(t, took >= want-want/5 && took <= want+most, "wait %d took %s, want %s, by %s more or less", i+1, took, want, most)
		}
	})
}

// audience is how many recipients the large event has.
const audience = 100_000

// maxHeap bounds the memory for planning and expanding it, in bytes: four times the usual.
const maxHeap = 32 << 20

// watchHeap watches how large the heap becomes. The function that it returns ends that, and tells.
func watchHeap() func() uint64 {
	var peak atomic.Uint64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapAlloc))
			select {
			case <-ticker.C:
			case <-done:
				return
			}
		}
	}()
	return func() uint64 {
		close(done)
		<-ended
		return peak.Load()
	}
}

// TestPayloadsAreRemembered: a payload that comes again removes none, and one more than there is room for is remembered itself.
func TestPayloadsAreRemembered(t *testing.T) {
	t.Parallel()
	var c payloads
	for i := range maxPayloads {
		c.put(strconv.Itoa(i), json.RawMessage("1"))
	}
	c.put("0", json.RawMessage("1"))
	check.Equal(t, len(c.byID), maxPayloads, "payloads")
	c.put("more", json.RawMessage("2"))
	payload, ok := c.get("more")
	check.That(t, ok && string(payload) == "2" && len(c.byID) <= maxPayloads, "got %s, %t of %d", payload, ok, len(c.byID))
}
