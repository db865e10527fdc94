package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

func TestMain(m *testing.M) { natstest.Main(m, 2) }

// run runs the demo with faults, quietly.
func run(t *testing.T, cfg Config) (report Report, account string) {
	t.Helper()
	var out bytes.Buffer
	cfg.Logger, cfg.Out = slog.New(slog.DiscardHandler), &out
	report, err := Run(t.Context(), cfg)
	check.Require(t, err == nil, "%v\n%s", err, &out)
	return report, out.String()
}

// hasty asks its provider twice for everything, as a service would whose claims do not hold.
type hasty struct{ provider.Provider }

func (h hasty) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	if _, err := h.Provider.Search(ctx, place); err != nil {
		return nil, err
	}
	return h.Provider.Search(ctx, place)
}

// broken never finds out anything.
type broken struct{ provider.Provider }

func (broken) Search(context.Context, match.Place) ([]provider.Venue, error) {
	return nil, &provider.Error{Kind: provider.KindUnsupported, Provider: contracts.ProviderWolt, Detail: "it is broken"}
}

// queueAgain queues one more job for a place that has been looked up.
func queueAgain(ctx context.Context, p *pipeline.Pipeline) error {
	js, err := jetstream.New(p.Conns[0])
	if err != nil {
		return err
	}
	job := contracts.EnrichJob{
		Provider: contracts.ProviderWolt, PlaceID: "again", RequestID: "r", Claim: "c.1", Name: "Again", RequestedAt: time.Now().UTC(),
	}
	body, err := contracts.Encode(job)
	if err != nil {
		return err
	}
	subject, err := contracts.EnrichJobSubject(job.Provider, job.PlaceID)
	if err != nil {
		return err
	}
	_, err = js.Publish(ctx, subject, body)
	return err
}

// The demo is worth nothing if it cannot fail.
func TestRunNamesWhatIsBroken(t *testing.T) {
	t.Parallel()
	s := check.Must(pipeline.Load())(t)
	n := len(s.Places)
	for _, tc := range []struct {
		name string
		cfg  Config
		want []string
	}{
		{
			"a provider that is asked twice",
			Config{Interpose: func(p provider.Provider) provider.Provider { return hasty{p} }},
			[]string{fmt.Sprintf("the provider is asked once for each place: %d calls for %d places, %d of them repeated", 2*n, n, n)},
		},
		{
			"a job that is queued twice",
			Config{Asked: queueAgain},
			[]string{fmt.Sprintf("each place is one job: %d jobs for %d places", n+1, n)},
		},
		{
			"a provider that never answers anything",
			Config{Interpose: func(p provider.Provider) provider.Provider { return broken{p} }},
			[]string{
				fmt.Sprintf("the provider is asked once for each place: 0 calls for %d places, 0 of them repeated", n),
				fmt.Sprintf("every lookup ends with a decision: 0 of %d", n),
				fmt.Sprintf("nothing ends in the dead letters: %d", n),
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			report, account := run(t, tc.cfg)
			check.Require(t, !report.OK, "the report says that all is well:\n%s", account)
			for _, want := range tc.want {
				check.That(t, strings.Contains(fmt.Sprintf("%q", report.Broken), want) && strings.Contains(account, "✗ "+want),
					"want %q among %q, and in:\n%s", want, report.Broken, account)
			}
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, Config{
		Logger: slog.New(slog.DiscardHandler),
		Asked: func(context.Context, *pipeline.Pipeline) error {
			cancel()
			return nil
		},
	})
	check.ErrorIs(t, err, context.Canceled)
}

func TestRunReportsWhatKeptItFromRunning(t *testing.T) {
	t.Parallel()
	unlucky := errors.New("the moon is full")
	report, err := Run(t.Context(), Config{
		Logger: slog.New(slog.DiscardHandler),
		Asked:  func(context.Context, *pipeline.Pipeline) error { return unlucky },
	})
	check.That(t, errors.Is(err, unlucky) && !report.OK, "got %v, %+v", err, report)
}

// Every promise of the notifier that is broken is named.
func TestJudgeNotifier(t *testing.T) {
	t.Parallel()
	good := NotifierReport{
		Published: 50, Events: 25, DuplicatesDropped: 25, Refused: 1, Notifications: 10, Sent: 9, Suppressed: 1, Messages: 4, Devices: 2, DeviceMessages: 2,
	}
	for want, spoil := range map[string]func(*NotifierReport){
		"": func(*NotifierReport) {},
		"an event that is published twice is one event: 50 published, 26 events":              func(r *NotifierReport) { r.Events = 26 },
		"another event under the same id is refused: 0 refused":                               func(r *NotifierReport) { r.Refused = 0 },
		"every notification reaches its user: 9 of 10 sent or suppressed, 1 lost":             func(r *NotifierReport) { r.Lost, r.Sent = 1, 8 },
		"no notification is sent twice: 1 of 4 messages repeated":                             func(r *NotifierReport) { r.DuplicateSends = 1 },
		"nothing is given up: 0 notifications failed, 1 dead letters":                         func(r *NotifierReport) { r.DeadLetters = 1 },
		"each device of a person is notified once: 2 notifications for 2 devices, 1 messages": func(r *NotifierReport) { r.DeviceMessages = 1 },
	} {
		d := flawless()
		d.report.Notifier = good
		spoil(&d.report.Notifier)
		d.judge()
		check.Equal(t, strings.Join(d.report.Broken, "; "), want, "result")
	}
}

// A machine that is overloaded answers 503, or that it did not record the request, or cuts a connection off. The demo asks again.
func TestUserAsksAgainWhereTheServiceIsBusy(t *testing.T) {
	t.Parallel()
	type answer struct {
		status int
		body   string
	}
	busy := answer{http.StatusServiceUnavailable, `{"detail":"the store does not answer"}`}
	place := `"results":[{"id":"a","placeId":"a","name":"Anna"}]`
	recorded := answer{http.StatusOK, `{"requestId":"r",` + place + `,"pending":1}`}
	skipped := answer{http.StatusOK, `{"requestId":"r",` + place + `,"pending":1,"skipped":"store_down"}`}
	complete := answer{http.StatusOK, "event: complete\ndata: {}\n\n"}
	for _, tc := range []struct {
		name    string
		answers []answer
		want    string // of the error
	}{
		{"known", []answer{recorded, complete}, ""},
		{"busy when asked", []answer{busy, recorded, complete}, ""},
		{"cut off", []answer{{}, recorded, {}, recorded, complete}, ""},
		{"not recorded", []answer{skipped, recorded, complete}, ""},
		{"busy when listened to", []answer{recorded, busy, recorded, complete}, ""},
		{"gone", []answer{recorded, {http.StatusNotFound, ""}}, "HTTP 404"},
		{"busy for ever", slices.Repeat([]answer{busy}, maxAsks), "30 times: unavailable"},
		{"broken", []answer{{http.StatusInternalServerError, "no"}}, "HTTP 500"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				left := slices.Clone(tc.answers)
				client := &http.Client{Transport: roundTrip(func(*http.Request) *http.Response {
					next := left[0]
					left = left[1:]
					if next.status == 0 {
						return nil
					}
					w := httptest.ResponseRecorder{Code: next.status, Body: bytes.NewBufferString(next.body)}
					return w.Result()
				})}
				req := contracts.EnrichRequest{RequestID: "r", Results: []contracts.Restaurant{{PlaceID: "a", Name: "Anna"}}}
				one, other := &api.Client{HTTP: client, URL: "http://one"}, &api.Client{HTTP: client, URL: "http://other"}
				u := &user{asked: one, heard: other, req: req}
				err := u.follow(t.Context())
				got := fmt.Sprint(err)
				check.That(t, (tc.want != "" || err == nil) && strings.Contains(got, tc.want), "got error %q, want %q", got, tc.want)
				check.That(t, len(left) == 0, "%d answers were not asked for", len(left))
			})
		})
	}
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) {
	if answer := f(req); answer != nil {
		return answer, nil
	}
	return nil, io.ErrUnexpectedEOF
}

// flawless returns a demo of two users and three places in which nothing went wrong.
func flawless() *demo {
	found := contracts.ProviderState{Status: contracts.StatusFound, URL: new("https://example.org/a")}
	d := &demo{
		users: []*user{
			{states: map[string]contracts.ProviderState{"a": found, "b": {Status: contracts.StatusNotFound}}},
			{states: map[string]contracts.ProviderState{"a": found, "c": {Status: contracts.StatusPending}}},
		},
		report: Report{
			Enricher: EnricherReport{Places: 4, Distinct: 3, Jobs: 3, ProviderCalls: 3, Found: 1, NotFound: 1, Ambiguous: 1},
			Notifier: NotifierReport{DeviceMessages: 2, Devices: 2, Refused: 1},
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
		{"an open answer", func(d *demo) { d.report.Enricher.PendingLeft = 1 }, "every place is answered: 1 of 4 answers still pending"},
		{
			"two answers", func(d *demo) {
				d.users[1].states["a"] = contracts.ProviderState{Status: contracts.StatusFound, URL: new("https://example.org/other")}
			},
			"all users get the same answers: 1 places with different answers for two users",
		},
		{
			"another status", func(d *demo) { d.users[1].states["a"] = contracts.ProviderState{Status: contracts.StatusNotFound} },
			"all users get the same answers: 1 places with different answers for two users",
		},
		{"a forgotten answer", func(d *demo) { d.report.Enricher.PendingAgain = 2 }, "an answer stays known: 2 places pending in repeated requests"},
		{"an error", func(d *demo) { d.report.Enricher.Ambiguous = 0 }, "every lookup ends with a decision: 2 of 3"},
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
