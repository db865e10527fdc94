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

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// hasty asks its provider twice for everything, as a service would whose claims do not hold.
type hasty struct{ provider.Provider }

func (h hasty) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	if _, err := h.Provider.Search(ctx, place); err != nil {
		return nil, err
	}
	return h.Provider.Search(ctx, place)
}

// The demo is worth nothing if it cannot fail. The verdicts are those of TestJudge.
func TestRunNamesWhatIsBroken(t *testing.T) {
	t.Parallel()
	n := len(check.Must(pipeline.Load())(t).Places)
	var out bytes.Buffer
	report, err := Run(t.Context(), Config{
		Interpose: func(p provider.Provider) provider.Provider { return hasty{p} }, Logger: slog.New(slog.DiscardHandler), Out: &out,
	})
	check.Require(t, err == nil && !report.OK, "%v, %+v:\n%s", err, report, &out)
	want := fmt.Sprintf("the provider is asked once for each place: %d calls for %d places, %d of them repeated", 2*n, n, n)
	check.Equal(t, report.Broken, []string{want})
	check.Contains(t, out.String(), "✗ "+want)
}

func TestRunReportsWhatKeptItFromRunning(t *testing.T) {
	t.Parallel()
	run := func(ctx context.Context, asked func() error) error {
		report, err := Run(ctx, Config{
			Asked: func(context.Context, *pipeline.Pipeline) error { return asked() }, Logger: slog.New(slog.DiscardHandler),
		})
		check.Equal(t, report.OK, false)
		return err
	}
	t.Run("an error", func(t *testing.T) {
		t.Parallel()
		unlucky := errors.New("the moon is full")
		check.ErrorIs(t, run(t.Context(), func() error { return unlucky }), unlucky)
	})
	t.Run("an interrupt", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		check.ErrorIs(t, run(ctx, func() error { cancel(); return nil }), context.Canceled)
	})
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
			Notifier: NotifierReport{
				Published: 50, Events: 25, DuplicatesDropped: 25, Refused: 1, Notifications: 10, Sent: 9, Suppressed: 1, Messages: 4, Devices: 2,
				DeviceMessages: 2,
			},
		},
	}
	d.cfg.Out = &bytes.Buffer{}
	return d
}

// Each promise is broken in turn; the verdict names it and no other.
func TestJudge(t *testing.T) {
	t.Parallel()
	answer := func(state contracts.ProviderState) func(*demo) {
		return func(d *demo) { d.users[1].states["a"] = state }
	}
	other := contracts.ProviderState{Status: contracts.StatusFound, URL: new("https://example.org/other")}
	enricher := func(change func(*EnricherReport)) func(*demo) { return func(d *demo) { change(&d.report.Enricher) } }
	notifier := func(change func(*NotifierReport)) func(*demo) { return func(d *demo) { change(&d.report.Notifier) } }
	const differ = "all users get the same answers: 1 places with different answers for two users"
	for _, tc := range []struct {
		want   string
		damage func(d *demo)
	}{
		{"", func(*demo) {}},
		{"each place is one job: 4 jobs for 3 places", enricher(func(r *EnricherReport) { r.Jobs++ })},
		{"each place is one job: 2 jobs for 3 places", enricher(func(r *EnricherReport) { r.Jobs-- })},
		{"the provider is asked once for each place: 4 calls for 3 places, 1 of them repeated", enricher(func(r *EnricherReport) {
			r.ProviderCalls, r.RepeatedCalls = 4, 1
		})},
		{"the provider is asked once for each place: 3 calls for 3 places, 1 of them repeated", enricher(func(r *EnricherReport) {
			r.RepeatedCalls = 1 // and another place never
		})},
		{"every place is answered: 1 of 4 answers still pending", enricher(func(r *EnricherReport) { r.PendingLeft = 1 })},
		{differ, answer(other)},
		{differ, answer(contracts.ProviderState{Status: contracts.StatusNotFound})},
		{"an answer stays known: 2 places pending in repeated requests", enricher(func(r *EnricherReport) { r.PendingAgain = 2 })},
		{"every lookup ends with a decision: 2 of 3", enricher(func(r *EnricherReport) { r.Ambiguous = 0 })},
		{"nothing ends in the dead letters: 1", enricher(func(r *EnricherReport) { r.DeadLetters = 1 })},
		{"an event that is published twice is one event: 50 published, 26 events", notifier(func(r *NotifierReport) { r.Events = 26 })},
		{"another event under the same id is refused: 0 refused", notifier(func(r *NotifierReport) { r.Refused = 0 })},
		{"every notification reaches its user: 9 of 10 sent or suppressed, 1 lost", notifier(func(r *NotifierReport) { r.Lost, r.Sent = 1, 8 })},
		{"no notification is sent twice: 1 of 4 messages repeated", notifier(func(r *NotifierReport) { r.DuplicateSends = 1 })},
		{"nothing is given up: 0 notifications failed, 1 dead letters", notifier(func(r *NotifierReport) { r.DeadLetters = 1 })},
		{"each device of a person is notified once: 2 notifications for 2 devices, 1 messages", notifier(func(r *NotifierReport) {
			r.DeviceMessages = 1
		})},
	} {
		d := flawless()
		tc.damage(d)
		d.judge()
		check.Equal(t, strings.Join(d.report.Broken, "; "), tc.want)
		check.Equal(t, d.report.OK, tc.want == "", tc.want)
		check.That(t, tc.want == "" || strings.Contains(fmt.Sprint(d.cfg.Out), "✗ "+tc.want+"\n"), "not in the account:\n%s", d.cfg.Out)
	}
}
