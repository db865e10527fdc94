package importer_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
	importer "github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/internal/httpapi"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
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

// startHere is start on a server of its own.
func startHere(t *testing.T, mutate ...func(*importer.Config)) (*importer.Importer, *nats.Conn) {
	t.Helper()
	return start(t, natstest.Server(t), mutate...)
}

// startOver starts an importer over a connection.
func startOver(t *testing.T, nc *nats.Conn, mutate ...func(*importer.Config)) *importer.Importer {
	t.Helper()
	cfg := importer.Config{
		BaseConfig: service.BaseConfig{
			CreateAssets: true, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), Version: "1.2.3",
		},
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, TempDir: t.TempDir(),
	}
	for _, m := range mutate {
		m(&cfg)
	}
	i := check.Must(importer.Start(t.Context(), nc, cfg))(t)
	t.Cleanup(func() {
		check.Is(t, i.Stop(), nil)
		client.CloseIdleConnections()
	})
	return i
}

// client makes the requests of the tests. Their contexts bound them.
var client = &http.Client{Transport: &http.Transport{}}

// described returns the client with a transport that holds the answers against the description of the API.
func described(t *testing.T) *http.Client {
	t.Helper()
	return &http.Client{Transport: servicetest.Described(t, httpapi.OpenAPI).Transport(t, client.Transport)}
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
	if resp, again := call(t, http.MethodPost, i.URL()+"/v1/imports", body, "Idempotency-Key", "k1"); resp.StatusCode != http.StatusOK ||
		decode[importer.Job](t, again).JobID != job.JobID {
		t.Errorf("once more: %d: %s", resp.StatusCode, again)
	}

	events := follow(t, i.URL()+"/v1/imports/"+job.JobID+"/events")
	last := events[len(events)-1]
	check.Require(t, last.job.Status == contracts.ImportReady && last.job.RecipeID == kvstore.RecipeID(job.JobID), "last event: %+v", last.job)
	resp, _ = call(t, http.MethodGet, i.URL()+"/v1/imports/"+job.JobID+"/events", "", "Last-Event-ID", last.id)
	check.That(t, resp.StatusCode == http.StatusNoContent, "a follower that knows the end gets %d", resp.StatusCode)

	recipe := i.URL() + "/v1/recipes/" + last.job.RecipeID
	_, text = call(t, http.MethodGet, recipe, "")
	stored := decode[kvstore.Stored](t, text)
	if len(stored.Recipe.Ingredients) < 3 || len(stored.Recipe.Steps) < 2 || stored.Recipe.Steps[0].Timestamp == nil || stored.OwnerID != "ada" {
		t.Errorf("%s", text)
	}
	_, text = call(t, http.MethodGet, recipe+"?format=schema.org", "")
	check.That(t, strings.Contains(text, `"@type": "Recipe"`), "%s", text)
	resp, text = call(t, http.MethodGet, recipe+"?format=cook", "")
	check.That(t, resp.StatusCode == http.StatusBadRequest && strings.Contains(text, "json or schema.org"), "%s", text)
	_, text = call(t, http.MethodGet, i.URL()+"/v1/recipes?owner=ada&q=flour", "")
	list := decode[struct{ Recipes []kvstore.Summary }](t, text)
	check.That(t, len(list.Recipes) == 1 && list.Recipes[0].ID == last.job.RecipeID, "%s", text)
	check.Same(t, "the file was fetched, times", site.requests.Load(), 1)
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
		check.That(t, resp.StatusCode == c.status && strings.Contains(text, c.text) && resp.Header.Get("Content-Type") == "application/problem+json",
			"%s: %d: %s", name, resp.StatusCode, text)
	}
}

func TestOperatorsAreAnswered(t *testing.T) {
	t.Parallel()
	site := newVideos(t)
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "importer"}))(t)
	t.Cleanup(func() {
		check.Is(t, exports.Stop(context.WithoutCancel(t.Context())), nil)
	})
	i, _ := startHere(t, func(c *importer.Config) { c.Exports = exports })
	for path, want := range map[string]string{"/health": `{"status":"healthy"}`, "/livez": "ok", "/version": "1.2.3"} {
		resp, text := call(t, http.MethodGet, i.URL()+path, "")
		check.That(t, resp.StatusCode == http.StatusOK && strings.TrimSpace(text) == want, "%s: %d %s", path, resp.StatusCode, text)
	}
	for name, want := range map[string]contracts.ImportState{"ok": contracts.ImportReady, "gone": contracts.ImportFailed} {
		last := imported(t, i, contracts.ImportJob{OwnerID: "ada", SourceType: contracts.SourceCaptions, URL: site.URL + "/" + name + ".vtt"})
		check.That(t, last.Status == want, "%s: %+v", name, last)
	}
	if resp, text := call(t, http.MethodGet, i.URL()+"/readyz?verbose", ""); resp.StatusCode != http.StatusOK || !strings.Contains(text, "[+]worker ok") {
		t.Errorf("a worker that has worked is not ready: %s", text)
	}
	_, text := call(t, http.MethodGet, i.URL()+"/metrics", "")
	for by := time.Now().Add(time.Minute); !strings.Contains(text, `outcome="READY"`) && time.Now().Before(by); { // counted after the state
		_, text = call(t, http.MethodGet, i.URL()+"/metrics", "")
	}
	for _, want := range []string{
		`importer_jobs_total{code="",`, `outcome="READY"`, `outcome="FAILED"`, `importer_step_duration_seconds_bucket{`, `step="transcript"`,
		`step="extract"`, `step="create"`, `importer_job_duration_seconds_count{`,
		`far_side_call_duration_seconds_count{outcome="ok",side="extractor"}`, `far_side_held{side="sites"} 0`,
	} {
		check.Says(t, text, want)
	}
}

// A job of any priority is worked.
func TestPriorities(t *testing.T) {
	t.Parallel()
	site := newVideos(t)
	i, _ := startHere(t, func(c *importer.Config) { c.Listen = "-" })
	for _, priority := range []contracts.ImportPriority{"", contracts.PriorityLow, contracts.PriorityNormal, contracts.PriorityHigh} {
		last := imported(t, i, contracts.ImportJob{OwnerID: "ada", SourceType: contracts.SourceCaptions, URL: site.URL + "/a.vtt", Priority: priority})
		check.That(t, last.Status == contracts.ImportReady, "%s: %+v", priority, last)
	}
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
	if reply, job := ask("importer.v1.submit", submit); job.Status != contracts.ImportQueued {
		t.Fatalf("%v %s", reply.Header, reply.Data)
	}
	followed(t, i, "j1")
	ask("importer.v1.submit", strings.NewReplacer("gone", "soup", "j1", "j0").Replace(submit))
	followed(t, i, "j0")
	_, job := ask("importer.v1.get", `{"job_id":"j0"}`)
	reply, _ := ask("importer.v1.recipe", `{"recipe_id":"`+job.RecipeID+`"}`)
	check.Says(t, string(reply.Data), `"job_id":"j0"`, `"raw":"`)
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
	check.Same(t, "it listens at", i.URL(), "")
}

func TestMissingStreamsAreNamed(t *testing.T) {
	t.Parallel()
	nc, err := natstest.Server(t).Connect()
	check.OK(t, err)
	defer nc.Close()
	_, err = importer.Start(t.Context(), nc, importer.Config{BaseConfig: service.BaseConfig{Listen: "-"}, TempDir: t.TempDir()})
	check.Contains(t, err, "IMPORT_JOBS", "KV_import-jobs", "KV_import-steps", "KV_recipes", "OBJ_import-steps", "IMPORTER_CREATE_ASSETS")
}

// A program that YouTube needs and that is not there is a reason not to start.
func TestWithoutYtDlpThereIsNoYouTube(t *testing.T) {
	t.Parallel()
	nc, err := natstest.Server(t).Connect()
	check.OK(t, err)
	defer nc.Close()
	_, err = importer.Start(t.Context(), nc, importer.Config{
		BaseConfig: service.BaseConfig{CreateAssets: true, Listen: "-"},
		TempDir:    t.TempDir(), YouTube: true, YtDlp: "/nonexistent/yt-dlp",
	})
	check.Contains(t, err, "yt-dlp")
}
