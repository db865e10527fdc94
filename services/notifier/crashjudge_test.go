package notifier

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/email"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

// end is how a notification ends, whatever happens.
type end string

const (
	sent       end = "sent"
	split      end = "split: "
	optedOut   end = "suppressed: opt_out"
	deferred   end = "deferred: quiet_hours"
	noAddress  end = "suppressed: no_address"
	bouncesEnd end = "bounced: gone" // or noAddress
)

func endOf(n contracts.Notification, urgent bool) end {
	switch trait := traitOf(n.UserID); {
	case n.Address == "" && addresses(n.UserID, n.Channel) != nil:
		return split
	case n.Channel == inapp.Name:
		return sent
	case trait == noMail && n.Channel == email.Name && !urgent:
		return optedOut
	case trait == asleep && !urgent:
		return deferred
	case trait == noHook && n.Channel == webhook.Name:
		return noAddress
	case trait == goneBrowser && n.Channel == webpush.Name:
		return bouncesEnd
	}
	return sent
}

// seen is the state of the deliveries, as far as it has been read.
type seen struct {
	from    [2]uint64       // where the next records are, and the next ones in the inbox
	open    map[string]bool // notifications that go on
	records map[string]*deliveries.Delivery
	changed time.Time // when it was last found changed
	waiting int       // jobs that were not delivered then
}

// look reads the records written since the last call, and reports whether all notifications of all events have ended.
func (s *crashSuite) look() bool {
	s.Helper()
	s.read(&s.seen.from[0], s.store.Scan)
	s.read(&s.seen.from[1], s.store.ScanItems)
	if time.Since(s.seen.changed) > patience { // deleted consumers deliver all again, and what has ended changes no record
		waiting := 0
		for stream, names := range consumers {
			for _, name := range names {
				waiting += s.waiting(stream, name)
			}
		}
		check.Require(s, waiting != s.seen.waiting, "nothing has changed for %s: %d of %d notifications are there\n%s",
			patience, len(s.seen.records), len(s.want), s.unfinished())
		s.seen.waiting, s.seen.changed = waiting, time.Now()
		return false
	}
	return len(s.seen.open) == 0 && len(s.seen.records) >= len(s.want)
}

// read reads the records written from a position on.
func (s *crashSuite) read(from *uint64, scan func(context.Context, uint64, int) ([]deliveries.Entry, int, uint64, error)) {
	s.Helper()
	for more := true; more; {
		var entries []deliveries.Entry
		var next uint64
		s.ask(func(ctx context.Context) (err error) {
			entries, _, next, err = scan(ctx, *from, 1000)
			return err
		})
		for _, entry := range entries {
			s.seen.records[entry.Key] = entry.Delivery
			*from, s.seen.changed = entry.Revision+1, time.Now()
			if entry.State.Ended() || entry.State == deliveries.Deferred {
				delete(s.seen.open, entry.Key)
			} else {
				s.seen.open[entry.Key] = true
			}
		}
		if more = next != 0; more {
			*from = next
		}
	}
}

// unfinished describes the first notifications that are missing or open.
func (s *crashSuite) unfinished() string {
	s.providers.mu.Lock()
	defer s.providers.mu.Unlock()
	var b strings.Builder
	n := 0
	for key := range s.want {
		if s.seen.records[key] == nil || s.seen.open[key] {
			n++
			if n <= 5 {
				b.WriteString(s.history(key))
			}
		}
	}
	return b.String()
}

// settle waits until all notifications of all events have ended, for as long as some still change.
func (s *crashSuite) settle() {
	s.Helper()
	s.seen.changed = time.Now() // nobody has looked until now
	for !s.look() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-s.Context().Done():
			s.Fatal("the test ends")
		}
	}
}

// judge compares the calls of the providers, the deliveries, the stream and the effect log.
func (s *crashSuite) judge() crash.Result {
	s.Helper()
	s.look()
	s.providers.mu.Lock()
	defer s.providers.mu.Unlock()
	check.That(s, len(s.providers.wrong) == 0, "%d calls are of no notification: %.2000q", len(s.providers.wrong), s.providers.wrong)
	for key := range s.providers.calls {
		check.That(s, s.want[key].UserID != "", "nobody was to be notified of %s", key)
	}
	for key := range s.seen.records {
		check.That(s, s.want[key].UserID != "", "there is a notification that nobody wanted: %s", s.history(key))
	}
	faulted := s.faulted()
	effects, bad, repeated := map[string]bool{}, 0, []string(nil)
	for key, w := range s.want {
		taken, rejections := 0, 0
		for _, a := range s.providers.calls[key] {
			if a.took() {
				taken++
			}
			if a == rejected {
				rejections++
			}
		}
		wrong := s.wrong(key, w, faulted, taken, rejections)
		if wrong != "" {
			bad++
		}
		if wrong != "" && bad <= 20 {
			s.Errorf("%s\n%s", wrong, s.history(key))
		}
		d := s.seen.records[key]
		if s.once && taken > 1 || d != nil && repeats(d) {
			repeated = append(repeated, key)
		}
		if taken > 0 || w.end == sent && w.Channel != inapp.Name && rejections == 0 && !(s.once && s.gaveUp(key)) {
			effects[deliveries.MessageID(key)] = true
		}
	}
	s.judgeStream()
	result := check.Must(s.log.Judge(maps.Keys(effects), nil))(s)
	result.Repeated = append(result.Repeated, repeated...)
	s.Logf("%d events, %d notifications, %d wrong; %d effects, %d repeated before their record; faults: %v",
		s.published, len(s.want), bad, result.Wanted, result.Unrecorded, result.Faults)
	return result
}

// faulted returns what was injected into each process, by its name in the records, and "" for the servers.
func (s *crashSuite) faulted() map[string][]string {
	s.Helper()
	byProcess := map[string][]string{}
	check.OK(s, s.log.Entries(func(e crash.Entry) {
		if e.Kind == crash.Injected && e.ID != "consumers deleted" {
			byProcess[e.Process] = append(byProcess[e.Process], e.ID)
		}
	}))
	all := map[string][]string{"": byProcess[""]}
	for worker, name := range s.started {
		all[worker] = byProcess[name]
	}
	return all
}

// gaveUp reports whether a notification was given up because its message may have been sent.
func (s *crashSuite) gaveUp(key string) bool {
	d := s.seen.records[key]
	return d != nil && d.State == deliveries.Failed && d.Reason == deliveries.ReasonUnknownOutcome
}

// repeats reports whether an attempt was sent, and another began when that was recorded, or had to be.
func repeats(d *deliveries.Delivery) bool {
	for i, a := range d.Attempts[:max(0, len(d.Attempts)-1)] {
		if a.Outcome == deliveries.OutcomeSent && d.Attempts[i+1].At.Sub(a.At) < callTimeout {
			return true
		}
	}
	return false
}

// wrong says what is wrong with a notification, "" when nothing is.
func (s *crashSuite) wrong(key string, w wanted, faulted map[string][]string, taken, rejections int) string {
	d, calls := s.seen.records[key], s.providers.calls[key]
	if d == nil {
		return "lost: the store of deliveries has no such notification"
	}
	if w.Channel != inapp.Name && len(calls) > len(d.Attempts) {
		return fmt.Sprintf("the provider was called %d times, and %d attempts are kept", len(calls), len(d.Attempts))
	}
	if wrong := unexplained(d, w.Channel, calls, faulted); wrong != "" {
		return wrong
	}
	state, given := string(d.State)+": "+d.Reason, s.once && s.gaveUp(key)
	want := string(w.end)
	switch {
	case given && w.end != optedOut && w.end != deferred && w.end != split:
		return ""
	case w.end == sent && rejections > 0:
		want = "failed: " + string(channel.KindRejected)
		if w.Channel == webhook.Name { // it is tried again in spite of that
			want = "failed: " + deliveries.ReasonExhausted
		}
	case w.end == sent && (w.Channel == webhook.Name || w.Channel == inapp.Name):
		want = "delivered: "
	case w.end == sent:
		want = "sent: "
	case w.end == bouncesEnd && state == string(noAddress):
		return ""
	}
	if w.Channel == inapp.Name && len(d.Item) == 0 {
		return "the inbox has no item of it"
	}
	if state != want || (w.end != sent || rejections > 0) && taken > 0 {
		return fmt.Sprintf("it is %s after %d calls, of which %d were taken, want %s", state, len(calls), taken, want)
	}
	return ""
}

// unexplained says which attempt has no outcome, or an unknown one for no reason.
func unexplained(d *deliveries.Delivery, on string, calls []answer, faulted map[string][]string) string {
	unclear := 0
	for _, a := range calls {
		if a.unclear(on) {
			unclear++
		}
	}
	for i, a := range d.Attempts {
		switch kind := channel.Kind(a.Outcome); {
		case a.Outcome == "":
			return fmt.Sprintf("attempt %d has no outcome", i+1)
		case a.Outcome == deliveries.OutcomeUnknown && a.Detail == "": // its process died before it wrote the provider's answer down
			if len(faulted[a.Worker])+len(faulted[""]) == 0 {
				return fmt.Sprintf("attempt %d: nothing happened to %s", i+1, a.Worker)
			}
		case kind == channel.KindTimeout && a.TookMS >= callTimeout.Milliseconds()*9/10: // it hung, or this machine did
		case kind == channel.KindTimeout, kind == channel.KindUnknown, kind == channel.KindInterrupted:
			unclear--
			if unclear < 0 {
				return fmt.Sprintf("attempt %d: the provider gave it a clear answer", i+1)
			}
		}
	}
	return ""
}

// judgeStream compares the notifications and the records of events that are stored with the events that were published. Of a
// notification of the inbox that is in no stream the inbox has the item.
func (s *crashSuite) judgeStream() {
	s.Helper()
	stored, unstored := map[string]bool{}, 0
	var info *jetstream.StreamInfo
	s.ask(func(ctx context.Context) error {
		stream, err := s.js.Stream(ctx, contracts.StreamNotifications)
		if err == nil {
			info, err = stream.Info(ctx, jetstream.WithSubjectFilter("notify.send.>"))
		}
		return err
	})
	for subject, n := range info.State.Subjects {
		key, _, _ := keys.OfSubject(subject)
		stored[key] = true
		check.Equal(s, n, 1, subject, "is there, times")
	}
	for key, w := range s.want {
		if !stored[key] {
			d := s.seen.records[key]
			check.That(s, w.Channel == deliveries.Inbox && (d == nil || d.AtOnce), "%s is in no stream", key)
			unstored++
		}
	}
	check.That(s, unstored > 0 && len(stored)+unstored == len(s.want), "%d notifications are stored, and %d items, of %d",
		len(stored), unstored, len(s.want))
	for n := range s.published {
		e := s.event(n)
		var kept *plan.Event
		s.ask(func(ctx context.Context) (err error) {
			kept, err = s.reader.Event(ctx, e.EventID)
			return err
		})
		planned := s.notificationsOf(e)
		maps.DeleteFunc(planned, func(_ string, w wanted) bool { return w.Address != "" })
		check.That(s, kept.State == plan.StateExpanded && kept.Recipients == len(kinds)*s.users && kept.Notifications == len(planned),
			"%s is %+v", e.EventID, kept)
	}
}

// history tells all that is known of a notification.
func (s *crashSuite) history(key string) string {
	d, _ := json.Marshal(s.seen.records[key])
	return fmt.Sprintf("  %s (%s): %s\n    calls: %q\n", key, s.want[key].end, d, s.providers.calls[key])
}
