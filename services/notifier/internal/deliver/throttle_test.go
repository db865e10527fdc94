package deliver_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// few is a notification of which a user gets three a minute.
func few(row *contracts.Notification) { row.Throttle = &contracts.Throttle{Limit: 3, Per: 60} }

// most is how many different messages were sent in the fullest stretch of time.
func (b *bird) most(per time.Duration) int {
	most := 0
	for _, begin := range b.at {
		in := map[string]bool{}
		for i, at := range b.at {
			if !at.Before(begin) && at.Before(begin.Add(per)) {
				in[b.sent[i].ID] = true
			}
		}
		most = max(most, len(in))
	}
	return most
}

func TestAThrottlePutsOff(t *testing.T) {
	inNest(t, func(n *nest) {
		b := n.flock(profile{})
		for i := range 8 {
			n.storeEvent(fmt.Sprint("e", i), few)
			elapse(time.Second)
		}
		n.storeEvent("urgent", few, func(row *contracts.Notification) { row.Priority = channel.UrgencyCritical })
		n.storeEvent("other", few, func(row *contracts.Notification) { row.Category = "d" })
		elapse(time.Second)
		d, err := n.deliveries.Get(n.Context(), "e4.bird.CUSTOMER.u")
		if want := start.Add(time.Minute + time.Second); err != nil || d.State != deliveries.Deferred || d.Reason != "throttled" || !d.Until.Equal(want) {
			t.Errorf("%+v, want until %s: %v", d, want, err)
		}
		elapse(3 * time.Minute)
		var order []string
		for i, m := range b.sent {
			order = append(order, fmt.Sprintf("%s %s", m.EventID, b.at[i].Sub(start)))
		}
		want := []string{
			"e0 0s", "e1 1s", "e2 2s", "urgent 8s", "other 8s",
			"e3 1m0s", "e4 1m1s", "e5 1m2s", "e6 2m0s", "e7 2m1s",
		}
		slices.Sort(order[3:5])
		slices.Sort(want[3:5])
		check.That(t, slices.Equal(order, want), "got  %q\nwant %q", order, want)
	})
}

func TestAThrottleSuppresses(t *testing.T) {
	inNest(t, func(n *nest) {
		b := n.flock(profile{})
		for i := range 5 {
			n.storeEvent(fmt.Sprint("e", i), func(row *contracts.Notification) {
				row.Throttle = &contracts.Throttle{Limit: 3, Per: 60, Suppress: true}
			})
			elapse(time.Second)
		}
		elapse(5 * time.Minute)
		d, err := n.deliveries.Get(n.Context(), "e4.bird.CUSTOMER.u")
		check.That(t, err == nil && d.State == deliveries.Suppressed && d.Reason == "throttled" && len(b.sent) == 3,
			"%d messages, %+v: %v", len(b.sent), d, err)
	})
}

// A notification that is delivered again takes no second grant.
func TestARetryIsCountedOnce(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{fly: func(_ context.Context, call int) (channel.Receipt, error) {
			if call <= 5 {
				return channel.Receipt{}, &channel.Error{Kind: channel.KindUnavailable}
			}
			return channel.Receipt{}, nil
		}}
		n.work(n.sender("a", b, profile{}, func(c *deliver.Config) { c.Retries = slices.Repeat([]time.Duration{time.Second}, 9) }))
		n.storeEvent("e0", few)
		elapse(20 * time.Second)
		n.storeEvent("e1", few)
		n.storeEvent("e2", few)
		elapse(20 * time.Second)
		check.Equal(t, len(b.sent), 8, "calls in less than a minute")
	})
}

// Many notifications at once and later, two processes that die at any point: none is lost, and no stretch of time has more than the
// limit.
func TestAThrottleHoldsUnderChaos(t *testing.T) {
	underChaos(t, time.Second, 10, func(n *nest, b *bird, chance func(int) int, calm func()) {
		for i := range 40 {
			n.storeEvent(fmt.Sprint("e", i), few)
			if i >= 20 {
				elapse(time.Duration(chance(30_000)) * time.Millisecond)
			}
		}
		calm()
		elapse(20 * time.Minute)
		delivered := map[string]bool{}
		for _, m := range b.sent {
			delivered[m.EventID] = true
		}
		most := b.most(time.Minute)
		check.That(t, len(delivered) == 40 && most <= 3, "%d of 40 are delivered, up to %d a minute", len(delivered), most)
	})
}

// A notification that is not to be sent before a time waits for it on every channel, also when it is critical, and then still
// keeps to quiet hours.
func TestARowWaitsForItsTime(t *testing.T) {
	night := &contracts.QuietHours{From: "00:00", To: "02:00"} // it is midnight
	for name, test := range map[string]struct {
		ahead    time.Duration
		profile  profile
		priority string
		silent   bool
		at       time.Duration
	}{
		"an hour":        {time.Hour, profile{}, "", false, time.Hour},
		"critical":       {time.Hour, profile{QuietHours: night}, channel.UrgencyCritical, false, time.Hour},
		"silent":         {time.Hour, profile{QuietHours: night}, "", true, time.Hour},
		"in quiet hours": {time.Hour, profile{QuietHours: night}, "", false, 2 * time.Hour},
		"in the past":    {-time.Hour, profile{}, "", false, 0},
	} {
		runInNest(t, name, func(n *nest) {
			begun := time.Now()
			b := &bird{}
			n.work(n.sender("a", b, test.profile, mayBeQuiet(b, test.silent)))
			n.store(func(row *contracts.Notification) { row.NotBefore, row.Priority = begun.Add(test.ahead), test.priority })
			elapse(time.Minute)
			if test.at > 0 {
				n.want(deliveries.Deferred, "not_before")
				d := n.record()
				check.That(t, d.Until.Equal(begun.Add(test.ahead)), "until %s", d.Until)
			}
			elapse(test.at)
			n.want(map[bool]deliveries.State{false: deliveries.Sent, true: deliveries.Delivered}[test.silent], "", "sent")
			check.That(t, len(b.at) == 1 && b.at[0].Sub(begun).Truncate(time.Second) == test.at, "sent at %v, want after %s", b.at, test.at)
		})
	}
}

// A notification that comes before its time is put off again, however often: a server that restarts delivers it early.
func TestARowThatComesTooEarlyIsPutOffAgain(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{fly: fails(channel.KindUnavailable)}
		s := n.sender("a", b, profile{})
		until := time.Now().Add(time.Hour)
		for deliveries := range 20 {
			job := n.job(deliveries + 1)
			job.Args.NotBefore = until
			elapse(time.Minute)
			wait := snoozed(s.Work(n.Context(), job))
			check.That(t, wait == time.Until(until), "delivery %d is put off for %s, want %s", deliveries+1, wait, time.Until(until))
		}
		n.want(deliveries.Deferred, "not_before")
		if came := s.Came(); came[deliver.Standing{deliveries.Deferred, deliveries.ReasonNotBefore}] != 1 || len(b.sent) != 0 {
			t.Errorf("%v, %d calls", came, len(b.sent))
		}
	})
}

// A user's own digest goes before that of the rule, where a rule could have one, and is not one where a notification was tried by itself.
func TestDigestsThatUsersChoose(t *testing.T) {
	alone := func(*contracts.Notification) {}
	for name, test := range map[string]struct {
		wishes map[string]string
		row    func(*contracts.Notification)
		silent bool
		at     []time.Duration // since midnight
	}{
		"none by the rule":  {map[string]string{"c": "30m"}, alone, false, []time.Duration{30 * time.Minute}},
		"other by the rule": {map[string]string{"c": "00:10,09:00"}, hourly, false, []time.Duration{10 * time.Minute}},
		"off":               {map[string]string{"c": "off", "*": "30m"}, hourly, false, []time.Duration{0, 0}},
		"every category":    {map[string]string{"*": "30m", "d": "off"}, alone, false, []time.Duration{30 * time.Minute}},
		"another category":  {map[string]string{"d": "30m"}, alone, false, []time.Duration{0, 0}},
		"no category":       {map[string]string{"": "off", "*": "30m"}, func(row *contracts.Notification) { row.Category = "" }, false, []time.Duration{30 * time.Minute}},
		"critical":          {map[string]string{"c": "30m"}, func(row *contracts.Notification) { row.Priority = channel.UrgencyCritical }, false, []time.Duration{0, 0}},
		"inbox":             {map[string]string{"c": "30m"}, alone, true, []time.Duration{0, 0}},
		"inbox by the rule": {map[string]string{"c": "30m"}, hourly, true, []time.Duration{30 * time.Minute}},
		"in front":          {map[string]string{"c": "30m"}, func(row *contracts.Notification) { row.Fallback = []string{"x"} }, false, []time.Duration{0, 0}},
		"behind":            {map[string]string{"c": "30m"}, func(row *contracts.Notification) { row.FallbackOf = "x" }, false, []time.Duration{0, 0}},
		"unreadable":        {map[string]string{"c": "now and then"}, hourly, false, []time.Duration{time.Hour}},
	} {
		runInNest(t, name, func(n *nest) {
			b := &bird{}
			n.work(n.sender("a", b, profile{Digest: test.wishes}, mayBeQuiet(b, test.silent)))
			for _, event := range []string{"e1", "e2"} {
				n.storeEvent(event, test.row)
			}
			elapse(70 * time.Minute)
			var at []time.Duration
			for i := range b.sent {
				at = append(at, b.at[i].Sub(start))
			}
			check.That(t, slices.Equal(at, test.at), "delivered at %s, want %s", at, test.at)
		})
	}
}

// A wish that changes while a notification goes into a digest, or is tried again, changes nothing of that: the notification is in one
// message.
func TestADigestThatIsChosenMeanwhile(t *testing.T) {
	for _, point := range []string{deliver.PointNoted, deliver.PointJoined} {
		runInNest(t, "off at "+point, func(n *nest) {
			n.dead(&bird{}, point, 1, func(c *deliver.Config) { c.Profiles = profile{Digest: map[string]string{"*": "1h"}} })
			b := &bird{}
			n.store(func(row *contracts.Notification) { row.Category = "" })
			n.work(n.sender("a", b, profile{Digest: map[string]string{"*": "off"}}))
			elapse(2 * time.Hour)
			check.That(t, len(b.sent) == 1 && b.at[0].Equal(start.Add(time.Hour)), "%v %+v", b.at, b.sent)
			n.want(deliveries.Suppressed, "digest")
		})
	}
	runInNest(t, "off, and the digest is sent", func(n *nest) {
		n.dead(&bird{}, deliver.PointNoted, 1, func(c *deliver.Config) { c.Profiles = profile{Digest: map[string]string{"*": "1h"}} })
		b := &bird{}
		n.storeEvent("e2", func(row *contracts.Notification) { row.Category, row.Template = "", "" })
		stop := n.work(n.sender("a", b, profile{Digest: map[string]string{"*": "1h"}}))
		elapse(2 * time.Hour)
		stop()
		n.store(func(row *contracts.Notification) { row.Category = "" })
		n.work(n.sender("a", b, profile{Digest: map[string]string{"*": "off"}}))
		elapse(time.Minute)
		check.That(t, len(b.sent) == 2, "%+v", b.sent)
		d := n.record()
		check.That(t, d.State == deliveries.Sent && d.Digest == "", "%+v", d)
	})
	runInNest(t, "tried", func(n *nest) {
		b := &bird{}
		n.dead(b, deliver.PointSent, 1)
		n.store()
		n.work(n.sender("a", b, profile{Digest: map[string]string{"*": "1h"}}))
		elapse(2 * time.Hour)
		n.want(deliveries.Sent, "", "unknown", "sent")
	})
}
