package enrich

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// take reads n events of a subscription.
func take(t *testing.T, sub *Subscription, n int) []Update {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var updates []Update
	for len(updates) < n && !sub.Over() {
		update, err := sub.Next(ctx)
		check.Require(t, err == nil, "after %d events: %v", len(updates), err)
		updates = append(updates, update)
	}
	return updates
}

// body decodes the data of an event.
func body[T any](t *testing.T, update Update) T {
	t.Helper()
	b, ok := update.Body.(T)
	check.Require(t, ok, "event %s has a body of type %T", update.Type, update.Body)
	return b
}

func types(updates []Update) []string {
	var list []string
	for _, u := range updates {
		list = append(list, u.Type)
	}
	return list
}

func subscribe(t *testing.T, i *instance, id, last string) *Subscription {
	t.Helper()
	return check.Must(i.Subscribe(t.Context(), id, last))(t)
}

func wantTypes(t *testing.T, updates []Update, want ...string) {
	t.Helper()
	check.Equal(t, want, types(updates))
}

// TestSubscription: a snapshot, the changes, the end; and a subscription from each of their ids.
func TestSubscription(t *testing.T) {
	t.Parallel()
	held := newGate()
	srv := natstest.Server(t)
	p := &far{search: held.search}
	i, other := newInstance(t, srv, p), newInstance(t, srv, p)
	i.work(t)
	i.ask(t, "req-1", places(2))
	i.ask(t, "req-2", places(1))
	sub := subscribe(t, i, "req-1", "")
	first := take(t, sub, 1)
	wantTypes(t, first, TypeSnapshot)
	if s := body[Snapshot](t, first[0]); s.Pending != 2 || len(s.Places) != 2 || s.RequestID != "req-1" || len(s.Patches()) != 0 {
		t.Errorf("snapshot is %+v, want two places that are pending", s)
	}
	close(held.open)
	rest := take(t, sub, 10)
	wantTypes(t, rest, contracts.TypeResultPatch, contracts.TypeResultPatch, TypeComplete)
	check.Is(t, check.Err(sub.Next(t.Context())), io.EOF)
	sub.Close()

	// Resumed elsewhere after each event, it is told the rest.
	for n, last := range append(slices.Clone(first), rest...) {
		sub := subscribe(t, other, "req-1", last.ID)
		got := take(t, sub, 10)
		sub.Close()
		var want []string
		for _, u := range rest[min(n, len(rest)):] {
			want = append(want, u.Type)
		}
		switch n {
		case 2, 3: // everything has been told; the last event is not worth a connection
			want = nil
		}
		wantTypes(t, got, want...)
	}

	// Anything else is a reset and a snapshot, and the id of the reset begins anew.
	foreign := take(t, subscribe(t, i, "req-2", ""), 1)[0].ID
	for _, id := range []string{"?", "AAAA.AA", foreign, rest[0].ID + "AAAA", "x" + rest[0].ID} {
		sub := subscribe(t, i, "req-1", id)
		got := take(t, sub, 10)
		sub.Close()
		wantTypes(t, got, TypeReset, TypeSnapshot, TypeComplete)
		check.Same(t, "the id of a reset : a client that comes back with it would miss the snapshot", got[0].ID, "")
		s := body[Snapshot](t, got[1])
		check.That(t, s.Pending == 0 && len(s.Patches()) == 2, "snapshot is %+v, want two that are found", s)
	}
	check.Is(t, check.Err(i.Subscribe(t.Context(), "nobody", "")), ErrUnknownRequest)
	check.Is(t, check.Err(i.Subscribe(t.Context(), "", "")), ErrUnknownRequest)
}

// TestRequestGrows: the same id is used for more places. States that were sent before are not sent again, and earlier
// ids stay valid.
func TestRequestGrows(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	i := newInstance(t, srv, &far{})
	stop := i.work(t)
	i.ask(t, "req-1", places(2))
	sub := subscribe(t, i, "req-1", "")
	updates := take(t, sub, 10)
	sub.Close()
	last := updates[len(updates)-1]
	if last.Type != TypeComplete {
		t.Fatalf("events are %q", types(updates))
	}
	stop()
	i.ask(t, "req-1", places(4))
	i.ask(t, "req-1", places(4)) // nothing new
	sub = subscribe(t, i, "req-1", last.ID)
	defer sub.Close()
	check.Require(t, !sub.Over(), "a request that has grown is over")
	i.work(t)
	got := take(t, sub, 10)
	wantTypes(t, got, contracts.TypeResultPatch, contracts.TypeResultPatch, TypeComplete)
	told := []string{body[contracts.ResultPatch](t, got[0]).PlaceID, body[contracts.ResultPatch](t, got[1]).PlaceID}
	slices.Sort(told)
	check.Equal(t, []string{"id-Kitchen-002", "id-Kitchen-003"}, told)
	another := take(t, subscribe(t, i, "req-1", ""), 1)
	check.Same(t, "snapshot has places", len(body[Snapshot](t, another[0]).Places), 4)
}

// TestConcurrentRecords: requests with one id and different places, at the same moment, are all recorded.
func TestConcurrentRecords(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	var all sync.WaitGroup
	for n := range 6 {
		all.Go(func() { i.ask(t, "req-1", places(6)[n:n+1]) })
	}
	all.Wait()
	sub := subscribe(t, i, "req-1", "")
	defer sub.Close()
	check.Same(t, "places are recorded", len(body[Snapshot](t, take(t, sub, 1)[0]).Places), 6)
}

// TestUnresolvedThenFound: a place that was told to have no answer is told again when it has one, and is not looked up
// again for that subscriber meanwhile.
func TestUnresolvedThenFound(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		held := newGate()
		answer := failTimes(3, errFar)
		p := &far{search: func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
			if place.Name == "Slow Kitchen" {
				<-held.open
				return venueOf(place)
			}
			return answer(ctx, place)
		}}
		i := newInstance(t, srv, p)
		i.work(t)
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House"), place("Slow Kitchen")})
		sub := subscribe(t, i, "req-1", "")
		defer sub.Close()
		got := take(t, sub, 2)
		wantTypes(t, got, TypeSnapshot, contracts.TypeResultPatch)
		check.Same(t, "told", body[contracts.ResultPatch](t, got[1]).Patch.Providers["wolt"].Reason, contracts.ReasonProviderError)
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second) // the result expires meanwhile
		defer cancel()
		_, err := sub.Next(ctx)
		check.That(t, errors.Is(err, context.DeadlineExceeded), "told something: %v", err)
		check.Same(t, "searched for, times", p.count("Pizza House"), 3)
		i.ask(t, "req-2", []contracts.Restaurant{place("Pizza House")})
		got = take(t, sub, 1)
		wantStatus(t, body[contracts.ResultPatch](t, got[0]).Patch.Providers["wolt"], contracts.StatusFound)
		close(held.open)
		wantTypes(t, take(t, sub, 10), contracts.TypeResultPatch, TypeComplete)
	})
}

// TestMaxSubscriptions: one more than allowed is refused, and a place is free again after Close and after a failure.
func TestMaxSubscriptions(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{}, func(c *Config) { c.MaxSubscriptions = 2 })
	i.ask(t, "req-1", places(1))
	a, b := subscribe(t, i, "req-1", ""), subscribe(t, i, "req-1", "")
	defer b.Close()
	check.Is(t, check.Err(i.Subscribe(t.Context(), "req-1", "")), ErrTooManySubscriptions)
	a.Close()
	check.Is(t, check.Err(i.Subscribe(t.Context(), "nobody", "")), ErrUnknownRequest)
	subscribe(t, i, "req-1", "").Close()
}

// TestCloseEndsSubscriptions that wait.
func TestCloseEndsSubscriptions(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	i.ask(t, "req-1", places(1))
	sub := subscribe(t, i, "req-1", "")
	take(t, sub, 1)
	ended := make(chan error, 1)
	go func() { ended <- check.Err(sub.Next(t.Context())) }()
	i.Close()
	check.Is(t, <-ended, kvlock.ErrClosed)
	sub.Close()
}

// TestRequestTTL: a request is forgotten in time, also one that has grown.
func TestRequestTTL(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &far{}, func(c *Config) { c.RequestTTL = 10 * time.Minute })
		i.ask(t, "req-1", places(1))
		i.ask(t, "req-2", places(1))
		elapse(9 * time.Minute)
		i.ask(t, "req-2", places(2))
		elapse(2 * time.Minute)
		check.Is(t, check.Err(i.Subscribe(t.Context(), "req-1", "")), ErrUnknownRequest)
		subscribe(t, i, "req-2", "").Close()
		elapse(9 * time.Minute)
		check.Is(t, check.Err(i.Subscribe(t.Context(), "req-2", "")), ErrUnknownRequest)
	})
}

// TestUnreadableRecord: a record that cannot be read is nobody's request.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	for _, value := range []string{"?", ""} {
		check.OK(t, check.Err(i.js.Publish(t.Context(), i.requests.Key("req-1"), []byte(value))))
		check.Is(t, check.Err(i.Subscribe(t.Context(), "req-1", "")), ErrUnknownRequest, value)
	}
	i.ask(t, "req-1", places(1)) // is answered all the same
}

// TestWait: an answer that waits comes when everything is settled, or when its time is over, with the results
// so far.
func TestWait(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &far{search: func(_ context.Context, place match.Place) ([]provider.Venue, error) {
			switch place.Name {
			case "Slow Kitchen":
				elapse(20 * time.Second)
			case "Nowhere":
				return nil, nil
			}
			elapse(time.Second)
			return venueOf(place)
		}}
		i := newInstance(t, srv, p)
		i.work(t)
		began := time.Now()
		resp := i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House"), place("Slow Kitchen"), place("Nowhere")},
			func(r *contracts.EnrichRequest) { r.WaitMS = 5000 })
		took := time.Since(began)
		check.That(t, took >= 5*time.Second && took <= 5500*time.Millisecond, "answered after %s, want 5 s", took)
		wantStatus(t, state(t, resp, 0), contracts.StatusFound)
		wantStatus(t, state(t, resp, 1), contracts.StatusPending)
		wantStatus(t, state(t, resp, 2), contracts.StatusNotFound)
		check.Same(t, "pending", resp.Pending, 1)
		resp = i.ask(t, "req-2", []contracts.Restaurant{place("Slow Kitchen")}, func(r *contracts.EnrichRequest) { r.WaitMS = 60_000 })
		took = time.Since(began)
		check.That(t, took >= 21*time.Second && took <= 22*time.Second, "answered after %s, want when the place is found, after 21 s", took)
		wantStatus(t, state(t, resp, 0), contracts.StatusFound)
		began = time.Now()
		i.ask(t, "req-3", []contracts.Restaurant{place("Slow Kitchen")}, func(r *contracts.EnrichRequest) { r.WaitMS = 60_000 })
		took = time.Since(began)
		check.That(t, took <= time.Second, "a hit took %s", took)
	})
}

// TestWaitEndsWithItsCaller: a caller that has gone is not waited for.
func TestWaitEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	ctx, cancel := context.WithCancel(t.Context())
	i.ask(t, "req-1", places(1))
	time.AfterFunc(10*time.Millisecond, cancel)
	resp, err := i.Enrich(ctx, contracts.EnrichRequest{RequestID: "req-1", Results: places(1), WaitMS: 60_000})
	check.That(t, err == nil && resp.Pending == 1, "answer has %d pending, %v", resp.Pending, err)
}

// TestHitCostsOneRoundTrip counts the messages of a request for ten known places: one, which is answered at once.
func TestHitCostsOneRoundTrip(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	i := newInstance(t, srv, &far{})
	stop := i.work(t)
	i.ask(t, "req-1", places(10))
	i.outcomes(t, "req-1")
	stop()

	fresh := newInstance(t, srv, &far{}) // which watches nothing
	before := fresh.js.Conn().Stats().OutMsgs
	resp := fresh.ask(t, "req-2", places(10))
	check.Same(t, "messages were sent", fresh.js.Conn().Stats().OutMsgs-before, 1)
	check.Same(t, "pending: nothing was cached", resp.Pending, 0)
}

// drain listens to a request until it is over.
func (i *instance) drain(t *testing.T, id string) {
	t.Helper()
	sub := check.Must(i.Subscribe(t.Context(), id, ""))(t)
	defer sub.Close()
	for !sub.Over() {
		check.OK(t, check.Err(sub.Next(t.Context())))
	}
}
