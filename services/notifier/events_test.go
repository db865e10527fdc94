package notifier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"runtime"
	"strconv"
	"strings"
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
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// The document's table, first processing and event reprocessed: the same event again, later than any window remembers. Each user is told
// once on each channel.
func TestTheSameEventAgainIsSkipped(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	d := p.directory(users("RESTAURANT_USER", 3)...)
	push := &provider{}
	n := p.start(push)
	p.publish(event("evt-001", "RESERVATION_REQUESTED", toStaff))
	p.settled(6)
	check.OK(t, d.Put(t.Context(), contracts.Recipient{RecipientType: "RESTAURANT_USER", UserID: "new"}))
	for _, again := range []string{ // in another order, with other white space
		`{"event_id":"evt-001","event_type":"RESERVATION_REQUESTED","aggregate_type":"RESTAURANT","recipientType":"RESTAURANT_USER","restaurant_id":5,"payload":{"guests":4}}`,
		"{\"payload\": {\"guests\": 4.0}, \"restaurant_id\": 5,\n\"recipientType\":\"RESTAURANT_USER\",\"event_type\":\"RESERVATION_REQUESTED\",\"aggregate_type\":\"RESTAURANT\",\"event_id\":\"evt-001\"}",
	} {
		check.OK(t, check.Err(p.js.Publish(t.Context(), "events.RESTAURANT.RESERVATION_REQUESTED", []byte(again))))
	}
	p.publish(event("nobody", "NO_RULE"))
	p.until("all are skipped", func() bool { return n.Stats().Duplicates == 2 && n.Stats().Ignored == 1 })
	check.Equal(t, len(p.deliveries()), 6, "notifications")
	messages, calls := push.counts()
	check.That(t, messages == 3 && calls == 3, "%d messages in %d calls", messages, calls)
	stats := n.Stats()
	check.That(t, stats.Planned == 1 && stats.Notifications == 6 && stats.States["delivered"] == 3 && stats.States["sent"] == 3, "%+v", stats)
}

// invalidEvents are messages that no plan can be made of: the fields of an event, or the headers and the data of a CloudEvent.
var invalidEvents = []struct {
	name   string
	header []string
	body   string
}{
	{name: "half a character in an id", body: `"user_id":"a\ud83d"`},
	{name: "names that differ in half characters", body: `"payload":{"\ud83d":1,"\ud83e":2}`},
	{name: "a name twice", body: `"payload":{"a":1,"a":2}`},
	{name: "too deep", body: `"payload":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000)},
	{name: "a day too far", body: `"not_before":"9999-12-31T23:59:59Z"`},
	{name: "an offset of a day", body: `"not_before":"2026-01-02T15:04:05+24:00"`},
	{name: "a large payload", body: `"payload":"` + strings.Repeat("x", 900<<10) + `"`},
	{name: "half a character in an address", body: `"recipients":[{"user_id":"a","recipient_type":"CUSTOMER","addresses":{"email":"a\ud83d@b.example"}}]`},
	{name: "no zone", body: `"recipients":[{"user_id":"a","recipient_type":"CUSTOMER","time_zone":"Mars/Olympus"}]`},
	{name: "its own route", body: `"route":{"channels":["inapp"]},"recipients":[{"user_id":"a","recipient_type":"CUSTOMER"}]`},
	{name: "an id of another form", body: `"restaurant_id":1.5`},
	{name: "an offset of a day in an attribute", header: []string{"ce-notbefore", "2026-01-02T15:04:05+24:00"}, body: `{}`},
	{name: "a year too far in an attribute", header: []string{"ce-notbefore", "9999-12-31T23:59:59-01:00"}, body: `{}`},
	{name: "half a character in a user", header: []string{"ce-userid", "%ED%A0%BD"}, body: `{}`},
	{name: "a kind with a space", header: []string{"ce-recipienttype", "A%20B"}, body: `{}`},
	{name: "data too large as base64", body: strings.Repeat("x", 700<<10), header: []string{"ce-x", "y"}},
}

// TestEventsThatCannotBePlanned sends each message over HTTP and NATS, bare and as a CloudEvent: it is refused, or a dead letter at
// once. No job is left, and events with halves of characters in their payloads are planned.
func TestEventsThatCannotBePlanned(t *testing.T) {
	t.Parallel()
	p := newFixture(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 2)...)
	n := p.start(&provider{}, listening)
	w := newHTTPClient(t, n)
	const kind = "FOR_ALL"
	damaged := check.Must(keys.Event("damaged"))(t)
	check.OK(t, check.Err(p.js.Publish(t.Context(), "$KV."+contracts.BucketDeliveries+"."+damaged, []byte("{"))))
	p.publish(event("damaged", kind)) // its record cannot be read, nor written
	sent := 1
	for i, c := range invalidEvents {
		cloud := append([]string{"ce-specversion", "1.0", "ce-id", strconv.Itoa(i), "ce-source", "/s", "ce-type", kind}, c.header...)
		ways, body := [][]string{cloud}, c.body
		if c.header == nil {
			ways = [][]string{cloud, nil}
			body = fmt.Sprintf(`{"event_id":"%d","event_type":%q,"aggregate_type":"RESTAURANT","aggregate_id":"5",%s}`, i, kind, body)
		}
		for _, header := range ways {
			status, answer := w.call(http.MethodPost, "/v1/events", body, header...)
			check.That(t, status >= 400 && status < 500, "%s: %d %.300s", c.name, status, answer)
			msg := nats.NewMsg("events.RESTAURANT." + kind)
			msg.Data = []byte(body)
			for k := 0; k < len(header); k += 2 {
				msg.Header[header[k]] = header[k+1 : k+2]
			}
			check.OK(t, check.Err(p.js.PublishMsg(t.Context(), msg)))
			sent++
		}
	}
	for i, payload := range []string{`"a\ud83d"`, `{"\udc00":"\ud83dx"}`, `"\ude00\ud83d"`} { // JavaScript cuts characters in half
		id := fmt.Sprint("good", i)
		e := event(id, kind, func(e *recipient.Event) { e.Payload = json.RawMessage(payload) })
		w.wants(http.StatusAccepted, http.MethodPost, "/v1/events", string(check.Must(contracts.Encode(e))(t)))
		p.expanded(n, id)
		p.publish(event(id+"-too", kind, func(e *recipient.Event) { e.Payload = json.RawMessage(payload) }))
		p.expanded(n, id+"-too")
	}
	p.until("all are dead letters", func() bool { return len(p.deadLetters()) == sent })
	consumer := check.Must(p.js.Consumer(t.Context(), contracts.StreamEvents, eventsConsumer))(t)
	p.until("no job is left", func() bool {
		info, err := consumer.Info(t.Context())
		return err == nil && info.NumPending == 0 && info.NumAckPending == 0
	})
}

// audience is the number of recipients of the large event, and maxHeap bounds the memory in use while it is planned, and while it is
// expanded, in bytes. It is less than its recipients need.
const audience, maxHeap = 30_000, 7 << 20

// The directory has 30,000 members of one aggregate. The planner holds a page of them, and the expander some hundred notifications. The
// server is in another process, and no other test runs, so that the memory is theirs.
func TestALargeAudienceFromTheDirectory(t *testing.T) { //nolint:paralleltest // it measures memory
	if testing.Short() {
		t.Skip("stores 30,000 members")
	}
	js, records := openURL(t, crash.OneServer(t))
	for i := range audience {
		key := check.Must(keys.Member("RESTAURANT", "5", "CUSTOMER", userOf(i)))(t)
		check.OK(t, check.Err(js.PublishAsync("$KV."+contracts.BucketDirectory+"."+key, nil, jetstream.WithStallWait(patience))))
	}
	<-js.PublishAsyncComplete()
	parsed := check.Must(rules.Parse([]byte("{version: 1, events: {X: {CUSTOMER: {channels: [inapp]}}}}"), []string{"inapp"}))(t)
	planner := plan.New(records, plan.Config{Resolver: recipient.NewDirectory(js, records), Rules: func() *rules.Rules { return parsed }})
	heap := watchHeap()
	err := kvrecord.ErrUnavailable
	for errors.Is(err, kvrecord.ErrUnavailable) { // as the event's job would: the machine may be busy
		_, err = planner.Plan(t.Context(), recipient.Event{EventID: "large", EventType: "X", AggregateType: "RESTAURANT", AggregateID: "5"})
	}
	check.OK(t, err)
	forPlan := heap()
	reader := plan.NewReader(records)
	committed := check.Must(reader.Get(t.Context(), "large"))(t)
	heap = watchHeap()
	for range 2 { // the second finds all of them
		check.OK(t, check.Err(deliver.NewExpander(records, nil).Expand(t.Context(), committed)))
	}
	forExpansion := heap()
	check.That(t, max(forPlan, forExpansion) <= maxHeap, "the heap grew by %d bytes for the plan and %d for its expansion, at most %d",
		forPlan, forExpansion, maxHeap)

	check.That(t, committed.Notifications == audience && committed.Recipients == audience, "%+v", committed)
	seen := make(map[string]bool, audience)
	for n := range committed.Parts() {
		for _, entry := range check.Must(reader.Part(t.Context(), committed, n))(t) {
			seen[entry.UserID] = true
		}
	}
	check.Equal(t, len(seen), audience, "recipients in the plan")
	state := check.Must(js.Stream(t.Context(), contracts.StreamNotifications))(t).CachedInfo().State
	want := uint64(audience + committed.Pages + 1)
	check.That(t, state.Msgs == want && state.LastSeq == want, "%d messages of %d, want %d", state.Msgs, state.LastSeq, want)
	check.Equal(t, check.Must(reader.Event(t.Context(), "large"))(t).State, plan.StateExpanded, "state")
}

func userOf(i int) string { return "customer-number-" + strconv.Itoa(i) }

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
		p := newFixture(t, srv)
		source, waits := &failing{}, []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} // in seconds
		for range waits {
			source.errs = append(source.errs, &recipient.Error{})
		}
		n := p.start(&provider{}, func(c *Config) { c.Resolver = source })
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

// watchHeap watches how much of the heap is in use. The function that it returns ends that, and returns by how much it grew at most.
func watchHeap() func() uint64 {
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			var m runtime.MemStats
			runtime.GC() // only memory in use counts
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
		return peak.Load() - min(before.HeapAlloc, peak.Load())
	}
}
