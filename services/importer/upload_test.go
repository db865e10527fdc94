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
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/access"
	importer "github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
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
	check.That(t, job.SourceType == contracts.SourceCaptions && job.Priority == contracts.PriorityHigh && job.Language == "en-GB" &&
		job.URL == contracts.NewFile("fluffy-pancakes.en.vtt", []byte(captions)).URL(),
		"job %+v", job)
	last := followed(t, b, job.JobID)
	check.That(t, last.Status == contracts.ImportReady && last.Title == "Fluffy pancakes", "it ended as %+v", last)
	list, _, err := b.Recipes().List(t.Context(), kvstore.Query{OwnerID: "ada"})
	check.That(t, err == nil && len(list) == 1 && list[0].Title == "Fluffy pancakes", "recipes %+v, %v", list, err)
	// Again with the same key, at the other instance: the same job.
	resp, text = call(t, http.MethodPost, b.URL()+"/v1/imports", body, "Content-Type", contentType, "Idempotency-Key", "k")
	check.That(t, resp.StatusCode == http.StatusOK && decode[importer.Job](t, text).JobID == job.JobID, "again: %d: %s", resp.StatusCode, text)
	stored, err := b.Recipes().Get(t.Context(), last.RecipeID)
	check.That(t, err == nil && stored.Recipe.Language == "en-GB", "%+v, %v", stored.Recipe, err)
	// Another language, and another file, is another job's business.
	for _, other := range [][]string{{"encoding", "koi8-r", "language", "en-GB", "@fluffy-pancakes.en.vtt", captions}, {"language", "de", "@fluffy-pancakes.en.vtt", captions}, {"language", "en-GB", "@b.vtt", captions}} {
		body, contentType = form(t, append([]string{"owner_id", "ada", "priority", "high"}, other...)...)
		resp, text = call(t, http.MethodPost, b.URL()+"/v1/imports", body, "Content-Type", contentType, "Idempotency-Key", "k")
		check.That(t, resp.StatusCode == http.StatusConflict, "%q: %d: %s", other[:3], resp.StatusCode, text)
	}
}

// The encoding of a file is named with the job, or guessed, which the job reports.
func TestAnEncodingIsNamed(t *testing.T) {
	t.Parallel()
	i, _ := startHere(t)
	file := captions + "\n\n59:00.000 --> 59:05.000\nServe the pancakes with cr\xe8me br\xfbl\xe9e.\n"
	for encoding, want := range map[string]bool{"windows-1252": false, "": true} {
		body, contentType := form(t, "owner_id", "ada", "encoding", encoding, "@pancakes.vtt", file)
		resp, text := call(t, http.MethodPost, i.URL()+"/v1/imports", body, "Content-Type", contentType)
		check.Require(t, resp.StatusCode == http.StatusAccepted, "%d: %s", resp.StatusCode, text)
		last := followed(t, i, decode[importer.Job](t, text).JobID)
		guessed := slices.ContainsFunc(last.Warnings, func(w recipe.Warning) bool { return w.Code == source.WarnEncoding })
		check.That(t, last.Status == contracts.ImportReady && last.Encoding == encoding && guessed == want, "%q ended as %+v", encoding, last)
	}
}

// A program that embeds the importer keeps a file and submits its URL.
func TestAFileIsKept(t *testing.T) {
	t.Parallel()
	i, _ := startHere(t)
	url := check.Must(i.Keep(t.Context(), "-", []byte(captions)))(t)
	last := imported(t, i, contracts.ImportJob{OwnerID: "ada", URL: url})
	check.That(t, last.Status == contracts.ImportReady && last.Title == "Untitled recipe", "it ended as %+v", last)
	gone := contracts.NewFile("gone.vtt", []byte("never handed in")).URL()
	last = imported(t, i, contracts.ImportJob{OwnerID: "ada", URL: gone})
	check.That(t, last.Code == contracts.CodeUnavailable && strings.Contains(last.Error, "hand it in again") && last.Attempt == 1, "it ended as %+v", last)
}

// Files that arrive slowly keep no other caller out, not even those of two callers. A further one of a caller waits until there is room.
func TestSlowFilesKeepNoOtherCallerOut(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	secrets := map[string]string{}
	for _, name := range []string{"ada", "eve", "mal"} {
		var err error
		secrets[name], err = access.Add(keys, access.Key{Name: name, Scopes: []access.Scope{access.Publish, access.Read}})
		check.OK(t, err)
	}
	i, _ := startHere(t, func(c *importer.Config) { c.Keys = keys })
	slow := func(of string) *bufio.ReadWriter {
		conn, err := net.Dial("tcp", strings.TrimPrefix(i.URL(), "http://"))
		check.OK(t, err)
		t.Cleanup(func() { conn.Close() })
		_, err = fmt.Fprintf(conn, "POST /v1/imports HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\n"+
			"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 5\r\n\r\n", secrets[of])
		check.OK(t, err)
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
	check.Same(t, text, resp.StatusCode, http.StatusAccepted)
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
		body, contentType := form(t, tc.fields...)
		resp, text := call(t, http.MethodPost, i.URL()+"/v1/imports", body, "Content-Type", contentType)
		check.That(t, resp.StatusCode == tc.status && strings.Contains(text, tc.want) && len(text) < 16<<10,
			"%s: %d: %.1000s; want %d and %s", tc.name, resp.StatusCode, text, tc.status, tc.want)
	}
	for _, contentType := range []string{"multipart/form-data", "multipart/form-data; boundary=x"} {
		resp, text := call(t, http.MethodPost, i.URL()+"/v1/imports", "--y", "Content-Type", contentType)
		check.That(t, resp.StatusCode == http.StatusBadRequest, "%s: %d: %s", contentType, resp.StatusCode, text)
	}
	check.Same(t, "jobs of refused uploads", jobs(t, nc), 0)
	// Nor is the file of a submission kept that is refused for another reason.
	url := contracts.NewFile("a.vtt", []byte(captions)).URL()
	check.Same(t, "the file is there", imported(t, i, contracts.ImportJob{OwnerID: "ada", URL: url}).Code, contracts.CodeUnavailable)
}

// A photo that no message of the server can hold is handed in, and an extractor sees it as it is.
func TestALargePhotoIsHandedIn(t *testing.T) {
	t.Parallel()
	eyes := &eyes{}
	i, _ := startHere(t, func(c *importer.Config) { c.Extractor = importer.Extractor{Extractor: eyes, Name: "eyes"} })
	photo := "\xff\xd8\xff" + noise(6<<20)
	body, contentType := form(t, "owner_id", "ada", "@photo.jpg", photo)
	resp, text := call(t, http.MethodPost, i.URL()+"/v1/imports", body, "Content-Type", contentType)
	check.Require(t, resp.StatusCode == http.StatusAccepted, "%d: %s", resp.StatusCode, text)
	check.Same(t, "it ended as", followed(t, i, decode[importer.Job](t, text).JobID).Status, contracts.ImportReady)
	got := eyes.seen()
	check.That(t, len(got) == 1 && string(got[0]) == photo, "%d photos were seen: want one, as it was handed in", len(got))
}

// A file for which there is no room is refused when it is handed in, not when a worker looks for it.
func TestAFileThatThereIsNoRoomFor(t *testing.T) {
	t.Parallel()
	i, nc := startHere(t, func(c *importer.Config) { c.MaxBytes = 64 << 20 })
	body, contentType := form(t, "owner_id", "ada", "@photo.jpg", "\xff\xd8\xff"+noise(7<<20))
	resp, text := call(t, http.MethodPost, i.URL()+"/v1/imports", body, "Content-Type", contentType)
	check.That(t, resp.StatusCode == http.StatusInsufficientStorage && jobs(t, nc) == 0, "%d: %s", resp.StatusCode, text)
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
