package hold_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, js jetstream.JetStream) *hold.Cancelled {
	t.Helper()
	return check.Must(hold.OpenCancelled(t.Context(), js.Conn(), recordtest.Client(t, js)))(t)
}

func covers(t *testing.T, s *hold.Cancelled, event, user string, sure bool) bool {
	t.Helper()
	covered := check.Must(s.Covers(t.Context(), &contracts.Notification{EventID: event, RecipientType: "CUSTOMER", UserID: user}, sure))(t)
	return covered
}

// A cancellation is of one event, or of one user of it, whatever their ids are.
func TestWhatIsCancelled(t *testing.T) {
	t.Parallel()
	js, _ := recordtest.Open(t, natstest.Server(t))
	s, later := open(t, js), open(t, js)
	for _, c := range []struct{ event, user string }{{"a", ""}, {"b", "u"}, {"b", "u"}, {"/cancelled", ""}, {"c.d", "*"}} {
		kind := contracts.RecipientType("")
		if c.user != "" {
			kind = "CUSTOMER"
		}
		check.OK(t, check.Err(s.Cancel(t.Context(), c.event, kind, c.user)))
	}
	again, err := s.Cancel(t.Context(), "a", "", "")
	check.That(t, err == nil && again, "%t: %v", again, err)
	for n, s := range []*hold.Cancelled{s, later, open(t, js)} { // the second has not heard of any yet
		for _, want := range []struct {
			event, user string
			covered     bool
		}{
			{"a", "u", true},
			{"a", "v", true},
			{"b", "u", true},
			{"b", "v", false},
			{"/cancelled", "u", true},
			{"cancelled", "u", false},
			{"c.d", "*", true},
			{"c.d", "v", false},
			{"one", "u", false},
			{"all", "u", false},
		} {
			marked := check.Must(s.For(t.Context(), "CUSTOMER", want.user))(t)
			got := marked(hold.MarkOf(want.event))
			check.That(t, got == want.covered, "set %d: the mark of event %s to %s: cancelled is %t", n, want.event, want.user, got)
			got = covers(t, s, want.event, want.user, true)
			check.That(t, got == want.covered, "set %d: event %s to %s: cancelled is %t", n, want.event, want.user, got)
			check.That(t, want.user != "*" || !covers(t, s, want.event, "u", true), "set %d: event %s is cancelled for all", n, want.event)
		}
	}
}

// A process gets a cancellation at once; one that was missed is asked for within two seconds, and a process that could
// not ask does not answer from memory.
func TestACancellationIsHeardOf(t *testing.T) {
	for name, test := range map[string]struct {
		deaf bool // the server repeats nothing
		run  bool
		wait time.Duration
		want bool
	}{
		"repeated":            {false, true, 0, true},
		"asked for":           {true, true, 2 * time.Second, true},
		"too soon":            {true, true, 0, false},
		"nobody listens":      {true, false, hold.Trust, false},
		"nobody listens long": {true, false, hold.Trust + 1, true},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			js, _ := recordtest.Open(t, srv)
			if test.deaf {
				stream := check.Must(js.Stream(t.Context(), "KV_"+contracts.BucketDeliveries))(t)
				config := stream.CachedInfo().Config
				config.RePublish = nil
				check.OK(t, check.Err(js.UpdateStream(t.Context(), config)))
			}
			s, other := open(t, js), open(t, js)
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			if test.run {
				go func() { done <- s.Run(ctx) }()
			} else {
				done <- nil
			}
			natstest.Pass(10 * time.Millisecond)
			if !test.run {
				check.OK(t, s.Sync(t.Context()))
			}
			check.OK(t, check.Err(other.Cancel(t.Context(), "a", "", "")))
			natstest.Pass(test.wait)
			if test.wait == 0 {
				natstest.Pass(time.Millisecond)
			}
			check.Equal(t, covers(t, s, "a", "u", false), test.want, "cancelled")
			stop()
			check.ErrorIs(t, <-done, nil)
		})
	}
}

// A cancellation that the bucket does not list any more is forgotten an hour later.
func TestACancellationThatIsGoneIsForgotten(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		js, _ := recordtest.Open(t, srv)
		s := open(t, js)
		check.OK(t, check.Err(s.Cancel(t.Context(), "a", "", "")))
		check.OK(t, check.Must(js.Stream(t.Context(), "KV_"+contracts.BucketDeliveries))(t).Purge(t.Context()))
		for _, want := range []bool{true, false} {
			check.OK(t, s.Sync(t.Context()))
			check.Equal(t, covers(t, s, "a", "u", false), want, "cancelled")
			natstest.Pass(time.Hour + time.Second)
		}
	})
}

// A caller that waits for the unanswered request of another caller waits no longer than its own context lasts.
func TestAQuestionHoldsUpNobodyForLonger(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		proxy := natstest.NewProxy(t, srv)
		js, _ := recordtest.Open(t, srv, proxy.Through())
		s := open(t, js)
		proxy.Partition()
		const first, second = 3 * time.Second, time.Second
		var asking sync.WaitGroup
		for _, patience := range []time.Duration{first, second, second} {
			asking.Go(func() {
				begun := time.Now()
				ctx, stop := context.WithTimeout(t.Context(), patience)
				defer stop()
				if err := s.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != patience {
					t.Errorf("%v after %s, want the end of a context after %s", err, time.Since(begun), patience)
				}
			})
			natstest.Pass(time.Millisecond) // until it asks
		}
		asking.Wait()
	})
}

// fixture is a server with the stores of digests of two processes.
type fixture struct {
	*testing.T

	stores [2]*hold.Digests
	js     jetstream.JetStream
	user   string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	js, _ := recordtest.Open(t, natstest.Server(t))
	s := &fixture{T: t, js: js, user: "u"}
	for i := range s.stores {
		s.stores[i] = hold.NewDigests(recordtest.Client(t, js))
	}
	return s
}

// about is the notification of an event that is delivered in digests.
func about(id string) *contracts.Notification {
	return &contracts.Notification{
		Category: "c", Channel: "push", CreatedAt: time.Unix(1, 0).UTC(), Digest: &contracts.Digest{Every: 60}, EventID: id, EventType: "X",
		Payload: json.RawMessage(`{"of":"` + id + `"}`), RecipientType: "CUSTOMER", UserID: "u",
	}
}

// into is the digest of the user.
func (s *fixture) into() *contracts.Notification {
	notification := about("any")
	notification.UserID = s.user
	return hold.DigestNotification(notification, time.Unix(3600, 0))
}

// join has a process put an event into the digest, and reports whether it is there.
func (s *fixture) join(process int, event *contracts.Notification) bool {
	s.Helper()
	joined, err := s.stores[process].Join(s.Context(), s.into(), event)
	check.ErrorIs(s, err, nil)
	return joined
}

// seal has a process seal the digest, without events that are cancelled.
func (s *fixture) seal(process int, cancelled ...string) *hold.Digest {
	s.Helper()
	d, err := s.stores[process].Seal(s.Context(), s.into(), func(m hold.Mark) bool {
		return slices.ContainsFunc(cancelled, func(id string) bool { return hold.MarkOf(id) == m })
	})
	check.OK(s, err)
	return d
}

// record is the subject of the digest's record.
func (s *fixture) record() string {
	s.Helper()
	key := check.Must(keys.Digest(s.into().EventID, "push", "CUSTOMER", s.user))(s)
	return "$KV." + contracts.BucketDeliveries + "." + key
}

// stored returns the last message of a stream under a subject, nil when there is none.
func (s *fixture) stored(name, subject string) []byte {
	s.Helper()
	stream := check.Must(s.js.Stream(s.Context(), name))(s)
	msg, err := stream.GetLastMsgForSubject(s.Context(), subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	check.OK(s, err)
	return msg.Data
}

func ids(d *hold.Digest) []string {
	var all []string
	for _, item := range d.Items {
		all = append(all, item.EventID)
	}
	slices.Sort(all)
	return all
}

// No event goes into a sealed digest, and every later Seal returns the same digest, also when events are cancelled later. A
// notification whose event was put in before, and that asks again, learns that the event is there.
func TestASealedDigestStaysAsItIs(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.join(0, about("a"))
	s.join(1, about("b"))
	s.join(0, about("gone"))
	first := s.seal(0, "gone")
	check.That(t, slices.Equal(ids(first), []string{"a", "b"}) && first.Count() == 2 && !first.Sealed.IsZero(), "%+v", first)
	check.That(t, !s.join(1, about("late")) && s.join(1, about("a")), "it took an event after it was sealed, or forgot one")
	again := s.seal(1, "a")
	want := check.Must(first.Payload())(t)
	got, err := again.Payload()
	check.That(t, err == nil && string(got) == string(want) && again.Sealed.Equal(first.Sealed), "%s, and then %s: %v", want, got, err)
}

// Seal and Join at the same moment: an event that Join reports as there is in the digest that Seal returned.
func TestAnEventIsNotLostBetweenJoinAndSeal(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	for round := range 20 {
		s.user = fmt.Sprint("u", round)
		var all sync.WaitGroup
		var joined [8]bool
		for n := range joined {
			all.Go(func() { joined[n] = s.join(n%2, about(fmt.Sprint("e", n))) })
		}
		d := s.seal(round % 2)
		all.Wait()
		var want []string
		for n := range joined {
			if joined[n] {
				want = append(want, fmt.Sprint("e", n))
			}
		}
		if !slices.Equal(ids(d), want) {
			t.Errorf("%v were reported to be in it, it has %v", want, ids(d))
		}
	}
}

// The notification of a digest is stored before its record, so that none is forgotten, and an event that is called like a digest gets no
// other events.
func TestTheNotificationComesBeforeTheRecord(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	foreign := about(s.into().EventID)
	data := check.Must(contracts.Encode(*foreign))(t)
	subject := check.Must(contracts.NotifySendSubject("push", "CUSTOMER", "u", foreign.EventID))(t)
	check.OK(t, check.Err(s.js.Publish(t.Context(), subject, data)))
	joined, err := s.stores[0].Join(t.Context(), s.into(), about("a"))
	check.That(t, errors.Is(err, hold.ErrForeign) && !joined, "%t: %v", joined, err)
	data = s.stored("KV_"+contracts.BucketDeliveries, s.record())
	check.That(t, data == nil, "there is a record without a notification: %s", data)
}

// A record delivers the first 100 events, counts 5,000 more and takes no others, and with the largest ids and payloads that there are
// it fits into a message.
func TestADigestIsBounded(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	largest := func(n int, payload string) *contracts.Notification {
		event := about(fmt.Sprintf("%0*d", contracts.MaxID, n))
		event.EventType, event.Template = strings.Repeat("t", 64), strings.Repeat("<", contracts.MaxText)
		event.Payload = json.RawMessage(payload)
		return event
	}
	kept, over := `"`+strings.Repeat("é", 1023)+`"`, `"`+strings.Repeat("é", 1024)+`"`
	s.join(0, largest(0, kept))
	s.join(0, largest(1, over))
	var d hold.Digest
	check.OK(t, json.Unmarshal(s.stored("KV_"+contracts.BucketDeliveries, s.record()), &d))
	check.Require(t, len(d.Items) == 2 && string(d.Items[0].Payload) == kept && string(d.Items[1].Payload) == "null", "%+v", d.Items)
	// As if others had come: the record is full but for one.
	d.Items = slices.Repeat(d.Items[:1], hold.MaxItems-1)
	d.Members += strings.Repeat("AAAAAAAAAAAAAAAA", hold.MaxItems+hold.MaxMore-1-d.Count())
	data := check.Must(json.Marshal(d))(t)
	check.OK(t, check.Err(s.js.Publish(t.Context(), s.record(), data)))
	check.That(t, s.join(0, largest(2, kept)) && !s.join(0, about("one too many")) && s.join(1, largest(2, kept)),
		"a full digest took another event, or forgot one")
	size := len(s.stored("KV_"+contracts.BucketDeliveries, s.record()))
	check.That(t, size <= 1<<20-4<<10, "the record has %d bytes", size)
	sealed := s.seal(0)
	check.That(t, len(sealed.Items) == hold.MaxItems && sealed.Count() == hold.MaxItems+hold.MaxMore,
		"%d events, %d of them delivered", sealed.Count(), len(sealed.Items))
}

// Events of one category, or else of one template, are delivered together, by the clock of the user's zone.
func TestWhichDigestANotificationGoesInto(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 10, 20, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		of   contracts.Notification
		zone string
		id   string
		bad  bool
	}{
		"a category":   {contracts.Notification{Category: "c", Template: "t", Digest: &contracts.Digest{Every: 60}}, "", "digest:c:2026-03-04T11:00:00Z", false},
		"a template":   {contracts.Notification{Template: "t", Digest: &contracts.Digest{Every: 60}}, "", "digest:template/t:2026-03-04T11:00:00Z", false},
		"a type":       {contracts.Notification{EventType: "X", Digest: &contracts.Digest{Every: 60}}, "", "digest:template/X:2026-03-04T11:00:00Z", false},
		"a half hour":  {contracts.Notification{Category: "c", Digest: &contracts.Digest{Every: 60}}, "Asia/Kolkata", "digest:c:2026-03-04T10:30:00Z", false},
		"a time":       {contracts.Notification{Category: "c", Digest: &contracts.Digest{At: []string{"09:00", "12:00"}}}, "Europe/Rome", "digest:c:2026-03-04T11:00:00Z", false},
		"unknown zone": {contracts.Notification{Category: "c", Digest: &contracts.Digest{Every: 60}}, "Mars/Olympus", "digest:c:2026-03-04T11:00:00Z", true},
	} {
		end, err := hold.DigestEnd(now, test.of.Digest, test.zone)
		if got := hold.DigestNotification(&test.of, end); got.EventID != test.id || !got.Collected || !got.NotBefore.Equal(end) || (err != nil) != test.bad {
			t.Errorf("%s: %+v: %v", name, got, err)
		}
	}
	long := contracts.Notification{Template: strings.Repeat("t", contracts.MaxText), Digest: &contracts.Digest{Every: 60}}
	id := hold.DigestNotification(&long, now).EventID
	check.That(t, len(id) <= 128, "an id of %d bytes", len(id))
}

// throttles are the stores of two processes on one server.
type throttles struct {
	*testing.T

	stores [2]*hold.Throttles
	js     jetstream.JetStream
}

// withThrottles runs a test under fake time.
func withThrottles(t *testing.T, f func(g *throttles)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		js, _ := recordtest.Open(t, srv)
		g := &throttles{T: t, js: js}
		for i := range g.stores {
			g.stores[i] = hold.NewThrottles(recordtest.Client(t, js))
		}
		f(g)
	})
}

var (
	ada = hold.ThrottleKey{Channel: "push", Group: "c", RecipientType: "CUSTOMER", UserID: "ada"}

	three = contracts.Throttle{Limit: 3, Per: 60}
)

// ask has a process ask for a notification that was planned at a time, and returns for how long it is to wait, 0 when it is granted.
func (g *throttles) ask(process int, key hold.ThrottleKey, id string, at time.Time, t contracts.Throttle, promised bool) time.Duration {
	g.Helper()
	until := check.Must(g.stores[process].Ask(g.Context(), key, id, at, t, promised))(g)
	if until.IsZero() {
		return 0
	}
	return time.Until(until)
}

// turns are the grants and promises of a record.
type turns struct {
	Granted  []hold.Turn `json:"granted"`
	Promised []hold.Turn `json:"promised"`
}

// kept is the record of the key, empty when there is none.
func (g *throttles) kept() (record turns) {
	g.Helper()
	key := check.Must(keys.Throttle(ada.Group, ada.Channel, ada.RecipientType, ada.UserID))(g)
	stream := check.Must(g.js.Stream(g.Context(), "KV_"+contracts.BucketDeliveries))(g)
	msg, err := stream.GetLastMsgForSubject(g.Context(), "$KV."+contracts.BucketDeliveries+"."+key)
	if err != nil {
		return record
	}
	check.OK(g, json.Unmarshal(msg.Data, &record))
	return record
}

// Users, channels, groups and kinds are counted apart.
func TestWhatIsCountedTogether(t *testing.T) {
	withThrottles(t, func(g *throttles) {
		one := contracts.Throttle{Limit: 1, Per: 60}
		of := []hold.ThrottleKey{ada, ada, ada, ada, ada}
		of[1].UserID, of[2].Channel, of[3].Group, of[4].RecipientType = "bob", "fish", "d/*.>", "ADMIN"
		for _, key := range of {
			wait := g.ask(0, key, "n", time.Now(), one, false)
			check.That(t, wait <= 0, "%+v: %s", key, wait)
			check.Equal(t, g.ask(1, key, "another", time.Now(), one, false), time.Minute, fmt.Sprintf("%+v: another", key))
		}
	})
}

// A record has at most a limit's worth of turns, and 256 notifications that wait, however many do, and is gone some time after the last
// of them.
func TestARecordIsBounded(t *testing.T) {
	withThrottles(t, func(g *throttles) {
		var last time.Duration
		for n := range 400 {
			last = g.ask(n%2, ada, fmt.Sprint(n), time.Now(), three, false)
		}
		if kept := g.kept(); len(kept.Granted) != 3 || len(kept.Promised) != 256+3 || last != 133*time.Minute {
			t.Errorf("%+v; the last one waits for %s", kept, last)
		}
		natstest.Pass(last)
		kept := g.kept()
		check.That(t, len(kept.Promised) != 0, "it was forgotten before the last turn came")
		natstest.Pass(3 * time.Minute)
		kept = g.kept()
		check.That(t, len(kept.Granted)+len(kept.Promised) == 0, "it is still there: %+v", kept)
	})
}

// Notifications that ask in any order, and come back in any order, some seconds late, are let through in the order in which they were
// planned. One that never comes back holds up the others for a minute.
func TestNotificationsThatWaitKeepTheirOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	withThrottles(t, func(g *throttles) {
		random := rand.New(rand.NewPCG(seed, 0))
		const notifications, lost = 30, 17
		begun := time.Now()
		planned := func(n int) time.Time { return begun.Add(time.Duration(n) * time.Millisecond) }
		for n := range three.Limit {
			g.ask(0, ada, fmt.Sprint("first-", n), time.Now(), three, false)
		}
		turns := map[int]time.Time{}
		ask := func(n int) {
			wait := g.ask(n%2, ada, fmt.Sprint(n), planned(n), three, !turns[n].IsZero())
			turns[n] = time.Now().Add(wait)
			if wait == 0 {
				delete(turns, n)
			}
		}
		for _, n := range random.Perm(notifications) {
			ask(n)
		}
		delete(turns, lost)
		var order []int
		for len(turns) > 0 {
			natstest.Pass(time.Duration(random.IntN(10)) * time.Second)
			for _, n := range random.Perm(notifications) {
				if at, waits := turns[n]; waits && !at.After(time.Now()) {
					ask(n)
					if turns[n].IsZero() {
						order = append(order, n)
					}
				}
			}
		}
		check.That(t, len(order) == notifications-1 && slices.IsSorted(order), "the order is %v", order)
	})
}
