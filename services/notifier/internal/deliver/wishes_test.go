package deliver_test

import (
	"slices"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// A user's own digest goes before that of the rule, where a rule could have one, and is not one where a row was tried by itself.
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
		"critical":          {map[string]string{"c": "30m"}, func(row *contracts.Notification) { row.Priority = contracts.UrgencyCritical }, false, []time.Duration{0, 0}},
		"inbox":             {map[string]string{"c": "30m"}, alone, true, []time.Duration{0, 0}},
		"inbox by the rule": {map[string]string{"c": "30m"}, hourly, true, []time.Duration{30 * time.Minute}},
		"in front":          {map[string]string{"c": "30m"}, func(row *contracts.Notification) { row.Fallback = []string{"x"} }, false, []time.Duration{0, 0}},
		"behind":            {map[string]string{"c": "30m"}, func(row *contracts.Notification) { row.FallbackOf = "x" }, false, []time.Duration{0, 0}},
		"unreadable":        {map[string]string{"c": "now and then"}, hourly, false, []time.Duration{time.Hour}},
	} {
		runInNest(t, name, func(n *nest) {
			b := &bird{}
			n.work(n.sender("a", b, profile{Digest: test.wishes}, func(c *deliver.Config) { c.Silent = test.silent }))
			for _, event := range []string{"e1", "e2"} {
				n.storeEvent(event, test.row)
			}
			elapse(70 * time.Minute)
			var at []time.Duration
			for i := range b.sent {
				at = append(at, b.at[i].Sub(start))
			}
			if !slices.Equal(at, test.at) {
				t.Errorf("delivered at %s, want %s", at, test.at)
			}
		})
	}
}

// A wish that changes while a row goes into a digest, or is tried again, changes nothing of that: the row is in one message.
func TestADigestThatIsChosenMeanwhile(t *testing.T) {
	for _, point := range []string{deliver.PointNoted, deliver.PointJoined} {
		runInNest(t, "off at "+point, func(n *nest) {
			n.dead(&bird{}, point, func(c *deliver.Config) { c.Profiles = profile{Digest: map[string]string{"*": "1h"}} })
			b := &bird{}
			n.store(func(row *contracts.Notification) { row.Category = "" })
			n.work(n.sender("a", b, profile{Digest: map[string]string{"*": "off"}}))
			elapse(2 * time.Hour)
			if len(b.sent) != 1 || !b.at[0].Equal(start.Add(time.Hour)) {
				t.Errorf("%v %+v", b.at, b.sent)
			}
			n.want(deliveries.Suppressed, "digest")
		})
	}
	runInNest(t, "off, and the digest is sent", func(n *nest) {
		n.dead(&bird{}, deliver.PointNoted, func(c *deliver.Config) { c.Profiles = profile{Digest: map[string]string{"*": "1h"}} })
		b := &bird{}
		n.storeEvent("e2", func(row *contracts.Notification) { row.Category, row.Template = "", "" })
		stop := n.work(n.sender("a", b, profile{Digest: map[string]string{"*": "1h"}}))
		elapse(2 * time.Hour)
		stop()
		n.store(func(row *contracts.Notification) { row.Category = "" })
		n.work(n.sender("a", b, profile{Digest: map[string]string{"*": "off"}}))
		elapse(time.Minute)
		if len(b.sent) != 2 {
			t.Errorf("%+v", b.sent)
		}
		if d := n.record(); d.State != deliveries.Sent || d.Digest != "" {
			t.Errorf("%+v", d)
		}
	})
	runInNest(t, "tried", func(n *nest) {
		b := &bird{}
		n.dead(b, deliver.PointSent)
		n.store()
		n.work(n.sender("a", b, profile{Digest: map[string]string{"*": "1h"}}))
		elapse(2 * time.Hour)
		n.want(deliveries.Sent, "", "unknown", "sent")
	})
}
