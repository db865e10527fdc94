package flight_test

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
)

// logEvents is an observer that writes a line for each event of interest. Other observers count, or add to a span: a
// waiter's event has the same claim as the owner's.
func logEvents(logger *slog.Logger) func(context.Context, flight.Event) {
	lines := map[flight.EventKind]string{
		flight.EventAcquired:      "Lock acquired",
		flight.EventHeld:          "Lock failed (already held)",
		flight.EventReleased:      "Lock released",
		flight.EventWaiting:       "Waiting for result",
		flight.EventWaitTimeout:   "Wait timeout",
		flight.EventCoalesced:     "Request coalesced",
		flight.EventCorrupt:       "Invalid record cleaned up",
		flight.EventTakeOver:      "Taken over from an owner that died",
		flight.EventRenewalFailed: "Renewal failed",
		flight.EventLost:          "Lock lost",
		flight.EventPanic:         "Function panicked",
	}
	return func(ctx context.Context, e flight.Event) {
		line, wanted := lines[e.Kind]
		if !wanted {
			return
		}
		attrs := []slog.Attr{slog.String("key", e.Key)}
		if e.Owner != "" {
			attrs = append(attrs, slog.String("owner", e.Owner))
		}
		if e.Kind == flight.EventWaitTimeout {
			attrs = append(attrs, slog.Duration("waited", e.Elapsed))
		}
		logger.LogAttrs(ctx, slog.LevelInfo, "[RequestCoalescer] "+line, attrs...)
	}
}

// pair runs a server with a bucket and two processes on it, of which observe watches the second.
func pair(observe func(context.Context, flight.Event)) (f, g *flight.Flight, js jetstream.JetStream, end func()) {
	ctx := context.Background()
	js, stop := testbed.Serve("analysis")
	f, errF := flight.New(ctx, js, flight.Config{Bucket: "analysis", Instance: "node-1"})
	g, errG := flight.New(ctx, js, flight.Config{
		Bucket: "analysis", Instance: "node-2", Logger: slog.New(slog.DiscardHandler), Observe: observe,
	})
	must(errors.Join(errF, errG))
	return f, g, js, func() {
		f.Close()
		g.Close()
		stop()
	}
}

// Events become log lines.
func Example_event() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		if a.Key == "waited" { // differs from run to run
			return slog.Bool("waited", a.Value.Duration() > 0)
		}
		return a
	}}))
	waits := make(chan struct{}, 2)
	lines := logEvents(logger)
	f, g, js, end := pair(func(ctx context.Context, e flight.Event) {
		lines(ctx, e)
		if e.Kind == flight.EventWaiting {
			waits <- struct{}{}
		}
	})
	defer end()
	ctx := context.Background()
	analyse := func(context.Context) ([]byte, error) { return []byte("harmless"), nil }
	opts := flight.DoOptions{TTL: time.Hour}

	_, _ = g.Do(ctx, "user-1", analyse, opts) // only the lines matter here

	claim, err := f.Begin(ctx, "user-2", flight.BeginOptions{})
	must(err)
	_, _ = g.Begin(ctx, "user-2", flight.BeginOptions{}) // only the lines matter here
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = g.Do(ctx, "user-2", analyse, opts) // only the lines matter here
	}()
	<-waits
	if _, err := claim.Complete(ctx, []byte("harmless"), time.Hour); err != nil {
		log.Fatal(err)
	}
	<-done

	if _, err := f.Begin(ctx, "user-3", flight.BeginOptions{}); err != nil {
		log.Fatal(err)
	}
	hasty, cancel := context.WithCancel(ctx) // or with a timeout
	go func() {
		<-waits
		cancel()
	}()
	_, _ = g.Do(hasty, "user-3", analyse, opts) // only the lines matter here

	if _, err := js.Publish(ctx, "$KV.analysis.user-4", []byte("{not json")); err != nil {
		log.Fatal(err)
	}
	_, _ = g.Get(ctx, "user-4") // only the lines matter here
	// Output:
	// msg="[RequestCoalescer] Lock acquired" key=user-1 owner=node-2
	// msg="[RequestCoalescer] Lock released" key=user-1 owner=node-2
	// msg="[RequestCoalescer] Lock failed (already held)" key=user-2 owner=node-1
	// msg="[RequestCoalescer] Waiting for result" key=user-2 owner=node-1
	// msg="[RequestCoalescer] Request coalesced" key=user-2 owner=node-1
	// msg="[RequestCoalescer] Waiting for result" key=user-3 owner=node-1
	// msg="[RequestCoalescer] Wait timeout" key=user-3 waited=true
	// msg="[RequestCoalescer] Invalid record cleaned up" key=user-4
}
