package notifier

import (
	"context"
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
	"github.com/expediter-io/expediter/services/notifier/internal/fanout"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// audience is how many recipients the large event has.
const audience = 100_000

// maxHeap is what planning and expanding may have in memory for it, in bytes: four times what they have.
const maxHeap = 32 << 20

// An event for 100,000 recipients, in a process of its own, so that the server's memory does not count.
func TestAHundredThousandRecipients(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("stores 100,000 rows")
	}
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	p := newPlace(t, srv)
	inItsOwnProcess(t, expander, srv.URL(), maxHeap)
	stream := check.Must(p.js.Stream(t.Context(), contracts.StreamNotifications))(t)
	info := check.Must(stream.Info(t.Context()))(t)
	reader := plan.NewReader(recordtest.Client(t, p.js))
	committed, err := reader.Get(t.Context(), "large")
	check.Require(t, err == nil && committed.Rows == audience && committed.Recipients == audience, "%+v: %v", committed, err)
	if want := uint64(audience + committed.Pages + 1); info.State.Msgs != want || info.State.LastSeq != want {
		t.Errorf("%d messages of %d, want %d", info.State.Msgs, info.State.LastSeq, want)
	}
	kept, err := reader.Event(t.Context(), "large")
	check.That(t, err == nil && kept.State == plan.StateExpanded, "%+v: %v", kept, err)
}

// inItsOwnProcess runs a process, which says how large its heap became: no larger than most bytes.
func inItsOwnProcess(t *testing.T, role crash.Role[string], argument string, most int) {
	t.Helper()
	process := role.Start(t, argument)
	found := process.Await(`.*heap (\d+).*`)
	process.Stop()
	t.Logf("R1, default sync: %s", found[0])
	heap, err := strconv.Atoi(found[1])
	check.That(t, err == nil && heap <= most, "the heap had %d bytes, at most %d: %v", heap, most, err)
}

// expander is told the URL of the server.
var expander = crash.Role[string]{Name: "large", Run: large}

// multitude is a source of 100,000 recipients.
type multitude struct{}

func (multitude) Resolve(_ context.Context, q recipient.Query) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) {
		for i := range audience {
			if !yield(contracts.Recipient{RecipientType: q.Type, UserID: "customer-number-" + strconv.Itoa(i)}, nil) {
				return
			}
		}
	}
}

// large is the life of the process that plans and expands the large event, and says what that took.
func large(ctx context.Context, url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	parsed, err := rules.Parse([]byte("{version: 1, events: {X: {CUSTOMER: {channels: [inapp], scope: all}}}}"), []string{"inapp"})
	if err != nil {
		return err
	}
	records, err := kvrecord.New(kvrecord.Config{JetStream: js})
	if err != nil {
		return err
	}
	defer records.Close()
	planner := plan.New(records, plan.Config{Resolver: multitude{}, Rules: func() *rules.Rules { return parsed }})
	expander, err := fanout.New(nc, records, nil)
	if err != nil {
		return err
	}
	peak := watchHeap()
	begin := time.Now()
	if _, err := planner.Plan(ctx, contracts.Event{EventID: "large", EventType: "X", AggregateType: "Y"}); err != nil {
		return err
	}
	planned := time.Since(begin)
	reader := plan.NewReader(records)
	p, err := reader.Get(ctx, "large")
	if err != nil {
		return err
	}
	stored, err := expander.Expand(ctx, p)
	if err != nil {
		return err
	}
	expanded := time.Since(begin) - planned
	begin = time.Now()
	again, err := expander.Expand(ctx, p)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stdout, "%d pages planned in %s; %d rows stored in %s, %.0f/s; found again, %d, in %s; heap %d bytes at most\n",
		p.Pages, planned.Round(time.Millisecond), stored.New, expanded.Round(time.Millisecond), float64(stored.New)/expanded.Seconds(),
		again.Old, time.Since(begin).Round(time.Millisecond), peak())
	return err
}

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
