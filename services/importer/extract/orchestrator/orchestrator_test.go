package orchestrator_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/remotetest"
	"github.com/expediter-io/expediter/services/importer/extract/orchestrator"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheDocumentedExchange(t *testing.T) {
	t.Parallel()
	f, e := setup(t, remotetest.Says(documented))
	got := check.Must(e.Extract(t.Context(), cookies()))(t)
	want := recipe.Recipe{
		Title: "Perfect Chocolate Chip Cookies", Description: "A classic recipe", Language: "en",
		Ingredients: []recipe.Ingredient{{Qty: "2.5", Unit: "cup", Item: "flour"}},
		Steps:       []recipe.Step{{Index: 1, Text: "Preheat oven", Timestamp: new(120.0)}},
		Source:      recipe.Source{Type: "youtube", Ref: "https://www.youtube.com/watch?v=example", Extractor: "orchestrator"},
	}
	check.Equal(t, got, want)
	requests, bodies := f.Asked()
	check.Require(t, len(requests) == 1, "%d calls", len(requests))
	wantBody := `{"source_type":"youtube","source_ref":"https://www.youtube.com/watch?v=example",` +
		`"transcript":"[0.00s] Hello, we need 2.5 cups of flour\n[5.50s] and two eggs\n[120.00s] preheat the oven to 350 degrees\n",` +
		`"options":{"include_timestamps":true}}`
	check.Equal(t, bodies[0], wantBody)
	r := requests[0]
	check.That(t, r.Method == http.MethodPost && r.URL.Path == "/extract" && r.Header.Get("X-Service-Token") == token &&
		r.Header.Get("Content-Type") == "application/json" && r.Header.Get("User-Agent") == "expediter/1",
		"asked by %s %s %v", r.Method, r.URL, r.Header)
}

// TestIdempotencyKey is the same for the same source, and another for another.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	f, e := setup(t, remotetest.Says(documented))
	other := cookies()
	other.Segments[1].Text = "and three eggs"
	for _, in := range []extract.Input{cookies(), cookies(), other} {
		check.OK(t, check.Err(e.Extract(t.Context(), in)))
	}
	requests, _ := f.Asked()
	var keys []string
	for _, r := range requests {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
	}
	check.That(t, len(keys[0]) == 64 && keys[0] == keys[1] && keys[0] != keys[2], "keys are %q", keys)
}

// TestPagesHaveNoTranscript sends the text of a page instead, and asks for no timestamps.
func TestPagesHaveNoTranscript(t *testing.T) {
	t.Parallel()
	f, e := setup(t, remotetest.Says(strings.Replace(documented, "flour", "eggs", 1)))
	in := cookies()
	in.Segments = nil
	r := check.Must(e.Extract(t.Context(), in))(t)
	_, bodies := f.Asked()
	check.That(t, strings.Contains(bodies[0], `"transcript":"A classic recipe\n2 eggs","options":{"include_timestamps":false}`),
		"asked %s", bodies[0])
	check.Equal(t, r.Steps[0].Unverified, []string{"timestamp_sec", "text"})
}

func TestToleratesWhatDoesNotMatter(t *testing.T) {
	t.Parallel()
	_, e := setup(t, remotetest.Says(`{"title":"Cookies","description":null,"servings":24,"model":"x","usage":{"tokens":7},
		"ingredients":[{"qty":2.50,"unit":null,"item":"flour","aisle":"baking"},{"qty":null,"item":"eggs"}],
		"steps":[{"index":"first","text":"Preheat oven","timestamp_sec":null,"tips":[]}],
		"source":{"source_ref":"https://evil.example"},"warnings":[{"code":"x","text":"y"}],"times":"soon"}`))
	got := check.Must(e.Extract(t.Context(), cookies()))(t)
	check.That(t,
		got.Ingredients[0].Qty == "2.50" && got.Ingredients[1].Item == "eggs" && got.Servings == "24" && got.Steps[0].Timestamp == nil,
		"%+v", got)
	check.That(t, got.Source.Ref == cookies().Source.Ref, "the service chose the source: %+v", got.Source)
	for _, w := range got.Warnings {
		check.That(t, w.Code != "x", "the service chose the warnings")
	}
}

// TestTimesAreReadOutOfTheSteps because the answer has no place for them, and are marked like any other claim.
func TestTimesAreReadOutOfTheSteps(t *testing.T) {
	t.Parallel()
	_, e := setup(t, remotetest.Says(`{"title":"Cookies","ingredients":[{"item":"flour"}],
		"steps":[{"text":"Preheat the oven to 350 degrees"},{"text":"Bake for 90 minutes"}]}`))
	got := check.Must(e.Extract(t.Context(), cookies()))(t)
	s := got.Steps[0]
	check.That(t, len(s.Temperatures) == 1 && s.Temperatures[0].Degrees == 350 && len(s.Unverified) == 0, "%+v", s)
	s = got.Steps[1]
	check.That(t, len(s.Times) == 1 && s.Times[0].MaxSec == 5400 && slices.Contains(s.Unverified, "times"), "%+v", s)
}

// TestLongTranscriptsAreCutAndSaySo cuts between two segments.
func TestLongTranscriptsAreCutAndSaySo(t *testing.T) {
	t.Parallel()
	f, e := setup(t, remotetest.Says(documented))
	in := cookies()
	for range 40_000 {
		in.Segments = append(in.Segments, caption.Segment{Start: in.Duration, Text: "and stir it again"})
	}
	r := check.Must(e.Extract(t.Context(), in))(t)
	_, bodies := f.Asked()
	check.That(t, len(bodies[0]) <= 1<<20+500 && len(bodies[0]) >= 800_000, "%d bytes were sent", len(bodies[0]))
	check.That(t, len(r.Warnings) != 0 && r.Warnings[0].Code == extract.WarnSourceCut, "warnings are %v", r.Warnings)
}

func status(code int, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		// A service that repeats the request, secrets included.
		_, _ = w.Write([]byte(`{"error":"bad call with ` + r.Header.Get("X-Service-Token") + `"}`))
	}
}

// TestErrors names for each bad answer whether it is worth repeating, when, and the importer's message.
func TestErrors(t *testing.T) {
	t.Parallel()
	const failed, invalid = failure.ExtractionFailed, failure.InvalidRecipe
	for _, c := range []struct {
		name      string
		answer    http.HandlerFunc
		code      contracts.ImportCode
		retryable bool
		after     time.Duration
		message   string
	}{
		{"400", status(400), failed, false, 0, "AI extraction failed: it does not take such a call (HTTP 400)"},
		{"401", status(401), failed, true, 0, "AI extraction failed: it refuses the token (HTTP 401)"},
		{"408", status(408), failed, true, 0, "AI extraction failed: it ran out of time (HTTP 408)"},
		{"409", status(409), failed, true, 0, "AI extraction failed: the same call is still under way (HTTP 409)"},
		{"413", status(413), failed, false, 0, "AI extraction failed: the source is too long for it (HTTP 413)"},
		{"429", status(429), failed, true, 0, "AI extraction failed: too many calls (HTTP 429)"},
		{"429 with milliseconds", status(429, "Retry-After-Ms", "1500", "Retry-After", "2"), failed, true, 1500 * time.Millisecond, "AI extraction failed: too many calls (HTTP 429)"},
		{"429 for a year", status(429, "Retry-After", "31536000"), failed, true, time.Hour, "AI extraction failed: too many calls (HTTP 429)"},
		{"400 with seconds", status(400, "Retry-After", "17"), failed, false, 0, "AI extraction failed: it does not take such a call (HTTP 400)"},
		{"500", status(500), failed, true, 0, "AI extraction failed: it is out of order (HTTP 500)"},
		{"504", status(504), failed, true, 0, "AI extraction failed: it ran out of time (HTTP 504)"},
		{"redirect", status(307, "Location", "http://127.0.0.1:1/"), failed, false, 0, "AI extraction failed: it redirects, which is not followed (HTTP 307)"},
		{"202", status(202), failed, true, 0, "AI extraction failed: only 200 carries an answer (HTTP 202)"},
		{"empty", remotetest.Says(""), failed, true, 0, "AI extraction failed: the answer is not the JSON of a recipe"},
		{"a page", remotetest.Says("<html>gateway"), failed, true, 0, "AI extraction failed: the answer is not the JSON of a recipe"},
		{
			"nothing of it is in the source", remotetest.Says(`{"title":"Paella","ingredients":[{"item":"saffron"},{"item":"squid"}],"steps":[{"text":"Preheat the oven"}]}`),
			failed, false, 0, "AI extraction failed: no recipe was found in the source: nothing of what the extractor returned is in it",
		},
		{"null", remotetest.Says("null"), invalid, false, 0, "Invalid recipe data from AI"},
		{"no title", remotetest.Says(`{"ingredients":[{"item":"flour"}],"steps":[{"text":"Stir"}]}`), invalid, false, 0, "Invalid recipe data from AI"},
		{"no steps", remotetest.Says(`{"title":"x","ingredients":[{"item":"flour"}],"steps":[]}`), invalid, false, 0, "Invalid recipe data from AI"},
		{"too long", remotetest.Says(`{"title":"` + strings.Repeat("x", 2<<20) + `"}`), failed, false, 0, "AI extraction failed: the answer is longer than 1048576 bytes"},
		{"endless", func(w http.ResponseWriter, _ *http.Request) {
			for block := []byte(strings.Repeat(" ", 64<<10)); ; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, failed, false, 0, "AI extraction failed: the answer is longer than 1048576 bytes"},
		{"broken off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"title":`))
		}, failed, true, 0, "AI extraction failed: the connection failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, e := setup(t, c.answer)
			_, err := e.Extract(t.Context(), cookies())
			want := &extract.Error{Code: c.code, Retryable: c.retryable, RetryAfter: c.after, Message: c.message}
			remotetest.Fails(t, err, want, token, "cups of flour")
		})
	}
}

func TestConforms(t *testing.T) {
	t.Parallel()
	remotetest.Conform(t, func(ctx context.Context, t *testing.T, url string, timeout time.Duration) error {
		t.Helper()
		e, err := orchestrator.New(remote.Config{BaseURL: url, Timeout: timeout, Token: token})
		check.OK(t, err)
		_, err = e.Extract(ctx, cookies())
		return err
	}, token, "cups of flour")
}

// token is a secret that must turn up in one header and nowhere else.
const token = "s3cr3t-service-token"

// setup starts a service that answers with answer, and an extractor that asks it, with checks.
func setup(t *testing.T, answer http.HandlerFunc) (*remotetest.Server, extract.Extractor) {
	t.Helper()
	server := remotetest.Serve(t, answer)
	return server, extract.Checked(check.Must(orchestrator.New(remote.Config{BaseURL: server.URL + "/", Token: token}))(t))
}

// cookies is the video of the document.
func cookies() extract.Input {
	return extract.Input{
		Title: "Perfect Chocolate Chip Cookies", Description: "A classic recipe\n2 eggs", Language: "en", Duration: 5 * time.Minute,
		Chapters: []extract.Chapter{{Start: 0, Title: "Intro"}, {Start: 2 * time.Minute, Title: "Baking"}},
		Segments: []caption.Segment{
			{Start: 0, Dur: 5500 * time.Millisecond, Text: "Hello, we need 2.5 cups of flour"},
			{Start: 5500 * time.Millisecond, Dur: 4500 * time.Millisecond, Text: "and two eggs"},
			{Start: 2 * time.Minute, Dur: 10 * time.Second, Text: "preheat the oven to 350 degrees"},
		},
		Source: recipe.Source{Type: "youtube", Ref: "https://www.youtube.com/watch?v=example"},
	}
}

// documented is the answer of the document.
const documented = `{
  "title": "Perfect Chocolate Chip Cookies",
  "description": "A classic recipe",
  "ingredients": [{"qty": "2.5", "unit": "cup", "item": "flour"}],
  "steps": [{"index": 1, "text": "Preheat oven", "timestamp_sec": 120}]
}`
