package deliver_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// uncounted returns how many deliveries of the row used no attempt.
func (n *nest) uncounted() int {
	n.Helper()
	stream, err := n.js.Stream(n.Context(), "KV_"+contracts.BucketJobs)
	check.OK(n, err)
	msg, err := stream.GetLastMsgForSubject(n.Context(), "$KV.jobs.excused.NOTIFICATIONS.bird.1")
	if err != nil {
		return 0
	}
	var record struct {
		Excused int `json:"excused"`
	}
	check.OK(n, json.Unmarshal(msg.Data, &record))
	return record.Excused
}

// A row that is not to be sent before a time waits for it on every channel, also when it is critical, and then still
// keeps to quiet hours. Waiting uses no attempt.
func TestARowWaitsForItsTime(t *testing.T) {
	night := &contracts.QuietHours{From: "00:00", To: "02:00"} // it is midnight
	for name, test := range map[string]struct {
		ahead    time.Duration
		profile  profile
		priority contracts.Urgency
		silent   bool
		at       time.Duration
	}{
		"an hour":        {time.Hour, profile{}, "", false, time.Hour},
		"critical":       {time.Hour, profile{QuietHours: night}, contracts.UrgencyCritical, false, time.Hour},
		"silent":         {time.Hour, profile{QuietHours: night}, "", true, time.Hour},
		"in quiet hours": {time.Hour, profile{QuietHours: night}, "", false, 2 * time.Hour},
		"in the past":    {-time.Hour, profile{}, "", false, 0},
	} {
		runInNest(t, name, func(n *nest) {
			begun := time.Now()
			b := &bird{}
			n.work(n.sender("a", b, test.profile, func(c *deliver.Config) { c.Silent = test.silent }))
			n.store(func(row *contracts.Notification) { row.NotBefore, row.Priority = begun.Add(test.ahead), test.priority })
			elapse(time.Minute)
			if test.at > 0 {
				n.want(deliveries.Deferred, "not_before")
				if d := n.record(); !d.Until.Equal(begun.Add(test.ahead)) {
					t.Errorf("until %s", d.Until)
				}
				check.Same(t, "deliveries used no attempt", n.uncounted(), 1)
			}
			elapse(test.at)
			n.want(deliveries.Sent, "", "sent")
			if len(b.at) != 1 || b.at[0].Sub(begun).Truncate(time.Second) != test.at {
				t.Errorf("sent at %v, want after %s", b.at, test.at)
			}
		})
	}
}

// What comes before its time is put off again, however often: a server that restarts delivers it early.
func TestARowThatComesTooEarlyIsPutOffAgain(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{fly: fails(channel.KindUnavailable)}
		s := n.sender("a", b, profile{})
		until := time.Now().Add(time.Hour)
		for deliveries := range 20 {
			job := n.job(deliveries + 1)
			job.Args.NotBefore = until
			elapse(time.Minute)
			if wait := snoozed(s.Work(n.Context(), job)); wait != time.Until(until) {
				t.Errorf("delivery %d is put off for %s, want %s", deliveries+1, wait, time.Until(until))
			}
		}
		n.want(deliveries.Deferred, "not_before")
		if came := s.Came(); came[deliver.Standing{deliveries.Deferred, deliveries.ReasonNotBefore}] != 1 || len(b.sent) != 0 {
			t.Errorf("%v, %d calls", came, len(b.sent))
		}
	})
}
