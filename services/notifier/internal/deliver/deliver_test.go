package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

func TestARowIsSentOnce(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{}
		s := n.sender("a", b, profile{Addresses: map[string]string{"bird": "nest 7"}, Locale: "he"})
		n.work(s)
		n.store()
		elapse(time.Minute)
		n.want(deliveries.Sent, "", "sent")
		check.That(t, len(b.sent) == 1 && b.sent[0].Address == "nest 7" && b.sent[0].Locale == "he" && b.sent[0].Attempt == 1 &&
			string(b.sent[0].Payload) == `{"from":"plan"}` && b.sent[0].ID == deliveries.MessageID(rowKey),
			"%+v", b.sent)
		d := n.record()
		check.That(t, d.ProviderID == "r" && d.Attempts[0].Worker == "a", "%+v", d)
	})
}

// Each kind of failure of a channel, and the outcome of the notification.
func TestFailures(t *testing.T) {
	for name, test := range map[string]struct {
		kind    channel.Kind
		once    bool
		state   deliveries.State
		reason  string
		calls   int
		letters uint64
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
		runInNest(t, name, func(n *nest) {
			b := &bird{fly: fails(test.kind)}
			n.work(n.sender("a", b, profile{}, func(c *deliver.Config) {
				c.AtMostOnce, c.Retries = test.once, slices.Repeat([]time.Duration{time.Second}, 5)
			}))
			n.store()
			elapse(time.Minute)
			outcomes := make([]string, test.calls)
			for i := range outcomes {
				outcomes[i] = string(test.kind)
			}
			n.want(test.state, test.reason, outcomes...)
			check.That(t, len(b.sent) == test.calls && n.letters() == test.letters, "%d calls, %d dead letters", len(b.sent), n.letters())
			for i, m := range b.sent {
				check.That(t, m.ID == deliveries.MessageID(rowKey) && m.Attempt == i+1 && m.FirstAttempt.Equal(b.at[0]), "call %d: %+v", i, m)
			}
		})
	}
}

// The waits are those of the schedule, or those that the provider asked for when these are longer.
func TestRetriesKeepToTheSchedule(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{fly: func(_ context.Context, call int) (channel.Receipt, error) {
			switch call {
			case 1:
				return channel.Receipt{}, &channel.Error{Kind: channel.KindUnavailable}
			case 2:
				return channel.Receipt{}, &channel.Error{Kind: channel.KindRateLimited, RetryAfter: time.Hour}
			case 3:
				return channel.Receipt{}, errOdd
			}
			return channel.Receipt{Delivered: true}, nil
		}}
		n.work(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Retries = []time.Duration{time.Minute, time.Minute, 10 * time.Minute} }))
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
		runInNest(t, name, func(n *nest) {
			b := &bird{}
			mode := func(c *deliver.Config) { c.AtMostOnce = test.once }
			n.dead(b, test.at, 1, mode)
			n.store()
			n.work(n.sender("b", b, profile{}, mode))
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
func TestARowIsNotSentTwiceAtATime(t *testing.T) {
	inNest(t, func(n *nest) {
		b := takes(10*time.Second, arrives)
		done := n.begin("a", b, 1)
		elapse(time.Second)
		for _, deliveries := range []int{1, 2} {
			err := n.sender("b", b, profile{}).Work(n.Context(), n.job(deliveries))
			check.That(t, snoozed(err) > 0 && snoozed(err) <= 15*time.Second, "%v", err)
		}
		if err := <-done; err != nil || len(b.sent) != 1 {
			t.Errorf("%d calls: %v", len(b.sent), err)
		}
	})
}

func TestAWorkerThatStopsGivesTheRowBack(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{fly: func(ctx context.Context, call int) (channel.Receipt, error) {
			if call == 1 {
				<-ctx.Done()
				return channel.Receipt{}, ctx.Err()
			}
			return channel.Receipt{}, nil
		}}
		stop := n.work(n.sender("a", b, profile{}))
		n.store()
		elapse(time.Second)
		stop()
		n.want(deliveries.Pending, "interrupted", "interrupted")
		n.work(n.sender("b", b, profile{}))
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
		"not this category":   {profile{OptOut: map[string][]string{"c": {"bird"}}}, "", false, deliveries.Suppressed, "opt_out", 0},
		"not on any channel":  {profile{OptOut: map[string][]string{"c": {"*"}}}, "", false, deliveries.Suppressed, "opt_out", 0},
		"not on this channel": {profile{OptOut: map[string][]string{"*": {"bird"}}}, "", false, deliveries.Suppressed, "opt_out", 0},
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
		runInNest(t, name, func(n *nest) {
			b := &bird{}
			n.work(n.sender("a", b, test.profile, mayBeQuiet(b, test.silent)))
			n.store(func(row *contracts.Notification) { row.Priority = test.priority })
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
	inNest(t, func(n *nest) {
		b := n.flock(profile{Addresses: map[string]string{"bird": "old"}, Locale: "en"})
		n.store(func(row *contracts.Notification) {
			row.Locale = "he"
			row.Recipient = &contracts.Recipient{UserID: "u", RecipientType: "CUSTOMER", Addresses: map[string]string{"bird": "new"}}
		})
		elapse(time.Minute)
		check.That(t, len(b.sent) == 1 && b.sent[0].Address == "new" && b.sent[0].Locale == "he", "%+v", b.sent)
	})
	inNest(t, func(n *nest) {
		n.flock(profile{OptOut: map[string][]string{"c": {"*"}}})
		n.store(func(row *contracts.Notification) {
			row.Recipient = &contracts.Recipient{UserID: "u", RecipientType: "CUSTOMER", TimeZone: "Asia/Tokyo"}
		})
		elapse(time.Minute)
		n.want(deliveries.Suppressed, "opt_out")
	})
	for _, plan := range []time.Duration{-time.Hour, time.Hour} { // the later one counts
		inNest(t, func(n *nest) {
			n.work(n.sender("a", &bird{}, profile{Mute: until(-plan)}))
			n.store(func(row *contracts.Notification) {
				row.Recipient = &contracts.Recipient{UserID: "u", RecipientType: "CUSTOMER", Mute: until(plan)}
			})
			elapse(time.Minute)
			n.want(deliveries.Suppressed, "muted")
		})
	}
}

// A notification that the worker dead-letters without having worked it has an end in its record too.
func TestADeadLetteredRowHasAnEnd(t *testing.T) {
	inNest(t, func(n *nest) {
		n.work(n.sender("a", &bird{}, profile{}))
		check.OK(t, check.Err(n.js.Publish(n.Context(), "notify.send.bird.CUSTOMER.u.e", []byte("no row"))))
		elapse(time.Minute)
		n.want(deliveries.Failed, "exhausted")
		check.Equal(t, n.letters(), 1, "dead letters")
	})
}

// A channel that panics each time ends as one that fails each time does.
func TestAChannelThatPanics(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{fly: func(context.Context, int) (channel.Receipt, error) { panic("broken") }}
		n.work(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Retries = []time.Duration{time.Second} }))
		n.store()
		elapse(5 * time.Minute)
		n.want(deliveries.Failed, "exhausted", "unknown", "unknown")
		check.Equal(t, n.letters(), 1, "dead letters")
	})
}

// An address that asks never to be used again is dropped, and no other; the notification has ended either way.
func TestAddressesThatAreGoneAreDropped(t *testing.T) {
	for kind, want := range map[channel.Kind]int{channel.KindGone: 1, channel.KindBounced: 0, channel.KindRejected: 0} {
		inNest(t, func(n *nest) {
			o := owns(contracts.MainEndpoint)
			o.Addresses["fish"], o.away = "pond", errors.New("the store is away")
			n.store()
			n.work(n.sender("a", &bird{fly: fails(kind)}, profile{}, func(c *deliver.Config) { c.Profiles = o }))
			elapse(1e9)
			check.That(n, len(o.dropped) == want && (want != 1 || o.dropped[0] == "CUSTOMER u bird nest main"),
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
	inNest(t, func(n *nest) {
		b := n.flock(profile{}, func(c *deliver.Config) {
			c.Profiles = finds(func(string) (r contracts.Recipient, err error) {
				return r, fmt.Errorf("profile: %w", recipient.ErrForgotten)
			})
		})
		n.store(func(r *contracts.Notification) {
			r.Priority = channel.UrgencyCritical
			r.Recipient = &contracts.Recipient{RecipientType: r.RecipientType, UserID: r.UserID, Addresses: map[string]string{"bird": "nest 7"}}
		})
		elapse(time.Hour)
		stream := check.Must(n.js.Stream(n.Context(), "KV_"+contracts.BucketDeliveries))(n)
		consumer := check.Must(n.js.Consumer(n.Context(), contracts.StreamNotifications, "bird"))(n)
		info := consumer.CachedInfo()
		if len(b.sent) > 0 || n.letters() > 0 || stream.CachedInfo().State.Msgs > 0 || info.NumAckPending > 0 || info.AckFloor.Stream != 1 {
			n.Errorf("%d calls, %d letters, %d records, %+v", len(b.sent), n.letters(), stream.CachedInfo().State.Msgs, info)
		}
	})
}
