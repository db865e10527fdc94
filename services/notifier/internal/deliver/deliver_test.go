package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

func TestANotificationIsSentOnce(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := n.startSending(profile{Addresses: map[string]string{"push": "tel 7"}, Locale: "he"})
		n.store()
		elapse(time.Minute)
		n.want(deliveries.Sent, "", "sent")
		check.That(t, len(b.sent) == 1 && b.sent[0].Address == "tel 7" && b.sent[0].Locale == "he" && b.sent[0].Attempt == 1 &&
			string(b.sent[0].Payload) == `{"from":"plan"}` && b.sent[0].ID == deliveries.MessageID(theKey),
			"%+v", b.sent)
		d := n.record()
		check.That(t, d.ProviderID == "r" && d.Attempts[0].Worker == "a", "%+v", d)
	})
}

// Each kind of failure of a channel, and the outcome of the notification.
func TestFailures(t *testing.T) {
	for name, test := range map[string]struct {
		kind        channel.Kind
		once        bool
		state       deliveries.State
		reason      string
		calls       int
		deadLetters uint64
	}{
		"bounced":            {channel.KindBounced, false, deliveries.Bounced, "bounced", 1, 0},
		"gone":               {channel.KindGone, false, deliveries.Bounced, "gone", 1, 0},
		"no address":         {channel.KindNoAddress, false, deliveries.Suppressed, "no_address", 1, 0},
		"rejected":           {channel.KindRejected, false, deliveries.Failed, "rejected", 1, 1},
		"unavailable":        {channel.KindUnavailable, false, deliveries.Failed, "exhausted", 6, 1},
		"misconfigured":      {channel.KindMisconfigured, false, deliveries.Failed, "exhausted", 6, 1},
		"limited":            {channel.KindRateLimited, false, deliveries.Failed, "exhausted", 6, 1},
		"timeout":            {channel.KindTimeout, false, deliveries.Failed, "exhausted", 6, 1},
		"unknown":            {channel.KindUnknown, false, deliveries.Failed, "exhausted", 6, 1},
		"once, unavailable":  {channel.KindUnavailable, true, deliveries.Failed, "exhausted", 6, 1},
		"once, timeout":      {channel.KindTimeout, true, deliveries.Failed, "unknown_outcome", 1, 1},
		"once, unknown":      {channel.KindUnknown, true, deliveries.Failed, "unknown_outcome", 1, 1},
		"once, rate limited": {channel.KindRateLimited, true, deliveries.Failed, "exhausted", 6, 1},
	} {
		runWithFixture(t, name, func(n *fixture) {
			b := &provider{answer: fails(test.kind)}
			n.startWorker(n.sender("a", b, profile{}, func(c *deliver.Config) {
				c.AtMostOnce, c.Retries = test.once, slices.Repeat([]time.Duration{time.Second}, 5)
			}))
			n.store()
			elapse(time.Minute)
			outcomes := make([]string, test.calls)
			for i := range outcomes {
				outcomes[i] = string(test.kind)
			}
			n.want(test.state, test.reason, outcomes...)
			check.That(t, len(b.sent) == test.calls && n.deadLetters() == test.deadLetters, "%d calls, %d dead letters", len(b.sent), n.deadLetters())
			for i, m := range b.sent {
				check.That(t, m.ID == deliveries.MessageID(theKey) && m.Attempt == i+1 && m.FirstAttempt.Equal(b.at[0]), "call %d: %+v", i, m)
			}
		})
	}
}

// The waits are those of the schedule, or those that the provider asked for when these are longer.
func TestRetriesKeepToTheSchedule(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := &provider{answer: failsFirst(
			&channel.Error{Kind: channel.KindUnavailable}, &channel.Error{Kind: channel.KindRateLimited, RetryAfter: time.Hour},
			errors.New("not an error of a channel"),
		)}
		n.startWorker(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Retries = []time.Duration{time.Minute, time.Minute, 10 * time.Minute} }))
		n.store()
		elapse(90 * time.Minute)
		n.want(deliveries.Delivered, "", "unavailable", "rate_limited", "unknown", "sent")
		check.Require(t, len(b.at) == 4, "%d calls", len(b.at))
		for i, want := range []time.Duration{time.Minute, time.Hour, 10 * time.Minute} {
			wait := b.at[i+1].Sub(b.at[i])
			low, high := want*8/10, want*12/10+time.Second
			if want == time.Hour {
				low, high = want, want+time.Second
			}
			check.That(t, wait >= low && wait <= high, "wait %d was %s, want %s", i+1, wait, want)
		}
	})
}

// A process that died between writing the attempt down and writing its outcome down: nobody knows whether it called the
// channel. The notification is sent again, under the same id, or given up.
func TestADeadCaller(t *testing.T) {
	for name, test := range map[string]struct {
		at    string
		once  bool
		calls int
		state deliveries.State
	}{
		"before the call":       {deliver.PointClaimed, false, 1, deliveries.Sent},
		"after the call":        {deliver.PointSent, false, 2, deliveries.Sent},
		"when all was done":     {deliver.PointRecorded, false, 1, deliveries.Sent},
		"once, before the call": {deliver.PointClaimed, true, 0, deliveries.Failed},
		"once, after the call":  {deliver.PointSent, true, 1, deliveries.Failed},
		"once, when all was":    {deliver.PointRecorded, true, 1, deliveries.Sent},
	} {
		runWithFixture(t, name, func(n *fixture) {
			b := &provider{}
			mode := func(c *deliver.Config) { c.AtMostOnce = test.once }
			n.dieAt(b, test.at, 1, mode)
			n.store()
			n.startWorker(n.sender("b", b, profile{}, mode))
			elapse(time.Minute)
			d := n.record()
			check.That(t, len(b.sent) == test.calls && d.State == test.state, "%d calls, %+v", len(b.sent), d)
			check.That(t, test.at == deliver.PointRecorded || d.Attempts[0].Outcome == deliveries.OutcomeUnknown, "%+v", d.Attempts)
			for _, m := range b.sent {
				check.Equal(t, m.ID, b.sent[0].ID, "the id of another attempt")
			}
		})
	}
}

// While one worker calls the channel, another that gets the notification waits.
func TestANotificationIsNotSentTwiceAtATime(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := slow(10*time.Second, accepts)
		done := n.begin("a", b, 1)
		elapse(time.Second)
		for _, deliveries := range []int{1, 2} {
			err := n.sender("b", b, profile{}).Work(n.Context(), n.job(deliveries))
			check.That(t, snoozed(err) > 0 && snoozed(err) <= 15*time.Second, "%v", err)
		}
		check.ErrorIs(t, <-done, nil)
		check.Equal(t, len(b.sent), 1, "calls")
	})
}

func TestAWorkerThatStopsGivesTheNotificationBack(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := &provider{answer: func(ctx context.Context, call int) (channel.Receipt, error) {
			if call == 1 {
				<-ctx.Done()
				return channel.Receipt{}, ctx.Err()
			}
			return channel.Receipt{}, nil
		}}
		stop := n.startWorker(n.sender("a", b, profile{}))
		n.store()
		elapse(time.Second)
		stop()
		n.want(deliveries.Pending, "interrupted", "interrupted")
		n.startWorker(n.sender("b", b, profile{}))
		elapse(time.Minute)
		n.want(deliveries.Sent, "", "interrupted", "sent")
	})
}

// until mutes everything for as long after midnight.
func until(d time.Duration) map[string]time.Time { return map[string]time.Time{"*": start.Add(d)} }

// The preferences of the user decide whether a notification is sent, and when.
func TestWhatTheUserWants(t *testing.T) {
	night := &contracts.QuietHours{From: "22:00", To: "00:20"} // it is midnight
	for name, test := range map[string]struct {
		profile  profile
		priority string
		silent   bool
		state    deliveries.State // after a minute
		reason   string
		calls    int // after half an hour
	}{
		"all":                 {profile{}, "", false, deliveries.Sent, "", 1},
		"not this category":   {profile{OptOut: map[string][]string{"c": {"push"}}}, "", false, deliveries.Suppressed, "opt_out", 0},
		"not on any channel":  {profile{OptOut: map[string][]string{"c": {"*"}}}, "", false, deliveries.Suppressed, "opt_out", 0},
		"not on this channel": {profile{OptOut: map[string][]string{"*": {"push"}}}, "", false, deliveries.Suppressed, "opt_out", 0},
		"others not":          {profile{OptOut: map[string][]string{"*": {"x"}, "d": {"*"}}}, "", false, deliveries.Sent, "", 1},
		"critical":            {profile{OptOut: map[string][]string{"*": {"*"}}, QuietHours: night}, "critical", false, deliveries.Sent, "", 1},
		"muted":               {profile{Mute: until(10 * time.Minute)}, "", false, deliveries.Suppressed, "muted", 0},
		"muted before":        {profile{Mute: until(-time.Minute)}, "", false, deliveries.Sent, "", 1},
		"muted, critical":     {profile{Mute: until(time.Hour)}, "critical", false, deliveries.Sent, "", 1},
		"muted, the inbox":    {profile{Mute: until(time.Hour)}, "", true, deliveries.Delivered, "", 1},
		"category muted":      {profile{Mute: map[string]time.Time{"c": start.Add(time.Hour)}}, "", false, deliveries.Suppressed, "muted", 0},
		"others muted":        {profile{Mute: map[string]time.Time{"d": start.Add(time.Hour)}}, "", false, deliveries.Sent, "", 1},
		"at night":            {profile{QuietHours: night}, "", false, deliveries.Deferred, "quiet_hours", 1},
		"silent":              {profile{QuietHours: night}, "", true, deliveries.Delivered, "", 1},
		"morning there":       {profile{QuietHours: night, TimeZone: "Asia/Tokyo"}, "", false, deliveries.Sent, "", 1},
		"a zone that is none": {profile{QuietHours: night, TimeZone: "Mars/Olympus"}, "", false, deliveries.Sent, "", 1},
	} {
		runWithFixture(t, name, func(n *fixture) {
			b := n.startSending(test.profile, maybeSilent(test.silent))
			n.store(func(x *contracts.Notification) { x.Priority = test.priority })
			elapse(time.Minute)
			d := n.record()
			check.That(t, d.State == test.state && d.Reason == test.reason, "%+v", d)
			elapse(30 * time.Minute)
			check.Equal(t, len(b.sent), test.calls, "calls")
			if test.state == deliveries.Deferred {
				at := b.at[0].UTC()
				check.That(t, at.Hour() == 0 && at.Minute() == 20, "sent at %s", at)
				n.want(deliveries.Sent, "", "sent")
			}
		})
	}
}

// Fields of the event replace those of the directory, except that the opt-outs of both count.
func TestWhatThePlanKnows(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := n.startSending(profile{Addresses: map[string]string{"push": "old"}, Locale: "en"})
		n.store(func(notification *contracts.Notification) {
			notification.Locale = "he"
			notification.Recipient = &contracts.Recipient{UserID: "u", RecipientType: "CUSTOMER", Addresses: map[string]string{"push": "new"}}
		})
		elapse(time.Minute)
		check.That(t, len(b.sent) == 1 && b.sent[0].Address == "new" && b.sent[0].Locale == "he", "%+v", b.sent)
	})
	withFixture(t, func(n *fixture) {
		n.startSending(profile{OptOut: map[string][]string{"c": {"*"}}})
		n.store(func(notification *contracts.Notification) {
			notification.Recipient = &contracts.Recipient{UserID: "u", RecipientType: "CUSTOMER", TimeZone: "Asia/Tokyo"}
		})
		elapse(time.Minute)
		n.want(deliveries.Suppressed, "opt_out")
	})
	for _, plan := range []time.Duration{-time.Hour, time.Hour} { // the later one counts
		withFixture(t, func(n *fixture) {
			n.startWorker(n.sender("a", &provider{}, profile{Mute: until(-plan)}))
			n.store(func(notification *contracts.Notification) {
				notification.Recipient = &contracts.Recipient{UserID: "u", RecipientType: "CUSTOMER", Mute: until(plan)}
			})
			elapse(time.Minute)
			n.want(deliveries.Suppressed, "muted")
		})
	}
}

// A notification that the worker dead-letters without having worked it has an end in its record too.
func TestADeadLetteredNotificationHasAnEnd(t *testing.T) {
	withFixture(t, func(n *fixture) {
		n.startWorker(n.sender("a", &provider{}, profile{}))
		check.OK(t, check.Err(n.js.Publish(n.Context(), "notify.send.push.CUSTOMER.u.e", []byte("no notification"))))
		elapse(time.Minute)
		n.want(deliveries.Failed, "exhausted")
		check.Equal(t, n.deadLetters(), 1, "dead letters")
	})
}

// A channel that panics each time ends as one that fails each time does.
func TestAChannelThatPanics(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := &provider{answer: func(context.Context, int) (channel.Receipt, error) { panic("broken") }}
		n.startWorker(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Retries = []time.Duration{time.Second} }))
		n.store()
		elapse(5 * time.Minute)
		n.want(deliveries.Failed, "exhausted", "unknown", "unknown")
		check.Equal(t, n.deadLetters(), 1, "dead letters")
	})
}

// An address that asks never to be used again is dropped, and no other; the notification has ended either way.
func TestAddressesThatAreGoneAreDropped(t *testing.T) {
	for kind, want := range map[channel.Kind]int{channel.KindGone: 1, channel.KindBounced: 0, channel.KindRejected: 0} {
		withFixture(t, func(n *fixture) {
			o := newFakeUser(contracts.MainEndpoint)
			o.Addresses["email"], o.dropErr = "x@example.com", errors.New("the store is away")
			n.store()
			n.startWorker(n.sender("a", &provider{answer: fails(kind)}, profile{}, func(c *deliver.Config) { c.Profiles = o }))
			elapse(1e9)
			check.That(n, len(o.dropped) == want && (want != 1 || o.dropped[0] == "CUSTOMER u push tel main"),
				"%s: dropped %q", kind, o.dropped)
			if kind == channel.KindGone {
				n.want(deliveries.Bounced, "gone", "gone")
			}
		})
	}
}

// Nothing is sent to a user whose data was erased, however critical it is and whatever address the plan has, and no record
// of the notification comes to be.
func TestNothingIsSentToTheForgotten(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := n.startSending(profile{}, func(c *deliver.Config) {
			c.Profiles = profileFunc(func(string) (r contracts.Recipient, err error) {
				return r, fmt.Errorf("profile: %w", recipient.ErrForgotten)
			})
		})
		n.store(func(r *contracts.Notification) {
			r.Priority = channel.UrgencyCritical
			r.Recipient = &contracts.Recipient{RecipientType: r.RecipientType, UserID: r.UserID, Addresses: map[string]string{"push": "tel 7"}}
		})
		elapse(time.Hour)
		stream := check.Must(n.js.Stream(n.Context(), "KV_"+contracts.BucketDeliveries))(n)
		consumer := check.Must(n.js.Consumer(n.Context(), contracts.StreamNotifications, "push"))(n)
		info := consumer.CachedInfo()
		check.That(n, len(b.sent) == 0 && n.deadLetters() == 0, "%d calls, %d dead letters", len(b.sent), n.deadLetters())
		check.That(n, stream.CachedInfo().State.Msgs == 0 && info.NumAckPending == 0 && info.AckFloor.Stream == 1, "it is kept: %+v", info)
	})
}

// slow is a channel whose calls take a while, whatever their contexts say, and end by then.
func slow(d time.Duration, then func(context.Context, int) (channel.Receipt, error)) *provider {
	return &provider{answer: func(ctx context.Context, call int) (channel.Receipt, error) {
		elapse(d)
		return then(ctx, call)
	}}
}

func accepts(context.Context, int) (channel.Receipt, error) { return channel.Receipt{}, nil }

// begin has a sender of this name work the notification, which is delivered for the n-th time. done is closed after its error, if it
// lives.
func (n *fixture) begin(name string, b *provider, delivered int, mutate ...func(*deliver.Config)) (done <-chan error) {
	n.Helper()
	s, ended := n.sender(name, b, profile{}, mutate...), make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- s.Work(n.Context(), n.job(delivered))
	}()
	return ended
}

// diesAfterCall has the goroutine end that has called the channel.
func diesAfterCall(c *deliver.Config) {
	c.Passed = func(point string) {
		if point == deliver.PointSent {
			runtime.Goexit()
		}
	}
}

// A caller that is taken for dead, and given up at most once, and is not: its outcome is recorded all the same.
func TestACallerThatIsLate(t *testing.T) {
	withFixture(t, func(n *fixture) {
		b := slow(time.Minute, accepts)
		once := func(c *deliver.Config) { c.AtMostOnce = true }
		late := n.begin("late", b, 1, once)
		elapse(30 * time.Second)
		check.That(t, n.sender("other", b, profile{}, once).Work(n.Context(), n.job(2)) != nil, "the other has not given it up")
		n.want(deliveries.Failed, "unknown_outcome", "unknown")
		check.ErrorIs(t, <-late, nil)
		n.want(deliveries.Sent, "", "sent")
	})
}

// A caller that is taken for dead, and is not, writes its outcome while its successor calls. Sent stays sent, with an unknown outcome of the
// successor, which may have died. A failure leaves the notification to the successor: it, and the one of the next channel, would be lost if
// the job ended.
func TestACallerThatIsLateAndItsSuccessor(t *testing.T) {
	for name, test := range map[string]struct {
		late, other channel.Kind // "" for sent
		then        func(*deliver.Config)
		between     deliveries.State
		second      string // outcome of the successor by then
		end         deliveries.State
	}{
		"sent, dies":              {"", "", diesAfterCall, deliveries.Sent, "unknown", deliveries.Sent},
		"sent, sent":              {"", "", asIs, deliveries.Sent, "unknown", deliveries.Sent},
		"no address, dies":        {channel.KindNoAddress, "", diesAfterCall, deliveries.Sending, "", deliveries.Sending},
		"refused, dies":           {channel.KindRejected, "", diesAfterCall, deliveries.Sending, "", deliveries.Sending},
		"no answer, unavailable":  {channel.KindTimeout, channel.KindUnavailable, asIs, deliveries.Sending, "", deliveries.Pending},
		"no answer, bounces":      {channel.KindTimeout, channel.KindBounced, asIs, deliveries.Sending, "", deliveries.Bounced},
		"no answer, refused":      {channel.KindTimeout, channel.KindRejected, asIs, deliveries.Sending, "", deliveries.Failed},
		"no answer, and is taken": {channel.KindTimeout, "", asIs, deliveries.Sending, "", deliveries.Sent},
	} {
		runWithFixture(t, name, func(n *fixture) {
			calls := func(kind channel.Kind) (b *provider, outcome string) {
				if kind == "" {
					return slow(40*time.Second, accepts), "sent"
				}
				return slow(40*time.Second, fails(kind)), string(kind)
			}
			first, outcome := calls(test.late)
			second, then := calls(test.other)
			late := n.begin("late", first, 1)
			elapse(30 * time.Second)
			other := n.begin("other", second, 2, test.then)
			err := <-late
			check.That(t, (err == nil) == (test.late == ""), "the job of the late one: %v", err)
			n.want(test.between, "", outcome, test.second)
			<-other
			if name == "sent, dies" || test.end == deliveries.Sending {
				then = test.second
			}
			n.want(test.end, string(test.other), outcome, then)
		})
	}
}

// A notification whose callers died, or were stopped, waits after its channel's first failure as any other does: the waits of the
// schedule count failures of the provider only.
func TestDeadCallersDoNotMakeANotificationWaitForLonger(t *testing.T) {
	withFixture(t, func(n *fixture) {
		now := time.Now().UTC()
		d := &deliveries.Delivery{State: deliveries.Sending, Until: now, Attempts: []deliveries.Attempt{
			{At: now, Worker: "dead", Outcome: deliveries.OutcomeUnknown},
			{At: now, Worker: "stopped", Outcome: string(channel.KindInterrupted), Detail: "push: interrupted"},
			{At: now, Worker: "dead, too"},
		}}
		check.OK(t, n.deliveries.Put(n.Context(), theKey, d))
		s := n.sender("a", &provider{answer: fails(channel.KindUnknown)}, profile{})
		for i, most := range []time.Duration{6 * time.Second, 72 * time.Second} { // 5 s and 1 min, +20 %
			err := s.Work(n.Context(), n.job(2+i))
			retry, ok := errors.AsType[*worker.RetryError](err)
			check.That(t, ok && retry.After <= most, "failure %d: %v, want a wait of at most %s", i+1, err, most)
		}
	})
}

// A store that does not answer is not the notification's fault: it uses no attempt, and the notification comes back after a second.
func TestAnOutcomeThatCannotBeWrittenDownPutsANotificationOffForASecond(t *testing.T) {
	withFixture(t, func(n *fixture) {
		proxy := natstest.NewProxy(n.T, n.srv)
		_, js := natstest.Connect(n.T, n.srv, proxy.Through())
		s := n.sender("a", &provider{answer: fails(channel.KindRejected)}, profile{}, func(c *deliver.Config) {
			c.Deliveries, c.Passed = deliveries.New(recordtest.Client(n, js)), func(point string) {
				if point == deliver.PointSent {
					proxy.Partition()
				}
			}
		})
		ctx, cancel := context.WithTimeout(n.Context(), s.Policy().Timeout)
		defer cancel()
		check.Equal(t, snoozed(s.Work(ctx, n.job(1))), time.Second, "deferred for")
	})
}

// A notification whose failure may be its own or its worker's is tried again within seconds, however often its workers died.
func TestNoBackoffIsLong(t *testing.T) {
	withFixture(t, func(n *fixture) {
		p := n.sender("a", &provider{}, profile{}).Policy()
		check.Require(t, p.Backoff != nil, "it is the worker's: up to 15 minutes")
		for attempt := range p.MaxAttempts {
			wait := p.Backoff(attempt + 1)
			check.That(t, wait <= 15*time.Second, "after attempt %d it waits %s", attempt+1, wait)
		}
	})
}

// A notification that may try whether an endpoint is back, and does not call it after all, holds up no other notification.
func TestATryThatIsNotMadeHoldsUpNobody(t *testing.T) {
	withFixture(t, func(n *fixture) {
		known := n.healthStore(time.Hour)
		for range 3 {
			call := &health.Call{Address: "at u", Channel: "push", Slots: 100, Timeout: time.Second}
			known.Admit(call)
			known.Called(n.Context(), call, channel.Message{}, &channel.Error{Kind: channel.KindTimeout})
		}
		elapse(10 * time.Second)
		b := &provider{}
		s := n.sender("a", b, profile{}, func(c *deliver.Config) {
			c.Health, c.Logger = known, slog.New(slog.DiscardHandler)
			overtakes := sync.OnceFunc(func() {
				check.ErrorIs(t, n.deliveries.Put(n.Context(), theKey, &deliveries.Delivery{State: deliveries.Pending}), nil)
			})
			c.Profiles = profileFunc(func(user string) (contracts.Recipient, error) {
				overtakes()
				return addressOfUser(user)
			})
		})
		check.ErrorIs(t, s.Work(n.Context(), n.job(1)), nil)
		n.want(deliveries.Sent, "", "sent")
	})
}
