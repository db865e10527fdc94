package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// bench is a server on which events are planned and expanded by processes that die.
type bench struct {
	expander *deliver.Expander
	js       jetstream.JetStream
	reader   *plan.Reader
	records  *kvrecord.Client
	rules    *rules.Rules
	srv      *natsrun.Server
	stream   jetstream.Stream
}

func newBench(t *testing.T) *bench {
	t.Helper()
	srv := natstest.Server(t)
	js, records := recordtest.Open(t, srv)
	b := &bench{js: js, records: records, srv: srv}
	b.reader = plan.NewReader(b.records)
	var err error
	b.stream, err = js.Stream(t.Context(), contracts.StreamNotifications)
	check.OK(t, err)
	b.expander = deliver.NewExpander(b.records, nil)
	b.rules, err = rules.Parse([]byte(`
version: 1
events:
  X:
    CUSTOMER: {scope: all, channels: [inapp, email]}
    ADMIN: {scope: all, channels: [inapp]}
`), []string{"inapp", "email"})
	check.OK(t, err)
	return b
}

// killed is the panic by which a process dies.
type killed struct{}

// dies returns a function that panics at the n-th call: messages sent until then are under way, and none follows.
func dies(n int) func(string) {
	return func(string) {
		if n--; n == 0 { //nolint:gocritic // counts the calls
			panic(killed{})
		}
	}
}

// survive calls f, which may die, and reports whether it did not.
func survive(f func() error) (alive bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
	}()
	err = f()
	return true, err
}

// crowd is a directory that returns other users each time that it is asked, and remembers its answers.
type crowd struct{ said [][]string }

func (c *crowd) Resolve(_ context.Context, q recipient.Query) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) {
		if q.Type == "ADMIN" {
			c.said = append(c.said, nil)
		}
		round := len(c.said) - 1
		for i := range 7 + round%5 {
			r := contracts.Recipient{RecipientType: q.Type, UserID: fmt.Sprintf("user-%d-%d", i, (i*round)%3)}
			c.said[round] = append(c.said[round], string(r.RecipientType)+"/"+r.UserID)
			if !yield(r, nil) {
				return
			}
		}
	}
}

// plan has a process plan an event, that dies at the n-th point; 0 is none.
func (b *bench) plan(ctx context.Context, e recipient.Event, r recipient.Resolver, death int) (bool, error) {
	p := plan.New(b.records, plan.Config{
		PageBytes: 200, Passed: dies(death), Resolver: r, Rules: func() *rules.Rules { return b.rules },
	})
	return survive(func() error { return check.Err(p.Plan(ctx, e)) })
}

// expand has a process expand the plan of an event.
func (b *bench) expand(ctx context.Context, id string, death int) (bool, error) {
	p, err := b.reader.Get(ctx, id)
	if errors.Is(err, plan.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return true, err
	}
	b.expander.Passing(dies(death))
	return survive(func() error { return check.Err(b.expander.Expand(ctx, p)) })
}

// notifications returns the notifications of an event as they are stored, by subject.
func (b *bench) rows(ctx context.Context, id string) (map[string]string, error) {
	info, err := b.stream.Info(ctx, jetstream.WithSubjectFilter("notify.send.*.*.*."+id))
	if err != nil {
		return nil, err
	}
	rows := map[string]string{}
	for subject := range info.State.Subjects {
		msg, err := b.stream.GetLastMsgForSubject(ctx, subject)
		if err != nil {
			return nil, err
		}
		rows[subject] = string(msg.Data)
	}
	return rows, nil
}

// Whichever process dies, in any order: the plan is one answer of the directory, it never changes once it is there,
// and the notifications are those of the plan, each stored once.
func TestAnyOrderOfCrashesGivesTheRowsOfThePlan(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		ctx := t.Context()
		run++
		e := recipient.Event{EventID: fmt.Sprintf("e%d", run), EventType: "X", AggregateType: "Y"}
		var c crowd
		var first *plan.Plan
		for range rapid.IntRange(0, 8).Draw(r, "steps") {
			death := rapid.IntRange(0, 40).Draw(r, "death")
			var err error
			if rapid.Bool().Draw(r, "expand") {
				_, err = b.expand(ctx, e.EventID, death)
			} else {
				_, err = b.plan(ctx, e, &c, death)
			}
			if err != nil {
				r.Fatal(err)
			}
			if now, err := b.reader.Get(ctx, e.EventID); err == nil {
				if first != nil && first.Attempt != now.Attempt {
					r.Fatalf("the plan changed: %s, then %s", first.Attempt, now.Attempt)
				}
				first = now
			} else if first != nil {
				r.Fatalf("the plan is gone: %v", err)
			}
		}
		if alive, err := b.plan(ctx, e, &c, 0); !alive || err != nil {
			r.Fatal(alive, err)
		}
		if alive, err := b.expand(ctx, e.EventID, 0); !alive || err != nil {
			r.Fatal(alive, err)
		}
		b.judge(ctx, r, e.EventID, &c)
	})
}

func (b *bench) judge(ctx context.Context, t *rapid.T, id string, c *crowd) {
	p, err := b.reader.Get(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	var users []string
	want := map[string]string{}
	var entries []contracts.Recipient
	for n := range p.Parts() {
		part, err := b.reader.Part(ctx, p, n)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, part...)
	}
	for _, entry := range entries {
		users = append(users, string(entry.RecipientType)+"/"+entry.UserID)
		for _, channel := range p.Routes[entry.RecipientType].Channels {
			subject, err := contracts.NotifySendSubject(channel, entry.RecipientType, entry.UserID, id)
			if err != nil {
				t.Fatal(err)
			}
			data, err := contracts.Encode(p.Notification(entry, channel))
			if err != nil {
				t.Fatal(err)
			}
			want[subject] = string(data)
		}
	}
	got, err := b.rows(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-notifications of the plan +notifications that are there\n%s", diff)
	}
	if !slices.ContainsFunc(c.said, func(said []string) bool { return slices.Equal(said, users) }) {
		t.Errorf("no resolution said %v", users)
	}
	if len(users) != p.Recipients || len(want) != p.Notifications {
		t.Errorf("the plan has %d recipients and %d notifications, it says %d and %d", len(users), len(want), p.Recipients, p.Notifications)
	}
	info, err := b.stream.Info(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if info.State.Msgs != info.State.LastSeq {
		t.Errorf("%d messages were stored and %d are there: something was replaced", info.State.LastSeq, info.State.Msgs)
	}
}
