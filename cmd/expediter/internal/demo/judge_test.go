package demo

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// flawless returns a demo of two users and three places in which nothing went wrong.
func flawless() *demo {
	found := contracts.FoundState("https://example.org/a")
	d := &demo{
		users: []*user{
			{states: map[string]contracts.ProviderState{"a": found, "b": contracts.NotFoundState()}},
			{states: map[string]contracts.ProviderState{"a": found, "c": contracts.PendingState()}},
		},
		report: Report{
			Enricher: EnricherReport{Places: 4, Distinct: 3, Jobs: 3, ProviderCalls: 3, Found: 1, NotFound: 1, Ambiguous: 1},
			Notifier: NotifierReport{DeviceLetters: 2, Devices: 2, Refused: 1, SwitchedOff: 1},
		},
	}
	d.cfg.Out = &bytes.Buffer{}
	return d
}

// Each promise is broken in turn; the verdict names it and no other.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		damage func(d *demo)
		want   string
	}{
		{"nothing", func(*demo) {}, ""},
		{"a duplicate job", func(d *demo) { d.report.Enricher.Jobs++ }, "each place is one job: 4 jobs for 3 places"},
		{"a lost job", func(d *demo) { d.report.Enricher.Jobs-- }, "each place is one job: 2 jobs for 3 places"},
		{
			"a call too many", func(d *demo) { d.report.Enricher.ProviderCalls, d.report.Enricher.RepeatedCalls = 4, 1 },
			"the provider is asked once for each place: 4 calls for 3 places, 1 of them repeated",
		},
		{
			"one place twice and another never", func(d *demo) { d.report.Enricher.RepeatedCalls = 1 },
			"the provider is asked once for each place: 3 calls for 3 places, 1 of them repeated",
		},
		{"an open answer", func(d *demo) { d.report.Enricher.PendingLeft = 1 }, "every place is answered: 1 of 4 answers left open"},
		{
			"two answers", func(d *demo) { d.users[1].states["a"] = contracts.FoundState("https://example.org/other") },
			"all users get the same answers: 1 places with different answers for two users",
		},
		{
			"another status", func(d *demo) { d.users[1].states["a"] = contracts.NotFoundState() },
			"all users get the same answers: 1 places with different answers for two users",
		},
		{"a forgotten answer", func(d *demo) { d.report.Enricher.PendingAgain = 2 }, "an answer stays known: 2 places pending when asked for again"},
		{"an error", func(d *demo) { d.report.Enricher.Ambiguous = 0 }, "every look-up comes to a decision: 2 of 3"},
		{"a dead letter", func(d *demo) { d.report.Enricher.DeadLetters = 1 }, "nothing ends in the dead letters: 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := flawless()
			tc.damage(d)
			d.judge()
			var want []string
			if tc.want != "" {
				want = []string{tc.want}
			}
			diff := cmp.Diff(want, d.report.Broken)
			check.That(t, diff == "" && d.report.OK == (want == nil), "ok %v, %s", d.report.OK, diff)
			account := fmt.Sprint(d.cfg.Out)
			check.That(t, want == nil || strings.Contains(account, "✗ "+tc.want+"\n"), "not in the account:\n%s", account)
		})
	}
}
