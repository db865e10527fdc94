package importer_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/servicetest"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/internal/api"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

const captions = `WEBVTT

00:01.000 --> 00:05.000
Today we make pancakes.

00:05.000 --> 00:11.000
Mix 2 cups of flour with 1 teaspoon of salt.

00:11.000 --> 00:18.000
Add 3 eggs and whisk until smooth.

00:18.000 --> 00:25.000
Pour the batter into a hot pan and fry for 2 minutes.
`

// videos is a site with caption files.
type videos struct {
	*httptest.Server

	requests atomic.Int64
}

func newVideos(t *testing.T) *videos {
	t.Helper()
	v := &videos{}
	v.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.requests.Add(1)
		if strings.HasSuffix(r.URL.Path, "/gone.vtt") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/vtt")
		_, _ = w.Write([]byte(captions))
	}))
	t.Cleanup(v.Close)
	return v
}

func start(t *testing.T, srv *natsrun.Server, mutate ...func(*importer.Config)) (*importer.Importer, *nats.Conn) {
	t.Helper()
	nc := check.Must(srv.Connect())(t)
	t.Cleanup(nc.Close)
	return startOver(t, nc, mutate...), nc
}

// startHere is start on a separate server.
func startHere(t *testing.T, mutate ...func(*importer.Config)) (*importer.Importer, *nats.Conn) {
	t.Helper()
	return start(t, natstest.Server(t), mutate...)
}

// startOver starts an importer over a connection.
func startOver(t *testing.T, nc *nats.Conn, mutate ...func(*importer.Config)) *importer.Importer {
	t.Helper()
	cfg := importer.Config{
		BaseConfig:    service.BaseConfig{CreateAssets: true, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), Version: "1.2.3"},
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, TempDir: t.TempDir(),
	}
	for _, m := range mutate {
		m(&cfg)
	}
	i := check.Must(importer.Start(t.Context(), nc, cfg))(t)
	t.Cleanup(func() {
		check.ErrorIs(t, i.Stop(), nil)
		client.CloseIdleConnections()
	})
	return i
}

// client makes the requests of the tests. Their contexts bound them.
var client = &http.Client{Transport: &http.Transport{}}

// described returns the client with a transport that holds the answers against the description of the API.
func described(t *testing.T) *http.Client {
	t.Helper()
	return &http.Client{Transport: servicetest.Described(t, api.OpenAPI).Transport(t, client.Transport)}
}

// reply is an answer without its body.
type reply struct {
	StatusCode int
	Header     http.Header
}

// call makes a request and reads its answer.
func call(t *testing.T, method, url, body string, header ...string) (reply, string) {
	t.Helper()
	req := check.Must(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	for n := 0; n+1 < len(header); n += 2 {
		req.Header.Set(header[n], header[n+1])
	}
	resp := check.Must(described(t).Do(req))(t)
	defer resp.Body.Close()
	data := check.Must(io.ReadAll(resp.Body))(t)
	return reply{resp.StatusCode, resp.Header}, string(data)
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	err := json.Unmarshal([]byte(text), &v)
	check.Require(t, err == nil, "%v in %s", err, text)
	return v
}

// TestFromACaptionFileToARecipe goes the whole way over HTTP: submit, follow, get, and the recipe in every form.
func TestFromACaptionFileToARecipe(t *testing.T) {
	t.Parallel()
	site := newVideos(t)
	i, _ := startHere(t)
	body := fmt.Sprintf(`{"owner_id":"ada","source_type":"captions","url":%q}`, site.URL+"/pancakes.vtt")

	resp, text := call(t, http.MethodPost, i.URL()+"/v1/imports", body, "Idempotency-Key", `"k1"`)
	check.Require(t, resp.StatusCode == http.StatusAccepted, "%d: %s", resp.StatusCode, text)
	job := decode[importer.Job](t, text)
	check.That(t, resp.Header.Get("Location") == "/v1/imports/"+job.JobID && job.Status == contracts.ImportQueued, "%v: %+v", resp.Header, job)
	resp, text = call(t, http.MethodPost, i.URL()+"/v1/imports", body, "Idempotency-Key", "k1")
	check.That(t, resp.StatusCode == http.StatusOK && decode[importer.Job](t, text).JobID == job.JobID, "again: %d: %s", resp.StatusCode, text)

	events := follow(t, i.URL()+"/v1/imports/"+job.JobID+"/events")
	last := events[len(events)-1]
	check.Require(t, last.job.Status == contracts.ImportReady && last.job.RecipeID == store.RecipeID(job.JobID), "last event: %+v", last.job)
	resp, _ = call(t, http.MethodGet, i.URL()+"/v1/imports/"+job.JobID+"/events", "", "Last-Event-ID", last.id)
	check.That(t, resp.StatusCode == http.StatusNoContent, "a follower that knows the end gets %d", resp.StatusCode)

	address := i.URL() + "/v1/recipes/" + last.job.RecipeID
	_, text = call(t, http.MethodGet, address, "")
	stored := decode[store.Stored](t, text)
	check.Require(t, len(stored.Recipe.Ingredients) >= 3 && len(stored.Recipe.Steps) >= 2, "%s", text)
	check.That(t, stored.Recipe.Steps[0].Timestamp != nil && stored.OwnerID == "ada", "%s", text)
	_, text = call(t, http.MethodGet, address+"?format=schema.org", "")
	check.That(t, strings.Contains(text, `"@type": "Recipe"`), "%s", text)
	resp, text = call(t, http.MethodGet, address+"?format=cook", "")
	check.That(t, resp.StatusCode == http.StatusBadRequest && strings.Contains(text, "json or schema.org"), "%s", text)
	_, text = call(t, http.MethodGet, i.URL()+"/v1/recipes?owner=ada&q=flour", "")
	list := decode[struct{ Recipes []store.Summary }](t, text)
	check.That(t, len(list.Recipes) == 1 && list.Recipes[0].ID == last.job.RecipeID, "%s", text)
	check.Equal(t, site.requests.Load(), 1, "the file was fetched, times")
}

type event struct {
	id  string
	job importer.Job
}

// follow reads the events of a job to their end.
func follow(t *testing.T, url string) []event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req := check.Must(http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody))(t)
	resp := check.Must(described(t).Do(req))(t)
	defer resp.Body.Close()
	var events []event
	var id string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
		case "id":
			id = value
		case "data":
			events = append(events, event{id, decode[importer.Job](t, value)})
		}
	}
	check.Require(t, lines.Err() == nil && len(events) != 0, "%d events: %v", len(events), lines.Err())
	return events
}

// A WebSocket has the changes of a job to its end, and resumes after the last one that a client has seen.
func TestAJobIsFollowedOverWebSocket(t *testing.T) {
	t.Parallel()
	fetching := make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-fetching
		_, _ = w.Write([]byte(captions))
	}))
	t.Cleanup(site.Close)
	srv := natstest.Server(t)
	i, _ := start(t, srv)
	description := servicetest.Described(t, api.OpenAPI)
	open := func(i *importer.Importer, id, last string) (next func() (id string, job importer.Job, end websocket.StatusCode)) {
		conn, _, err := websocket.Dial(t.Context(), i.URL()+"/v1/imports/"+id+"/ws?last_event_id="+last, &websocket.DialOptions{HTTPClient: client})
		check.Require(t, err == nil, "%v", err)
		t.Cleanup(func() { conn.CloseNow() })
		return func() (string, importer.Job, websocket.StatusCode) {
			_, data, err := conn.Read(t.Context())
			if err != nil {
				return "", importer.Job{}, websocket.CloseStatus(err)
			}
			description.Frame(t, data)
			frame := decode[struct {
				ID  string
				Job importer.Job
			}](t, string(data))
			return frame.ID, frame.Job, 0
		}
	}
	resp, text := call(t, http.MethodPost, i.URL()+"/v1/imports", fmt.Sprintf(`{"owner_id":"ada","url":%q}`, site.URL+"/soup.vtt"))
	check.Require(t, resp.StatusCode == http.StatusAccepted, "%d: %s", resp.StatusCode, text)
	job := decode[importer.Job](t, text)
	next := open(i, job.JobID, "")
	for job.Step != "transcript" {
		_, job, _ = next()
	}
	close(fetching)
	var last string
	end := websocket.StatusCode(0)
	for end == 0 {
		id, now, code := next()
		if end = code; end == 0 {
			last, job = id, now
		}
	}
	check.That(t, job.Status == contracts.ImportReady && job.RecipeID != "" && end == websocket.StatusNormalClosure, "%+v, %v", job, end)
	_, _, end = open(i, job.JobID, last)()
	check.Equal(t, end, websocket.StatusNormalClosure, "a client that knows the end gets")
	_, resp2, err := websocket.Dial(t.Context(), i.URL()+"/v1/imports/none/ws", &websocket.DialOptions{HTTPClient: client})
	check.Require(t, err != nil && resp2 != nil && resp2.StatusCode == http.StatusNotFound, "an unknown job: %v", err)
}

func TestBadRequestsAreRefusedByName(t *testing.T) {
	t.Parallel()
	i, _ := startHere(t)
	for name, c := range map[string]struct {
		method, path, body string
		status             int
		text               string
	}{
		"no JSON":             {"POST", "/v1/imports", `{`, 400, "JSON"},
		"nothing":             {"POST", "/v1/imports", `{}`, 400, "/owner_id"},
		"path for an id":      {"POST", "/v1/imports", `{"job_id":"../x","owner_id":"a","url":"https://a.test/x.vtt"}`, 400, "/job_id"},
		"a file":              {"POST", "/v1/imports", `{"owner_id":"a","url":"file:///etc/passwd"}`, 400, "/url"},
		"an option":           {"POST", "/v1/imports", `{"owner_id":"a","url":"--exec=id"}`, 400, "/url"},
		"no video":            {"POST", "/v1/imports", `{"owner_id":"a","source_type":"youtube","url":"https://a.test/x"}`, 422, `"code":`},
		"too large":           {"POST", "/v1/imports", `{"owner_id":"` + strings.Repeat("a", 1<<20) + `"}`, 413, "16 KiB"},
		"unknown job":         {"GET", "/v1/imports/none", "", 404, "no such job"},
		"events of none":      {"GET", "/v1/imports/none/events", "", 404, "no such job"},
		"cancel of none":      {"POST", "/v1/imports/none/cancel", "", 404, "no such job"},
		"unknown recipe":      {"GET", "/v1/recipes/none", "", 404, "no such recipe"},
		"recipes of nobody":   {"GET", "/v1/recipes?limit=0", "", 400, "?owner"},
		"unknown route":       {"GET", "/v2", "", 404, "no such resource"},
		"method not allowed":  {"PUT", "/v1/imports", "", 405, "POST"},
		"wildcard for a job":  {"GET", "/v1/imports/*", "", 404, "no such job"},
		"wildcard for a dish": {"GET", "/v1/recipes/%3E", "", 404, "no such recipe"},
	} {
		resp, text := call(t, c.method, i.URL()+c.path, c.body)
		check.That(t,
			resp.StatusCode == c.status && strings.Contains(text, c.text) && resp.Header.Get("Content-Type") == "application/problem+json",
			"%s: %d: %s", name, resp.StatusCode, text)
	}
}

func TestOperatorsAreAnswered(t *testing.T) {
	t.Parallel()
	site := newVideos(t)
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "importer"}))(t)
	t.Cleanup(func() { check.ErrorIs(t, exports.Stop(context.WithoutCancel(t.Context())), nil) })
	i, _ := startHere(t, func(c *importer.Config) { c.Exports = exports })
	for path, want := range map[string]string{"/health": `{"status":"healthy"}`, "/livez": "ok", "/version": "1.2.3"} {
		resp, text := call(t, http.MethodGet, i.URL()+path, "")
		check.That(t, resp.StatusCode == http.StatusOK && strings.TrimSpace(text) == want, "%s: %d %s", path, resp.StatusCode, text)
	}
	for _, priority := range []contracts.ImportPriority{"", contracts.PriorityLow, contracts.PriorityNormal, contracts.PriorityHigh} {
		for name, want := range map[string]contracts.ImportState{"ok": contracts.ImportReady, "gone": contracts.ImportFailed} {
			last := imported(t, i, contracts.ImportJob{
				OwnerID: "ada", Priority: priority, SourceType: source.TypeCaptions, URL: site.URL + "/" + name + ".vtt",
			})
			check.That(t, last.Status == want, "%s of priority %q: %+v", name, priority, last)
		}
	}
	resp, text := call(t, http.MethodGet, i.URL()+"/readyz?verbose", "")
	check.That(t, resp.StatusCode == http.StatusOK && strings.Contains(text, "[+]worker ok"), "the worker is not ready: %s", text)
	_, text = call(t, http.MethodGet, i.URL()+"/metrics", "")
	for by := time.Now().Add(time.Minute); !strings.Contains(text, `outcome="READY"`) && time.Now().Before(by); { // counted after the state
		_, text = call(t, http.MethodGet, i.URL()+"/metrics", "")
	}
	check.Contains(t, text, `importer_jobs_total{code="",`, `outcome="READY"`, `outcome="FAILED"`, `importer_step_duration_seconds_bucket{`,
		`step="transcript"`, `step="extract"`, `step="create"`, `importer_job_duration_seconds_count{`,
		`remote_call_duration_seconds_count{outcome="ok",remote="extractor"}`, `remote_held{remote="sites"} 0`)
}

// The same over NATS, for which the nats command line is enough.
func TestMicroService(t *testing.T) {
	t.Parallel()
	site := newVideos(t)
	i, nc := startHere(t, func(c *importer.Config) { c.Listen = "-" })
	ask := func(subject, body string) (*nats.Msg, importer.Job) {
		t.Helper()
		reply := check.Must(nc.RequestWithContext(t.Context(), subject, []byte(body)))(t)
		var job importer.Job
		if reply.Header.Get("Nats-Service-Error-Code") == "" {
			job = decode[importer.Job](t, string(reply.Data))
		}
		return reply, job
	}
	submit := fmt.Sprintf(`{"job_id":"j1","owner_id":"ada","source_type":"captions","url":%q}`, site.URL+"/gone.vtt")
	reply, job := ask("importer.v1.submit", submit)
	check.Require(t, job.Status == contracts.ImportQueued, "%v %s", reply.Header, reply.Data)
	followed(t, i, "j1")
	_, job = ask("importer.v1.get", `{"job_id":"j1"}`)
	check.That(t, job.Status == contracts.ImportFailed, "%+v", job)
	_, job = ask("importer.v1.retry", `{"job_id":"j1"}`)
	check.That(t, job.Run == 2, "%+v", job)
	for _, c := range [][3]string{
		{"importer.v1.submit", `{}`, "400"},
		{"importer.v1.get", `{}`, "400"},
		{"importer.v1.get", `{"job_id":"none"}`, "404"},
		{"importer.v1.recipe", `{}`, "400"},
		{"importer.v1.recipe", `{"recipe_id":"none"}`, "404"},
		{"importer.v1.submit", strings.Replace(submit, "ada", "eve", 1), "409"},
	} {
		reply, _ := ask(c[0], c[1])
		check.That(t, reply.Header.Get("Nats-Service-Error-Code") == c[2], "%s %s: %v %s", c[0], c[1], reply.Header, reply.Data)
	}
	check.Equal(t, i.URL(), "", "it listens at")
}

// What the importer needs and does not find is a reason not to start: streams, and with YouTube the program for it.
func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	nc := check.Must(natstest.Server(t).Connect())(t)
	defer nc.Close()
	cfg := importer.Config{BaseConfig: service.BaseConfig{Listen: "-"}, TempDir: t.TempDir()}
	check.ErrorContains(t, check.Err(importer.Start(t.Context(), nc, cfg)),
		"IMPORT_JOBS", "KV_import-jobs", "KV_import-steps", "KV_recipes", "OBJ_import-steps", "IMPORTER_CREATE_ASSETS")
	cfg.CreateAssets, cfg.YouTube, cfg.YtDlp = true, true, "/nonexistent/yt-dlp"
	check.ErrorContains(t, check.Err(importer.Start(t.Context(), nc, cfg)), "yt-dlp")
}

func TestEveryRouteKnowsItsCaller(t *testing.T) {
	t.Parallel()
	job := `{"owner_id":"theirs","url":"https://example.org/soup.vtt","source_type":"captions","job_id":"j"}`
	servicetest.Callers(t, func(r *service.Router) { r.Add(api.Operations(nil, nil, &store.Bucket{})...) },
		map[string]servicetest.Foreign{"POST /v1/imports": {Body: job}, "GET /v1/recipes": {Query: "?owner=theirs"}},
		// The owner of these is in the store, see TestACallerReachesItsOwnImportsOnly.
		"GET /v1/imports/{job}", "GET /v1/imports/{job}/events", "GET /v1/imports/{job}/ws", "POST /v1/imports/{job}/cancel", "POST /v1/imports/{job}/retry",
		"GET /v1/recipes/{recipe}")
}

func TestRoutesOfOperatorsHaveAListener(t *testing.T) {
	t.Parallel()
	servicetest.Listeners(t, func(r *service.Router) { r.Add(api.Operations(nil, nil, &store.Bucket{})...) }, "GET /health")
}

// An import whose source failed as often as it is tried is a dead letter. Replayed when the source is there again, it becomes
// READY: one recipe, and no letter any more.
func TestADeadImportIsReplayed(t *testing.T) {
	t.Parallel()
	var back atomic.Bool
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !back.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(captions))
	}))
	t.Cleanup(site.Close)
	srv := natstest.Server(t)
	i, _ := start(t, srv, func(c *importer.Config) { c.OutagePatience = time.Nanosecond })
	job := contracts.ImportJob{JobID: "j1", OwnerID: "ada", SourceType: source.TypeCaptions, URL: site.URL + "/a.vtt"}
	const message = "The caption file could not be fetched: the site answered HTTP 503"
	last := imported(t, i, job)
	check.That(t, last.Code == failure.Network && last.Error == message && last.Retryable && last.Attempt == 1, "it ended as %+v", last)
	_, js := natstest.Connect(t, srv)
	dead := check.Must(deadletter.Open(t.Context(), js, deadletter.Config{}))(t)
	filter := deadletter.Filter{Kind: deadletter.KindFailed, Stream: contracts.StreamImportJobs, Subject: contracts.ImportJobsSubjects}
	letters := func() (letters []deadletter.Entry) {
		for entry, err := range dead.List(t.Context(), filter, deadletter.OldestFirst) {
			check.OK(t, err)
			letters = append(letters, entry)
		}
		return letters
	}
	check.Until(t, time.Minute, "the letter is there", func() bool { return len(letters()) == 1 })
	letter := letters()[0]
	check.That(t, letter.Problem == nil && letter.DeadLetter.Error == message, "letter %+v", letter)

	back.Store(true)
	result, err := dead.Replay(t.Context(), filter, deadletter.ReplayOptions{})
	check.Require(t, err == nil && result.Done == 1, "%+v, %v", result, err)
	check.Until(t, time.Minute, "the job is READY", func() bool {
		last, err := i.Get(t.Context(), "j1")
		return err == nil && last.Status == contracts.ImportReady && last.RecipeID == store.RecipeID("j1")
	})
	list, _, err := i.Recipes().List(t.Context(), store.Query{OwnerID: "ada"})
	check.That(t, err == nil && len(list) == 1, "recipes %+v, %v", list, err)
	left := letters()
	check.That(t, len(left) == 0, "letters %+v", left)
}

// A file that a full store refuses is answered by its own problem, and is taken when there is room.
func TestAFullStoreIsNamedAndOvercome(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"KV_" + contracts.BucketImportJobs, "KV_" + contracts.BucketImportSteps, contracts.StreamImportJobs} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			i, nc := start(t, natstest.Server(t))
			js := check.Must(jetstream.New(nc))(t)
			full := check.Must(js.Stream(t.Context(), stream))(t)
			body, contentType := form(t, "owner_id", "ada", "@fluffy-pancakes.en.vtt", captions)
			submit := func(bytes int64) (reply, string) {
				config := full.CachedInfo().Config
				config.MaxBytes = bytes
				check.OK(t, check.Err(js.UpdateStream(t.Context(), config)))
				return call(t, http.MethodPost, i.URL()+"/v1/imports", body, "Content-Type", contentType, "Idempotency-Key", "k")
			}
			answer, text := submit(1)
			check.That(t, answer.StatusCode == http.StatusInsufficientStorage && answer.Header.Get("Retry-After") != "", "%+v %s", answer, text)
			check.Equal(t, decode[struct{ Code string }](t, text).Code, "STORE_FULL")
			answer, text = submit(1 << 26)
			check.Require(t, answer.StatusCode/100 == 2, "again: %d %s", answer.StatusCode, text)
			check.Equal(t, followed(t, i, decode[importer.Job](t, text).JobID).Status, contracts.ImportReady, "it ended as")
		})
	}
}

// recorder is a program with the name yt-dlp that writes down its arguments.
const recorder = `#!/bin/sh
case "$*" in *--version*) echo 2026.08.19; exit 0;; esac
for argument; do echo "$argument"; done >> "ASKED"
echo "ERROR: [youtube] x: Private video" >&2
exit 1
`

// hostile is an importer with a site, and with the recorder for yt-dlp.
type hostile struct {
	*testing.T

	asked    string // a file with the arguments of yt-dlp
	importer *importer.Importer
	js       jetstream.JetStream
	nc       *nats.Conn
	jobs     int
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	programs, temp := t.TempDir(), t.TempDir()
	h := &hostile{T: t, asked: filepath.Join(programs, "asked")}
	testbed.WriteProgram(t, filepath.Join(programs, "yt-dlp"), strings.ReplaceAll(recorder, "ASKED", h.asked))
	srv := natstest.Server(t)
	_, h.js = natstest.Connect(t, srv)
	h.importer, h.nc = start(t, srv, func(c *importer.Config) {
		c.TempDir, c.YouTube, c.YtDlp, c.OutagePatience = temp, true, filepath.Join(programs, "yt-dlp"), time.Nanosecond
	})
	t.Cleanup(func() {
		entries, err := os.ReadDir(temp)
		check.That(t, err == nil && len(entries) == 0, "temporary files %v, %v", entries, err)
	})
	return h
}

// ways hand a job in: over HTTP, over NATS, and through the stream, as the document has it. They return the answer to the
// caller, "" for the stream, which has none.
func (h *hostile) ways() map[string]func(body string) string {
	return map[string]func(string) string{
		"HTTP": func(body string) string {
			resp, text := call(h.T, http.MethodPost, h.importer.URL()+"/v1/imports", body)
			return fmt.Sprint(resp.StatusCode, " ", text)
		},
		"micro": func(body string) string {
			reply := check.Must(h.nc.Request("importer.v1.submit", []byte(body), time.Minute))(h)
			return reply.Header.Get("Nats-Service-Error-Code") + " " + reply.Header.Get("Nats-Service-Error") + " " + string(reply.Data)
		},
		"stream": func(body string) string {
			h.jobs++
			check.OK(h, check.Err(h.js.Publish(h.Context(), fmt.Sprint("jobs.import.normal.hostile-", h.jobs), []byte(body))))
			return ""
		},
	}
}

func request(t *testing.T, id, kind, url string) string {
	t.Helper()
	return string(check.Must(json.Marshal(contracts.ImportJob{JobID: id, OwnerID: "ada", SourceType: kind, URL: url}))(t))
}

// A job id is a name and nothing else: an id that could be a path is refused by name, in all ways, and any other odd id is a
// job like any other, with its own recipe.
func TestHostileJobIDs(t *testing.T) {
	t.Parallel()
	h, site := newHostile(t), newVideos(t)
	refused := []string{
		"..", "../../etc/passwd", "a/b", `a\b`, `..\..\x`, "/etc/passwd", "a\x00b", "a\nb", "a\x1bb", strings.Repeat("x", 10<<10),
	}
	odd := []string{
		".", "*", ">", "jobs.import.>", "\u202eb", "a b", "שלום", "--exec=touch " + "x", "$(touch x)", "'; touch x #", "%2e%2e%2f", "a%00b", "?x=1#y", "<script>", strings.Repeat("y", 300),
	}
	for way, submit := range h.ways() {
		for _, id := range refused {
			said := submit(request(t, id, "captions", site.URL+"/a.vtt"))
			check.That(t, said == "" || strings.HasPrefix(said, "400") && strings.Contains(said, "/job_id"), "%s: %.40q: %.200s", way, id, said)
		}
		for _, id := range odd {
			id = way + id
			said := submit(request(t, id, "captions", site.URL+"/a.vtt"))
			check.That(t, !strings.Contains(said, "/job_id"), "%s: %.40q: %.200s", way, id, said)
		}
	}
	for way := range h.ways() {
		for _, id := range odd {
			id = way + id
			check.Until(t, time.Minute, fmt.Sprintf("job %.40q is READY", id), func() bool {
				job, err := h.importer.Get(t.Context(), id)
				return err == nil && job.Status == contracts.ImportReady && job.RecipeID == store.RecipeID(id)
			})
		}
	}
	check.Until(t, time.Minute, "what is no job is dead-lettered", func() bool {
		return check.Must(h.js.Stream(t.Context(), contracts.StreamDead))(t).CachedInfo().State.Msgs == uint64(len(refused))
	})
	list, _, err := h.importer.Recipes().List(t.Context(), store.Query{OwnerID: "ada", Limit: 100})
	check.That(t, err == nil && len(list) == 3*len(odd), "%d recipes of %d jobs: %v", len(list), 3*len(odd), err)
}

// A video may have the name of an option. It is asked for by its address, behind the end of the options.
func TestAVideoThatIsCalledLikeAnOption(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	const id = "--netrc-cmd"
	for way, submit := range h.ways() {
		submit(request(t, way, "youtube", "https://youtu.be/"+id+"?x=--exec"))
	}
	for way := range h.ways() {
		check.Until(t, time.Minute, way+" has failed", func() bool {
			job, err := h.importer.Get(t.Context(), way)
			return err == nil && job.Code == failure.Private
		})
	}
	data := check.Must(os.ReadFile(h.asked))(t)
	for call := range strings.SplitSeq(strings.TrimSpace(string(data)), "--ignore-config\n") {
		check.That(t, call == "" || strings.HasSuffix(strings.TrimSpace(call), "\n--\nhttps://www.youtube.com/watch?v="+id),
			"yt-dlp was called with\n%s", call)
	}
	check.That(t, !strings.Contains(string(data), "--exec"), "yt-dlp was called with\n%s", data)
	check.Equal(t, bytes.Count(data, []byte("--ignore-config\n")), bytes.Count(data, []byte("\n--\n")), "calls without the user's configuration")
}
