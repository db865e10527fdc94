package importer_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	importer "github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

// recorder is a program with the name yt-dlp that writes down its arguments.
const recorder = `#!/bin/sh
case "$*" in *--version*) echo 2026.08.19; exit 0;; esac
for argument; do echo "$argument"; done >> "ASKED"
echo "ERROR: [youtube] x: Private video" >&2
exit 1
`

// hostile is an importer that may dial 127.0.0.1 alone, with its sites and programs.
type hostile struct {
	*testing.T

	asked    string // a file with the arguments of yt-dlp
	importer *importer.Importer
	js       jetstream.JetStream
	marker   string // a file that nobody is to make
	nc       *nats.Conn
	private  string // a site that nobody is to reach
	reached  atomic.Int64
	site     string
	temp     string
	jobs     int
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{T: t, temp: t.TempDir(), marker: filepath.Join(t.TempDir(), "marker")}
	private := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { h.reached.Add(1) }))
	private.Start()
	t.Cleanup(private.Close)
	h.private = strings.TrimPrefix(private.URL, "http://127.0.0.1")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		_, _ = w.Write([]byte(captions))
	}))
	t.Cleanup(site.Close)
	h.site = site.URL
	programs := t.TempDir()
	h.asked = filepath.Join(programs, "asked")
	script := strings.ReplaceAll(recorder, "ASKED", h.asked)
	check.OK(t, os.WriteFile(filepath.Join(programs, "yt-dlp"), []byte(script), 0o700))
	srv := natstest.Server(t)
	_, h.js = natstest.Connect(t, srv)
	h.importer, h.nc = start(t, srv, func(c *importer.Config) {
		c.AllowNetworks, c.TempDir = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, h.temp
		c.YouTube, c.YtDlp, c.OutagePatience = true, filepath.Join(programs, "yt-dlp"), time.Nanosecond
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

func request(id, kind, url string) string {
	body, err := json.Marshal(contracts.ImportJob{JobID: id, OwnerID: "ada", SourceType: kind, URL: url})
	if err != nil {
		panic(err) // of strings
	}
	return string(body)
}

func (h *hostile) letters() uint64 {
	h.Helper()
	dead := check.Must(h.js.Stream(h.Context(), contracts.StreamDead))(h)
	return dead.CachedInfo().State.Msgs
}

// unharmed checks that no command was run, no private address reached, and no file left.
func (h *hostile) unharmed() {
	h.Helper()
	check.Failsf(h, check.Err(os.Stat(h.marker)), "a command of a stranger was run")
	if n := h.reached.Load(); n > 0 {
		h.Errorf("%d requests reached a private address", n)
	}
	if entries, err := os.ReadDir(h.temp); err != nil || len(entries) > 0 {
		h.Errorf("temporary files %v, %v", entries, err)
	}
}

// A job id is a name and nothing else: an id that could be a path is refused by name, in all ways, and any other odd id is a
// job like any other, with a recipe of its own.
func TestHostileJobIDs(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	refused := []string{
		"..", "../../etc/passwd", "a/b", `a\b`, `..\..\x`, "/etc/passwd", "a\x00b", "a\nb", "a\x1bb", strings.Repeat("x", 10<<10),
	}
	odd := []string{
		".", "*", ">", "jobs.import.>", "\u202eb", "a b", "שלום", "--exec=touch " + "x", "$(touch x)", "'; touch x #", "%2e%2e%2f", "a%00b", "?x=1#y", "<script>", strings.Repeat("y", 300),
	}
	for way, submit := range h.ways() {
		for _, id := range refused {
			said := submit(request(id, "captions", h.site+"/a.vtt"))
			check.That(t, said == "" || strings.HasPrefix(said, "400") && strings.Contains(said, "/job_id"), "%s: %.40q: %.200s", way, id, said)
		}
		for _, id := range odd {
			id = way + id
			said := submit(request(id, "captions", h.site+"/a.vtt"))
			check.That(t, !strings.Contains(said, "/job_id"), "%s: %.40q: %.200s", way, id, said)
		}
	}
	for way := range h.ways() {
		for _, id := range odd {
			id = way + id
			check.Until(t, time.Minute, fmt.Sprintf("job %.40q is READY", id), func() bool {
				job, err := h.importer.Get(t.Context(), id)
				return err == nil && job.Status == contracts.ImportReady && job.RecipeID == kvstore.RecipeID(id)
			})
		}
	}
	check.Until(t, time.Minute, "what is no job is dead-lettered", func() bool { return h.letters() == uint64(len(refused)) })
	list, _, err := h.importer.Recipes().List(t.Context(), kvstore.Query{OwnerID: "ada", Limit: 100})
	check.That(t, err == nil && len(list) == 3*len(odd), "%d recipes of %d jobs: %v", len(list), 3*len(odd), err)
	h.unharmed()
}

// An address is data: none is a file, an option, or a way into a private network, however it comes in.
func TestHostileURLs(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	touch := "--exec=touch " + h.marker
	private := func(host string) string { return "http://" + host + h.private + "/secret.vtt" }
	cases := map[string][]string{ // by type, "" for the one that it looks like
		"youtube": {
			touch, "--exec", "--config-locations=/etc/passwd", "file:///etc/passwd", "ytsearch:cake", "https://www.youtube.com/watch?v=" + touch,
			"https://www.youtube.com/watch?v=../../etc/pa", "https://www.youtube.com/watch?v=$(touch%20x)", "https://www.youtube.com.evil.test/watch?v=aaaaaaaaaaa",
			"https://evil.test/?u=https://youtu.be/aaaaaaaaaaa", "https://youtu.be/aaaaaaaaaaa" + "bb", private("127.0.0.2"),
		},
		"captions": {
			touch, "file:///etc/passwd", "file://localhost/etc/passwd", "FILE:/etc/passwd", "/etc/passwd", "../../etc/passwd", "ftp://a.test/x",
			"javascript:alert(1)", "data:text/vtt,WEBVTT", "http://user:secret@a.test/x", "http://a.test/\r\nX: y", "http:///x", "http://" + strings.Repeat("a", 3000) + ".test/",
			private("127.0.0.2"), private("[::1]"), private("[::ffff:127.0.0.2]"), private("0.0.0.0"), private("10.0.0.1"), "http://169.254.169.254/latest/meta-data",
			h.site + "/a.vtt?to=" + private("127.0.0.2"), h.site + "/a.vtt?to=file:///etc/passwd", h.site + "/a.vtt?to=http://169.254.169.254/",
			h.site + "/a.vtt?to=//127.0.0.2" + h.private,
		},
		"web":   {private("127.0.0.2"), h.site + "/?to=" + private("127.0.0.2"), "file:///etc/passwd"},
		"photo": {private("127.0.0.2"), h.site + "/a.jpg?to=" + private("[::1]"), "file:///etc/passwd"},
		"":      {touch, "file:///etc/passwd", private("127.0.0.2"), "https://youtu.be/--exec"},
	}
	var ids []string
	unknown := 0
	for way, submit := range h.ways() {
		for kind, urls := range cases {
			for n, url := range urls {
				id := fmt.Sprint(way, "-", kind, "-", n)
				said := submit(request(id, kind, url))
				switch {
				case strings.HasPrefix(said, "400") && strings.Contains(said, "/url"), strings.HasPrefix(said, "422") && strings.Contains(said, "code"):
				case said == "" || strings.Contains(said, `"QUEUED"`):
					ids = append(ids, id) // it fails when it is tried
				default:
					t.Errorf("%s: %.100q: %.200s", way, url, said)
				}
				job := contracts.ImportJob{JobID: id, OwnerID: "ada", SourceType: kind, URL: url}
				if way == "stream" && job.Validate() != nil {
					unknown++
					ids = ids[:len(ids)-1] // no job
				}
			}
		}
	}
	for _, id := range ids {
		check.Until(t, time.Minute, id+" has failed", func() bool {
			job, err := h.importer.Get(t.Context(), id)
			check.Require(t, err != nil || !job.Status.Final() || job.Status == contracts.ImportFailed && job.Code == contracts.CodeUnavailable,
				"%s: %+v", id, job)
			return err == nil && job.Status.Final()
		})
	}
	check.Until(t, time.Minute, "what is no job is dead-lettered", func() bool { return h.letters() == uint64(unknown) })
	data, err := os.ReadFile(h.asked)
	check.That(t, err != nil, "yt-dlp was called:\n%s", data)
	h.unharmed()
}

// A video may have the name of an option. It is asked for by its address, behind the end of the options.
func TestAVideoThatIsCalledLikeAnOption(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	const id = "--netrc-cmd"
	for way, submit := range h.ways() {
		submit(request(way, "youtube", "https://youtu.be/"+id+"?x=--exec"))
	}
	for way := range h.ways() {
		check.Until(t, time.Minute, way+" has failed", func() bool {
			job, err := h.importer.Get(t.Context(), way)
			return err == nil && job.Code == contracts.CodePrivate
		})
	}
	data := check.Must(os.ReadFile(h.asked))(t)
	for call := range strings.SplitSeq(strings.TrimSpace(string(data)), "--ignore-config\n") {
		check.That(t, call == "" || strings.HasSuffix(strings.TrimSpace(call), "\n--\nhttps://www.youtube.com/watch?v="+id),
			"yt-dlp was called with\n%s", call)
	}
	check.That(t, !strings.Contains(string(data), "--exec"), "yt-dlp was called with\n%s", data)
	h.unharmed()
}
