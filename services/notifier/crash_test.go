package notifier

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/fanout"
	"github.com/expediter-io/expediter/services/notifier/internal/ledger"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

// A real process is killed at each boundary, every event is published again, and another process goes on. Nobody is
// forgotten. Nobody is told twice, but for at most one message, whose call the killed process had made and not written
// down; it has the same id. A channel that is set to at-most-once tells nobody twice.
func TestNobodyIsForgottenAndNobodyIsToldTwice(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		point string
		after int
		once  bool
	}{
		{plan.PointSeen, 2, false},
		{plan.PointRecord, 2, false},
		{plan.PointPlanned, 2, false},
		{fanout.PointRow, 5, false},
		{fanout.PointRows, 2, false},
		{fanout.PointExpanded, 2, false},
		{deliver.PointClaimed, 9, false},
		{deliver.PointSent, 9, false},
		{deliver.PointRecorded, 9, false},
		{deliver.PointClaimed, 9, true},
		{deliver.PointSent, 9, true},
	} {
		t.Run(fmt.Sprintf("%s, once %t", test.point, test.once), func(t *testing.T) {
			t.Parallel()
			const events, people = 4, 6
			srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
			p := newPlace(t, srv)
			p.directory(users(contracts.RecipientRestaurantUser, people)...)
			if _, err := p.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FAR", Subjects: []string{"far.>"}}); err != nil {
				t.Fatal(err)
			}
			rules := writeRules(t, testRules)
			publish := func() {
				for i := range events {
					p.publish(event(fmt.Sprint("evt-", i), "RESERVATION_REQUESTED", func(e *contracts.Event) { e.RecipientType = "RESTAURANT_USER" }))
				}
			}
			publish()
			kill(t, duty{After: test.after, Once: test.once, Point: test.point, Rules: rules, URL: srv.URL()})
			publish()
			cfg, err := crashConfig(p.nc, rules, test.once)
			if err != nil {
				t.Fatal(err)
			}
			n, err := Start(t.Context(), p.nc, cfg)
			if err != nil {
				t.Fatal(err)
			}
			all := p.settled(2 * events * people)
			if err := n.Stop(); err != nil {
				t.Error(err)
			}
			if rows := p.rows(); len(rows) != 2*events*people {
				t.Errorf("%d rows, want %d", len(rows), 2*events*people)
			}
			unknown := 0
			for key, d := range all {
				switch {
				case d.State == ledger.Failed && d.Reason == ledger.ReasonUnknownOutcome && test.once:
					unknown++
				case d.State != ledger.Delivered && d.State != ledger.Sent:
					t.Errorf("%s is %+v", key, d)
				}
			}
			messages, calls := p.far()
			twice := calls - messages
			if messages < events*people-unknown || unknown+twice > 1 || test.once && twice > 0 {
				t.Errorf("the far side got %d messages in %d calls, and %d are given up: want %d", messages, calls, unknown, events*people)
			}
			for i := range people {
				items, err := n.Inbox.Counts(t.Context(), contracts.RecipientRestaurantUser, fmt.Sprint("u", i))
				if err != nil || items.Unread != events {
					t.Errorf("inbox of u%d: %+v, %v", i, items, err)
				}
			}
		})
	}
}

// kill runs a child until it has killed itself.
func kill(t *testing.T, d duty) {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = &said
	ended, ok := errors.AsType[*exec.ExitError](cmd.Run())
	if !ok {
		t.Fatalf("the child ended by itself: %s", said.String())
	}
	if status, ok := ended.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended with %v, not by its own hand: %s", ended, said.String())
	}
}

// far is how many messages the far side got, and how many calls.
func (p *place) far() (messages, calls int) {
	p.Helper()
	stream, err := p.js.Stream(p.Context(), "FAR")
	if err != nil {
		p.Fatal(err)
	}
	info, err := stream.Info(p.Context(), jetstream.WithSubjectFilter("far.>"))
	if err != nil {
		p.Fatal(err)
	}
	for _, n := range info.State.Subjects {
		calls += int(n)
	}
	return len(info.State.Subjects), calls
}
