package importer_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/internal/httpapi"
	"github.com/expediter-io/expediter/services/importer/internal/natsapi"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

// The permissions of deploy/nats are enough for the importer when an administrator has made its streams and buckets: it takes jobs
// in all ways, works them, keeps large files, dead-letters jobs that it cannot work, and shows recipes. It may not touch the
// streams of others.
func TestItNeedsNoMoreThanItIsPermitted(t *testing.T) {
	t.Parallel()
	site := newVideos(t)
	large := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("\xff\xd8\xff" + noise(2<<20)))
	}))
	t.Cleanup(large.Close)
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
	settle := func(c *importer.Config) {
		c.Extractor, c.OutagePatience = importer.Extractor{Extractor: &eyes{}, Name: "eyes"}, time.Nanosecond
	}
	adminConn, _ := natstest.Connect(t, srv, users.As("admin"))
	admin := natstest.InAccount(t, adminConn, "IMPORTER")
	ours := contracts.AssetOptions{MaxBytes: 1 << 30, Services: []string{contracts.ServiceImporter}}
	check.OK(t, check.Err(contracts.Apply(t.Context(), admin, contracts.Assets(ours), contracts.ApplyOptions{})))
	check.OK(t, check.Err(contracts.ApplyConsumers(t.Context(), admin, contracts.Consumers(ours), contracts.ApplyOptions{})))

	denied := make(chan error, 100)
	may := natstest.NewPermissions(t, srv, "importer")
	nc, _ := natstest.Connect(t, srv, users.As("importer"), may.Through(), nats.PermissionErrOnSubscribe(true),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	i := startOver(t, nc, settle, func(c *importer.Config) { c.CreateAssets = false })
	publisher, _ := natstest.Connect(t, srv, users.As("publisher"))
	request := func(id, kind, url string) string {
		return `{"job_id":"` + id + `","owner_id":"ada","source_type":"` + kind + `","url":"` + url + `"}`
	}
	_, text := call(t, http.MethodPost, i.URL()+"/v1/imports", request("over-http", "captions", site.URL+"/a.vtt"))
	check.That(t, strings.Contains(text, "QUEUED"), "over HTTP: %s", text)
	if reply, err := publisher.Request("importer.v1.submit", []byte(request("over-nats", "photo", large.URL+"/a.jpg")), time.Minute); err != nil {
		t.Error(err)
	} else if !strings.Contains(string(reply.Data), "QUEUED") {
		t.Errorf("over NATS: %v %s", reply.Header, reply.Data)
	}
	for _, body := range []string{request("streamed", "captions", site.URL+"/gone.vtt"), `{"job_id":"../x"}`} {
		check.Is(t, check.Err(admin.Publish(t.Context(), "jobs.import.high.streamed", []byte(body))), nil)
	}
	for id, want := range map[string]contracts.ImportState{
		"over-http": contracts.ImportReady, "over-nats": contracts.ImportReady,
	} {
		check.Same(t, id, followed(t, i, id).Status, want)
	}
	check.Until(t, time.Minute, "the message that is no job is dead-lettered", func() bool {
		dead, err := admin.Stream(t.Context(), contracts.StreamDead)
		return err == nil && dead.CachedInfo().State.Msgs == 1
	})
	if list, _, err := i.Recipes().List(t.Context(), kvstore.Query{OwnerID: "ada"}); err != nil || len(list) != 2 {
		t.Errorf("recipes %+v, %v", list, err)
	} else if _, err := i.Recipes().Get(t.Context(), list[0].ID); err != nil {
		t.Error(err)
	}
	resp, text := call(t, http.MethodGet, i.URL()+"/readyz?verbose", "")
	check.That(t, resp.StatusCode == http.StatusOK, "it is not ready: %s", text)
	check.Is(t, nc.Flush(), nil)
	select {
	case err := <-denied:
		t.Errorf("denied: %v", err)
	default:
	}
	may.CheckNeeded(t,
		"$JS.ACK.*.*.IMPORT_JOBS.>",                                   // acknowledgements with the server's feature js_ack_fc_v2
		"$JS.API.STREAM.MSG.GET.IMPORT_JOBS",                          // a lost acknowledgement
		"$KV.jobs.excused.IMPORT_JOBS.>",                              // an attempt that does not count
		"$JS.API.DIRECT.GET.KV_jobs",                                  // a job that takes long
		"$JS.API.STREAM.MSG.GET.KV_import-steps", "rp.import-steps.>", // a second attempt, and one that waits for a step of another
		"$JS.API.DIRECT.GET.OBJ_import-steps", "$JS.API.STREAM.MSG.GET.OBJ_import-steps", // a second attempt reads the steps that the first kept
	)
	wantDenied(t, nc, denied)
}

// wantDenied tries operations on the streams of others, which must be denied.
func wantDenied(t *testing.T, nc *nats.Conn, denied <-chan error) {
	t.Helper()
	for _, subject := range []string{
		"$KV.enrich.a", "$KV.directory.a", "$KV.deliveries.a", "$KV.inbox.a", "$KV.locks.a", "$O.other.M.a", "jobs.enrich.wolt.a", "events.a.b",
		"notify.plan.a", "notify.send.a.b.c.d", "dead.EVENTS.a", "rp.import-steps.$KV.import-steps.a", "rp.import-jobs.$KV.import-jobs.a",
		"$JS.API.STREAM.DELETE.IMPORT_JOBS", "$JS.API.STREAM.PURGE.KV_recipes", "$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.UPDATE.KV_recipes",
		"$JS.API.STREAM.MSG.DELETE.KV_recipes", "$JS.API.CONSUMER.CREATE.IMPORT_JOBS.mine", "$JS.API.CONSUMER.DELETE.IMPORT_JOBS.importer",
		"$JS.API.STREAM.MSG.GET.DEAD", "$JS.API.STREAM.MSG.GET.KV_inbox", "$SYS.REQ.SERVER.PING", "_INBOX_admin.a",
	} {
		check.Is(t, nc.Publish(subject, []byte("{}")), nil)
		wantRefusal(t, nc, subject, denied)
	}
	for _, subject := range []string{">", "_INBOX_admin.>", "rp.enrich.>", "rp.recipes.>", "events.>", "jobs.import.>", "$SYS.>", "$JS.ACK.>"} {
		check.Is(t, check.Err(nc.SubscribeSync(subject)), nil)
		wantRefusal(t, nc, subject, denied)
	}
}

func wantRefusal(t *testing.T, nc *nats.Conn, subject string, denied <-chan error) {
	t.Helper()
	check.Is(t, nc.Flush(), nil)
	select {
	case err := <-denied:
		check.That(t, strings.Contains(err.Error(), `"`+subject+`"`), "%s: %v", subject, err)
	case <-time.After(time.Minute):
		t.Errorf("it may use %s", subject)
	}
}

func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	d := servicetest.Described(t, httpapi.OpenAPI)
	d.Routes(t, func(r *service.Router) { httpapi.Add(r, nil, nil, &kvstore.Store{}) })
}

// The job of the examples runs until it is cancelled, and has a recipe when it is tried again.
func TestEveryExampleIsAnsweredAsDescribed(t *testing.T) {
	t.Parallel()
	var asked atomic.Bool
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !asked.Swap(true) {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "text/vtt")
		_, _ = w.Write([]byte(captions))
	}))
	t.Cleanup(site.Close)
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "importer"}))(t)
	d := servicetest.Described(t, httpapi.OpenAPI)
	i, nc := startHere(t, func(c *importer.Config) { c.Exports = exports })
	body := fmt.Sprintf(`{"job_id":"soup","owner_id":"ada","source_type":"captions","url":%q}`, site.URL+"/soup.vtt")
	resp, text := call(t, http.MethodPost, i.URL()+"/v1/imports", body)
	check.Require(t, resp.StatusCode == http.StatusAccepted, "%d: %s", resp.StatusCode, text)
	d.Examples(t, &http.Client{Transport: d.Transport(t, client.Transport)}, i.URL(),
		[]string{"POST /v1/imports/{job}/cancel", "POST /v1/imports/{job}/retry"}, map[string]servicetest.Case{
			"POST /v1/imports 200":              {Header: map[string]string{"Idempotency-Key": "soup-1"}},
			"POST /v1/imports 409":              {Body: `{"job_id":"soup","owner_id":"ada","url":"https://example.org/other.vtt"}`},
			"POST /v1/imports 422":              {Body: `{"owner_id":"ada","url":"https://example.org/soup","source_type":"scroll"}`},
			"POST /v1/imports/{job}/cancel 409": {}, "POST /v1/imports/{job}/retry 409": {},
		})
	servicetest.Answers(t, nc, natsapi.Endpoints(nil, nil), [][2]string{
		{"submit", `{"job_id":"soup-2","owner_id":"ada","url":"https://example.org/soup.vtt","source_type":"captions"}`},
		{"cancel", `{"job_id":"soup-2"}`},
		{"get", `{"job_id":"soup"}`},
		{"recipe", `{"recipe_id":"7e05da03-189a-5154-9802-de5ec980ac2b"}`},
		{"retry", `{"job_id":"soup-2"}`},
	})
}

func TestACallerReachesItsOwnImportsOnly(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	authorization := map[string]string{}
	for _, user := range []string{"ann", "bob"} {
		secret := check.Must(access.Add(keys, access.Key{Name: user, User: user, Scopes: access.Scopes()}))(t)
		authorization[user] = "Bearer " + secret
	}
	v := newVideos(t)
	i, _ := start(t, natstest.Server(t), func(c *importer.Config) { c.Keys = keys })
	submitted, text := call(t, http.MethodPost, i.URL()+"/v1/imports",
		`{"job_id":"anns","owner_id":"ann","source_type":"captions","url":"`+v.URL+`/soup.vtt"}`, "Authorization", authorization["ann"])
	check.Require(t, submitted.StatusCode == http.StatusAccepted, "ann's import: %d %s", submitted.StatusCode, text)
	job := followed(t, i, "anns")
	check.Require(t, job.RecipeID != "", "ann's import ends as %+v", job)
	for request, want := range map[string]int{
		"GET /v1/imports/anns": 200, "GET /v1/imports/anns/events": 200, "POST /v1/imports/anns/cancel": 409,
		"POST /v1/imports/anns/retry": 409, "GET /v1/recipes/" + job.RecipeID: 200, "GET /v1/recipes?owner=ann": 200,
	} {
		method, path, _ := strings.Cut(request, " ")
		if resp, text := call(t, method, i.URL()+path, "", "Authorization", authorization["ann"]); resp.StatusCode != want {
			t.Errorf("%s of ann: %d %s", request, resp.StatusCode, text)
		}
		resp, text := call(t, method, i.URL()+path, "", "Authorization", authorization["bob"])
		check.That(t, resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusForbidden,
			"%s of bob: %d %s", request, resp.StatusCode, text)
	}
	file, kind := form(t, "owner_id", "ann", "@soup.vtt", "WEBVTT")
	resp, text := call(t, http.MethodPost, i.URL()+"/v1/imports", file, "Authorization", authorization["bob"], "Content-Type", kind)
	check.Same(t, fmt.Sprintf("a file of bob for ann: %s", text), resp.StatusCode, http.StatusForbidden)
	taken := `{"job_id":"anns","owner_id":"bob","source_type":"captions","url":"` + v.URL + `/soup.vtt"}`
	resp, text = call(t, http.MethodPost, i.URL()+"/v1/imports", taken, "Authorization", authorization["bob"])
	check.That(t, resp.StatusCode == http.StatusConflict && !strings.Contains(text, job.RecipeID),
		"ann's id for an import of bob: %d %s", resp.StatusCode, text)
}
