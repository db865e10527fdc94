package importer_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/servicetest"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/internal/api"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

// form makes a body of fields, and of files whose field names begin with "@".
func form(t *testing.T, fields ...string) (body, contentType string) {
	t.Helper()
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for n := 0; n+1 < len(fields); n += 2 {
		name, isFile := strings.CutPrefix(fields[n], "@")
		create := w.CreateFormField
		if isFile {
			create = func(name string) (io.Writer, error) { return w.CreateFormFile("file", name) }
		}
		part := check.Must(create(name))(t)
		check.OK(t, check.Err(part.Write([]byte(fields[n+1]))))
	}
	check.OK(t, w.Close())
	return buf.String(), w.FormDataContentType()
}

// upload hands in a form.
func upload(t *testing.T, i *importer.Importer, fields ...string) (reply, string) {
	t.Helper()
	body, contentType := form(t, fields...)
	return call(t, http.MethodPost, i.URL()+"/v1/imports", body, "Content-Type", contentType)
}

// followed returns a job when it has ended.
func followed(t *testing.T, i *importer.Importer, jobID string) (last importer.Job) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := i.Follow(ctx, jobID, func(j importer.Job) error {
		last = j
		return nil
	})
	check.OK(t, err)
	return last
}

// imported submits a job and returns it as it ended.
func imported(t *testing.T, i *importer.Importer, job contracts.ImportJob) importer.Job {
	t.Helper()
	submitted, _, err := i.Submit(t.Context(), importer.Submission{ImportJob: job})
	check.OK(t, err)
	return followed(t, i, submitted.JobID)
}

// A file is handed in at one instance and worked by another, and becomes a recipe that is called like the file.
func TestAFileIsHandedIn(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	a, _ := start(t, srv)
	b, _ := start(t, srv)
	body, contentType := form(t, "owner_id", "ada", "priority", "high", "language", "en-GB", "@fluffy-pancakes.en.vtt", captions)
	resp, text := call(t, http.MethodPost, a.URL()+"/v1/imports", body, "Content-Type", contentType, "Idempotency-Key", "k")
	check.Require(t, resp.StatusCode == http.StatusAccepted, "%d: %s", resp.StatusCode, text)
	job := decode[importer.Job](t, text)
	check.That(t, job.SourceType == source.TypeCaptions && job.Priority == contracts.PriorityHigh && job.Language == "en-GB" &&
		job.URL == contracts.NewFile("fluffy-pancakes.en.vtt", []byte(captions)).URL(),
		"job %+v", job)
	last := followed(t, b, job.JobID)
	check.That(t, last.Status == contracts.ImportReady && last.Title == "Fluffy pancakes", "it ended as %+v", last)
	list, _, err := b.Recipes().List(t.Context(), store.Query{OwnerID: "ada"})
	check.That(t, err == nil && len(list) == 1 && list[0].Title == "Fluffy pancakes", "recipes %+v, %v", list, err)
	// Again with the same key, at the other instance: the same job.
	resp, text = call(t, http.MethodPost, b.URL()+"/v1/imports", body, "Content-Type", contentType, "Idempotency-Key", "k")
	check.That(t, resp.StatusCode == http.StatusOK && decode[importer.Job](t, text).JobID == job.JobID, "again: %d: %s", resp.StatusCode, text)
	stored, err := b.Recipes().Get(t.Context(), last.RecipeID)
	check.That(t, err == nil && stored.Recipe.Language == "en-GB", "%+v, %v", stored.Recipe, err)
}

// A program that embeds the importer keeps a file and submits its URL.
func TestAFileIsKept(t *testing.T) {
	t.Parallel()
	i, _ := startHere(t)
	url := check.Must(i.Keep(t.Context(), "ada", "-", []byte(captions)))(t)
	last := imported(t, i, contracts.ImportJob{OwnerID: "ada", URL: url})
	check.That(t, last.Status == contracts.ImportReady && last.Title == "Untitled recipe", "it ended as %+v", last)
	gone := contracts.NewFile("gone.vtt", []byte("never handed in")).URL()
	last = imported(t, i, contracts.ImportJob{OwnerID: "ada", URL: gone})
	check.That(t, last.Code == failure.Unavailable && strings.Contains(last.Error, "hand it in again") && last.Attempt == 1,
		"it ended as %+v", last)
}

// Files that arrive slowly keep no other caller out, not even those of two callers. A further one of a caller waits until there is room.
func TestSlowFilesKeepNoOtherCallerOut(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	secrets := map[string]string{}
	for _, name := range []string{"ada", "eve", "mal"} {
		secrets[name] = check.Must(access.Add(keys, access.Key{Name: name, Scopes: []access.Scope{access.Publish, access.Read}}))(t)
	}
	i, _ := startHere(t, func(c *importer.Config) { c.Keys = keys })
	slow := func(of string) *bufio.ReadWriter {
		conn := check.Must(net.Dial("tcp", strings.TrimPrefix(i.URL(), "http://")))(t)
		t.Cleanup(func() { conn.Close() })
		head := "POST /v1/imports HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + secrets[of] + "\r\nExpect: 100-continue\r\n" +
			"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 5\r\n\r\n"
		check.OK(t, check.Err(io.WriteString(conn, head)))
		return bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
	}
	arriving := func(c *bufio.ReadWriter) {
		t.Helper()
		line, err := c.ReadString('\n')
		check.That(t, strings.Contains(line, "100 Continue"), "%q, %v", line, err)
	}
	var files, others []*bufio.ReadWriter
	for n := range 8 {
		if files = append(files, slow("eve")); n < 4 {
			arriving(files[n])
		}
	}
	for n := range 4 {
		if others = append(others, slow("mal")); n < 2 {
			arriving(others[n])
		}
	}
	body, contentType := form(t, "owner_id", "ada", "@fluffy-pancakes.en.vtt", captions)
	resp, text := call(t, http.MethodPost, i.URL()+"/v1/imports", body, "Content-Type", contentType, "Authorization", "Bearer "+secrets["ada"])
	check.Equal(t, resp.StatusCode, http.StatusAccepted, text)
	end := func(c *bufio.ReadWriter) { check.OK(t, errors.Join(check.Err(c.WriteString("--b--")), c.Flush())) }
	for _, c := range slices.Concat(files[:4], others[:2]) { // they make room for the others
		end(c)
	}
	var waiting sync.WaitGroup
	for _, c := range slices.Concat(files[4:], others[2:]) {
		waiting.Go(func() {
			arriving(c)
			end(c)
		})
	}
	waiting.Wait()
}

func TestFormsThatAreRefused(t *testing.T) {
	t.Parallel()
	i, nc := startHere(t)
	large := strings.Repeat("Stir. ", (8<<20)/6+1)
	for _, tc := range []struct {
		name   string
		fields []string
		status int
		want   string
	}{
		{"no file", []string{"owner_id", "ada"}, 400, `{"path":"/file","problem":"is required"}`},
		{"empty file", []string{"owner_id", "ada", "@a.vtt", ""}, 400, `{"path":"/file","problem":"is empty"}`},
		{"two files", []string{"owner_id", "ada", "@a.vtt", "a", "@b.vtt", "b"}, 400, "twice"},
		{"no owner", []string{"@a.vtt", captions}, 400, `"/owner_id"`},
		{"unknown field", []string{"owner_id", "ada", "@a.vtt", captions, "url", "https://example.com"}, 400, `"/url"`},
		{"bad values", []string{"owner_id", "ada", "@a.vtt", captions, "colour", "red", "priority", "asap"}, 400, `"/colour"`},
		{"many unknown fields", slices.Repeat([]string{"x", "1"}, 10_000), 400, `"/x"`},
		{"bad priority", []string{"owner_id", "ada", "@a.vtt", captions, "priority", "asap"}, 400, `"/priority"`},
		{"job id that is a path", []string{"owner_id", "ada", "@a.vtt", captions, "job_id", "../x"}, 400, `"/job_id"`},
		{"too large", []string{"owner_id", "ada", "@a.vtt", large}, 413, "8 MiB"},
		{"far too large", []string{"owner_id", "ada", "@a.vtt", large + large}, 413, "8 MiB"},
	} {
		resp, text := upload(t, i, tc.fields...)
		check.That(t, resp.StatusCode == tc.status && strings.Contains(text, tc.want) && len(text) < 16<<10,
			"%s: %d: %.1000s; want %d and %s", tc.name, resp.StatusCode, text, tc.status, tc.want)
	}
	for _, contentType := range []string{"multipart/form-data", "multipart/form-data; boundary=x"} {
		resp, text := call(t, http.MethodPost, i.URL()+"/v1/imports", "--y", "Content-Type", contentType)
		check.That(t, resp.StatusCode == http.StatusBadRequest, "%s: %d: %s", contentType, resp.StatusCode, text)
	}
	check.Equal(t, jobs(t, nc), 0, "jobs of refused uploads")
	// Nor is the file of a submission kept that is refused for another reason.
	url := contracts.NewFile("a.vtt", []byte(captions)).URL()
	check.Equal(t, imported(t, i, contracts.ImportJob{OwnerID: "ada", URL: url}).Code, failure.Unavailable, "the file is there")
}

// A file for which there is no room is refused when it is handed in, not when a worker looks for it.
func TestAFileThatThereIsNoRoomFor(t *testing.T) {
	t.Parallel()
	i, nc := startHere(t, func(c *importer.Config) { c.MaxBytes = 64 << 20 })
	resp, text := upload(t, i, "owner_id", "ada", "@photo.jpg", "\xff\xd8\xff"+noise(7<<20))
	check.That(t, resp.StatusCode == http.StatusInsufficientStorage && jobs(t, nc) == 0, "%d: %s", resp.StatusCode, text)
}

// A user who has filled a share imports addresses all the same, of which nothing more is kept, and other users import files.
func TestAUserDoesNotFillTheStore(t *testing.T) {
	t.Parallel()
	photo := func(n int) string { return fmt.Sprint("\xff\xd8\xff", n, noise(7<<20)) }
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(photo(len(r.URL.Path))))
	}))
	defer site.Close()
	eyes := &eyes{}
	i, nc := startHere(t, func(c *importer.Config) {
		c.Extractor, c.MaxBytes = importer.Extractor{Extractor: eyes, Name: "eyes"}, 512<<20 // a share of 16 MiB
	})
	objects := check.Must(check.Must(jetstream.New(nc))(t).Stream(t.Context(), "OBJ_"+contracts.ObjectsImportSteps))(t)
	resp, text := upload(t, i, "owner_id", "mallory", "@photo.jpg", photo(0))
	check.Equal(t, resp.StatusCode, http.StatusAccepted, text)
	check.Equal(t, followed(t, i, decode[importer.Job](t, text).JobID).Status, contracts.ImportReady, "the first ended as")
	got := eyes.seen()
	check.That(t, len(got) == 1 && string(got[0]) == photo(0), "%d photos were seen: want one, as it was handed in", len(got))
	resp, text = upload(t, i, "owner_id", "mallory", "@photo.jpg", photo(1))
	wait, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	check.That(t, resp.StatusCode == http.StatusTooManyRequests && strings.Contains(text, "QUOTA_FILES") && err == nil && wait > 3600,
		"%+v: %s", resp, text)
	before := check.Must(objects.Info(t.Context()))(t).State.Bytes
	for _, path := range []string{"/a", "/ab", "/abc"} {
		check.Equal(t, imported(t, i, contracts.ImportJob{OwnerID: "mallory", SourceType: source.TypePhoto, URL: site.URL + path}).Status,
			contracts.ImportReady, path)
	}
	after := check.Must(objects.Info(t.Context()))(t).State.Bytes // the text of a time has 19 to 29 characters
	check.That(t, after < before+1<<20, "objects grew from %d to %d bytes", before, after)
	resp, text = upload(t, i, "owner_id", "ada", "@photo.jpg", photo(1))
	check.Equal(t, resp.StatusCode, http.StatusAccepted, text)
}

// jobs returns how many jobs were ever queued.
func jobs(t *testing.T, nc *nats.Conn) uint64 {
	t.Helper()
	stream := check.Must(check.Must(jetstream.New(nc))(t).Stream(t.Context(), contracts.StreamImportJobs))(t)
	return stream.CachedInfo().State.LastSeq
}

// noise is a text that does not get smaller when it is compressed.
func noise(size int) string {
	random := rand.NewChaCha8([32]byte{1})
	data := make([]byte, size)
	for at := range data {
		data[at] = byte(random.Uint64())
	}
	return string(data)
}

// eyes is an extractor that can see.
type eyes struct {
	mu     sync.Mutex
	photos [][]byte
}

// Extract implements extract.Extractor.
func (e *eyes) Extract(_ context.Context, in extract.Input) (recipe.Recipe, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.photos = append(e.photos, in.Image)
	return recipe.Recipe{
		Title: "Soup", Source: in.Source, Ingredients: []recipe.Ingredient{{Qty: "2", Item: "onions"}},
		Steps: []recipe.Step{{Index: 1, Text: "Cut the onions."}},
	}, nil
}

func (e *eyes) seen() [][]byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.photos
}

// calls notes the calls of a Recipe Service, and their callers.
type calls struct {
	mu   sync.Mutex
	seen []string
}

func (c *calls) note(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, text)
}

// TestTheRecipeServiceIsCalledAsDocumented compares all that is asked for an import, from its beginning to its end, with the
// document, byte for byte: one that becomes a recipe, and one whose recipe is refused.
func TestTheRecipeServiceIsCalledAsDocumented(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-t0ken"
	site := newVideos(t)
	for name, c := range map[string]struct {
		status int
		answer string
		state  contracts.ImportState
		end    string
	}{
		"ready": {
			http.StatusCreated, `{"recipe_id":"550e8400-e29b-41d4-a716-446655440002"}`, contracts.ImportReady,
			`{"status":"READY","recipe_id":"550e8400-e29b-41d4-a716-446655440002"}`,
		},
		"refused": {
			http.StatusBadRequest, `{"message":"owner_id is unknown"}`, contracts.ImportFailed,
			`{"status":"FAILED","code":"store_failed","error":"Failed to create recipe: create recipe: the store answered 400: owner_id is unknown"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := &calls{}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				check.ErrorIs(t, err, nil)
				isJSON := r.Method != http.MethodPost || r.Header.Get("Content-Type") == "application/json"
				check.That(t, r.Header.Get("X-Service-Token") == secret && isJSON, "%s %s: headers %v", r.Method, r.URL, r.Header)
				asked.note(r.Method + " " + r.RequestURI + " " + string(body))
				switch {
				case r.Method == http.MethodGet:
					http.Error(w, "{}", http.StatusNotFound)
				case r.URL.Path == "/internal/recipes/from-import-job":
					w.WriteHeader(c.status)
					_, _ = w.Write([]byte(c.answer))
				}
			}))
			t.Cleanup(server.Close)
			i, _ := startHere(t, func(cfg *importer.Config) {
				cfg.RecipeServiceURL, cfg.RecipeServiceToken = server.URL, secret
				cfg.Extractor = importer.Extractor{Extractor: echo{}, Name: "echo"}
			})
			address := site.URL + "/pancakes.vtt"
			job := contracts.ImportJob{JobID: "j1", OwnerID: "ada", SourceType: source.TypeCaptions, URL: address}
			check.Equal(t, imported(t, i, job).Status, c.state, "it ended as")
			want := []string{
				`GET /internal/import-jobs/j1 `,
				`POST /internal/import-jobs/j1/status {"status":"RUNNING"}`,
				`POST /internal/import-jobs/j1/transcript {"segments":[{"start":1,"dur":4,"text":"Today we make pancakes."},` +
					`{"start":5,"dur":6,"text":"Mix 2 cups of flour with 1 teaspoon of salt."},{"start":11,"dur":7,"text":"Add 3 eggs and whisk until smooth."},` +
					`{"start":18,"dur":7,"text":"Pour the batter into a hot pan and fry for 2 minutes."}]}`,
				`POST /internal/recipes/from-import-job {"job_id":"j1","owner_id":"ada","source_ref":"` + address + `","title":"pancakes","description":"",` +
					`"ingredients":[{"item":"flour"}],"steps":[{"index":1,"text":": Today we make pancakes."}],"raw_transcript":` +
					`"[1.00s] Today we make pancakes.\n[5.00s] Mix 2 cups of flour with 1 teaspoon of salt.\n[11.00s] Add 3 eggs and whisk until smooth.\n` +
					`[18.00s] Pour the batter into a hot pan and fry for 2 minutes.\n"}`,
				`POST /internal/import-jobs/j1/status ` + c.end,
			}
			check.Until(t, time.Minute, "the end is told", func() bool {
				asked.mu.Lock()
				defer asked.mu.Unlock()
				return len(asked.seen) >= len(want)
			})
			asked.mu.Lock()
			defer asked.mu.Unlock()
			check.Equal(t, asked.seen, want)
		})
	}
}

// echo is an extractor whose recipe shows its input: the language, the first chapter and the first sentence.
type echo struct{}

// Extract implements extract.Extractor.
func (echo) Extract(_ context.Context, in extract.Input) (recipe.Recipe, error) {
	if len(in.Segments) == 0 {
		return recipe.Recipe{}, errors.New("nothing is said")
	}
	words := in.Language + ": " + in.Segments[0].Text
	if len(in.Chapters) > 0 {
		words += " in " + in.Chapters[0].Title
	}
	return recipe.Recipe{
		Title: in.Title, Language: in.Language, Source: in.Source, Ingredients: []recipe.Ingredient{{Item: "flour"}},
		Steps: []recipe.Step{{Index: 1, Text: words}},
	}, nil
}

// The permissions of deploy/nats are enough for the importer when an administrator has made its streams and buckets: it takes jobs
// in all ways, works them, keeps large files, dead-letters jobs that it cannot work, and shows recipes. It may not touch the
// streams of others.
func TestItNeedsNoMoreThanItIsPermitted(t *testing.T) {
	t.Parallel()
	site := newVideos(t)
	onions := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/a.vtt" {
			_, _ = w.Write([]byte("WEBVTT\n\n00:01.000 --> 00:09.000\nCut two onions for the soup, and fry them in a large pot with butter until they are brown and soft, for about ten minutes.\n"))
			return
		}
		_, _ = w.Write([]byte("\xff\xd8\xff" + noise(2<<20)))
	}))
	t.Cleanup(onions.Close)
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Users = users.Public })
	adminConn, _ := natstest.Connect(t, srv, users.As("admin"))
	admin := natstest.InAccount(t, adminConn, "IMPORTER")
	ours := contracts.AssetOptions{MaxBytes: 1 << 30, Services: []string{contracts.ServiceImporter}}
	check.OK(t, check.Err(provision.Apply(t.Context(), admin, contracts.Assets(ours), provision.Options{})))
	check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), admin, provision.Consumers(ours), provision.Options{})))

	denied := make(chan error, 100)
	may := natstest.NewPermissions(t, srv, "importer")
	nc, _ := natstest.Connect(t, srv, users.As("importer"), may.Through(), nats.PermissionErrOnSubscribe(true),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err }))
	i := startOver(t, nc, func(c *importer.Config) {
		c.CreateAssets, c.Extractor, c.OutagePatience = false, importer.Extractor{Extractor: &eyes{}, Name: "eyes"}, time.Nanosecond
	})
	publisher, _ := natstest.Connect(t, srv, users.As("publisher"))
	_, text := call(t, http.MethodPost, i.URL()+"/v1/imports", request(t, "over-http", "captions", onions.URL+"/a.vtt"))
	check.That(t, strings.Contains(text, "QUEUED"), "over HTTP: %s", text)
	photo := request(t, "over-nats", "photo", onions.URL+"/a.jpg")
	reply := check.Must(publisher.Request("importer.v1.submit", []byte(photo), time.Minute))(t)
	check.Contains(t, string(reply.Data), "QUEUED")
	for _, body := range []string{request(t, "streamed", "captions", site.URL+"/gone.vtt"), `{"job_id":"../x"}`} {
		check.ErrorIs(t, check.Err(admin.Publish(t.Context(), "jobs.import.high.streamed", []byte(body))), nil)
	}
	for _, id := range []string{"over-http", "over-nats"} {
		last := followed(t, i, id)
		check.That(t, last.Status == contracts.ImportReady, "%s: %+v", id, last)
	}
	check.Until(t, time.Minute, "the message that is no job is dead-lettered", func() bool {
		dead, err := admin.Stream(t.Context(), contracts.StreamDead)
		return err == nil && dead.CachedInfo().State.Msgs == 1
	})
	list, _, err := i.Recipes().List(t.Context(), store.Query{OwnerID: "ada"})
	check.Require(t, err == nil && len(list) == 2, "recipes %+v, %v", list, err)
	check.OK(t, check.Err(i.Recipes().Get(t.Context(), list[0].ID)))
	resp, text := call(t, http.MethodGet, i.URL()+"/readyz?verbose", "")
	check.That(t, resp.StatusCode == http.StatusOK, "it is not ready: %s", text)
	check.ErrorIs(t, nc.Flush(), nil)
	for len(denied) > 0 {
		t.Errorf("denied: %v", <-denied)
	}
	may.CheckNeeded(t,
		"$JS.ACK.*.*.IMPORT_JOBS.>",                                   // acknowledgements with the server's feature js_ack_fc_v2
		"$JS.API.STREAM.MSG.GET.IMPORT_JOBS",                          // a lost acknowledgement
		"$KV.jobs.excused.IMPORT_JOBS.>",                              // an attempt that does not count
		"$JS.API.DIRECT.GET.KV_jobs",                                  // a job that takes long
		"$JS.API.STREAM.MSG.GET.KV_import-steps", "rp.import-steps.>", // a second attempt, and one that waits for a step of another
		"$JS.API.DIRECT.GET.OBJ_import-steps", "$JS.API.STREAM.MSG.GET.OBJ_import-steps", // a second attempt reads the steps that the first kept
	)
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
	d := servicetest.Described(t, api.OpenAPI)
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
	servicetest.Answers(t, nc, service.Endpoints(api.Operations(nil, nil, nil)), [][2]string{
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
		authorization[user] = "Bearer " + check.Must(access.Add(keys, access.Key{Name: user, User: user, Scopes: access.Scopes()}))(t)
	}
	v := newVideos(t)
	i, _ := start(t, natstest.Server(t), func(c *importer.Config) { c.Keys = keys })
	submitted, text := call(t, http.MethodPost, i.URL()+"/v1/imports",
		`{"job_id":"anns","owner_id":"ann","source_type":"captions","url":"`+v.URL+`/soup.vtt"}`, "Authorization", authorization["ann"])
	check.Require(t, submitted.StatusCode == http.StatusAccepted, "ann's import: %d %s", submitted.StatusCode, text)
	job := followed(t, i, "anns")
	check.Require(t, job.RecipeID != "", "ann's import ends as %+v", job)
	for request, want := range map[string]int{
		"GET /v1/imports/anns": 200, "GET /v1/imports/anns/events": 200, "GET /v1/imports/anns/ws": 426, "POST /v1/imports/anns/cancel": 409,
		"POST /v1/imports/anns/retry": 409, "GET /v1/recipes/" + job.RecipeID: 200, "GET /v1/recipes?owner=ann": 200,
	} {
		method, path, _ := strings.Cut(request, " ")
		resp, text := call(t, method, i.URL()+path, "", "Authorization", authorization["ann"])
		check.That(t, resp.StatusCode == want, "%s of ann: %d %s", request, resp.StatusCode, text)
		resp, text = call(t, method, i.URL()+path, "", "Authorization", authorization["bob"])
		check.That(t, resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusForbidden,
			"%s of bob: %d %s", request, resp.StatusCode, text)
	}
	file, kind := form(t, "owner_id", "ann", "@soup.vtt", "WEBVTT")
	resp, text := call(t, http.MethodPost, i.URL()+"/v1/imports", file, "Authorization", authorization["bob"], "Content-Type", kind)
	check.Equal(t, resp.StatusCode, http.StatusForbidden, fmt.Sprintf("a file of bob for ann: %s", text))
	taken := `{"job_id":"anns","owner_id":"bob","source_type":"captions","url":"` + v.URL + `/soup.vtt"}`
	resp, text = call(t, http.MethodPost, i.URL()+"/v1/imports", taken, "Authorization", authorization["bob"])
	check.That(t, resp.StatusCode == http.StatusConflict && !strings.Contains(text, job.RecipeID),
		"ann's id for an import of bob: %d %s", resp.StatusCode, text)
}
