package importer

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
)

// mostMemory bounds the memory of an importer, whatever its sources hold, in bytes.
const mostMemory = 512 << 20

// bounded is an importer as a separate process, as an operator runs it, that the system allows no more memory.
var bounded = crash.Role[boundedDuty]{Name: "bounded", Run: func(ctx context.Context, d boundedDuty) error {
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: 2 * mostMemory, Max: 2 * mostMemory}); err != nil { // with memory that was given back
		return err
	}
	if d.Path != "" {
		_ = os.Setenv("PATH", d.Path) // it has no NUL
	}
	cfg, err := FromEnvironment()
	if err != nil {
		return err
	}
	cfg.AllowHTTP, cfg.AllowNetworks, cfg.CreateAssets, cfg.Listen = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, true, "127.0.0.1:0"
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stdout, nil))                        // which says where it listens
	cfg.MaxBytes, cfg.Rate, cfg.TempDir, cfg.NATSURL = 4<<30, 1<<20, d.TempDir, d.URL // the tests ask often
	cfg.SourceAttempts, cfg.YouTube, cfg.YtDlp = 1, d.YtDlp != "", d.YtDlp
	if d.Far != "" {
		cfg.OpenAIURL, cfg.OpenAIModel, cfg.RecipeServiceURL, cfg.RecipeServiceToken = d.Far+"/model", "m", d.Far+"/recipes", "secret"
	}
	return Run(ctx, cfg)
}}

type boundedDuty struct{ Far, Path, TempDir, URL, YtDlp string }

//go:embed testdata/photos.zip
var photos []byte

// worst are sources, by the end of their addresses, each as bad as its format allows. testdata/README.md describes the photos.
var worst = withPhotos(map[string]func() []byte{
	"nested.html":      repeated("<div>", ""),
	"formatting.html":  repeated("<p><b><i><u><em><a href=x>", ""),
	"adoption.html":    repeated("<b><p></b></p>", ""),
	"attributes.html":  repeated("a ", "<p "),
	"values.html":      repeated("a=b ", "<p "),
	"entities.html":    repeated("&NotEqualTilde;", "<title>"),
	"table.html":       repeated("<table><tr><td itemprop=x>a", `<p itemscope itemtype="http://schema.org/Recipe">`),
	"items.html":       repeated("<p itemscope><i itemprop='a b c d'>a</i>", ""),
	"texts.html":       repeated("word ", `<p itemscope>`+strings.Repeat("<div itemprop=x>", 200)),
	"legacy.html":      repeated("\xe9", "<meta charset=windows-1252><p itemscope itemprop=x>"),
	"deep.html":        ld("", `[`, ""),
	"objects.html":     ld("[", `{"a":1},`, "0]"),
	"wide.html":        ld("{", `"a":"b",`, `"a":"b"}`),
	"lists.html":       ld("[", `[[]],`, "0]"),
	"scripts.html":     repeated(`<script type="application/ld+json">[{"@type":"Recipe","recipeIngredient":["1 egg","2 eggs"]}]</script>`, ""),
	"recipe.html":      ld(`{"@type":"Recipe","name":"x","recipeInstructions":"Mix.","recipeIngredient":[`, `"1 cup flour",`, `"1 egg"]}`),
	"steps.html":       ld(`{"@type":"Recipe","name":"x","recipeIngredient":["1 egg"],"recipeInstructions":"`, `Mix <b><p>it</b>\n`, `Bake."}`),
	"cues.vtt":         said("a b"),
	"words.vtt":        said("Add 2 cups of flour and mix 3 eggs until smooth."),
	"line.vtt":         repeated("Add 2 cups of flour. ", "WEBVTT\n\n00:00.000 --> 00:01.000\n"),
	"tags.vtt":         repeated("<b><c.a.b.c><v x>", "WEBVTT\n\n00:00.000 --> 00:01.000\n"),
	"ids.vtt":          repeated("x\n00:00.000 --> 00:00.001\n\n", "WEBVTT\n\n"),
	"rolling.vtt":      said("a\nb\nc\nd"),
	"cues.srt":         repeated("1\n00:00:00,000 --> 00:00:01,000\na\n\n", ""),
	"tags.srt":         repeated("<b>{\\a}<font x>", "1\n00:00:00,000 --> 00:00:01,000\n"),
	"lines.txt":        repeated("a\n", ""),
	"one.txt":          repeated("Add 2 cups of flour and mix 3 eggs. ", ""),
	"eggs.txt":         repeated("1 egg\n", "Ingredients\n"),
	"utf16.vtt":        func() []byte { return append([]byte("\xfe\xff"), repeated("\x4e\x00\x00 ", "")()[:8<<20-2]...) },
	"guess.txt":        repeated("1 \xe9gg and 2 cups of cr\xe8me br\xfbl\xe9e\n", ""),
	"bomb.html":        func() []byte { return make([]byte, 256<<20) },
	"bomb.json":        ld(`{"@type":"Recipe","recipeInstructions":`, `{"@type":"HowToSection","itemListElement":[`, `"x"`),
	"hr.html":          repeated("<hr>", strings.Repeat("<div>", 255)),
	"li.html":          repeated("<li>", strings.Repeat("<div>", 255)),
	"closed.html":      repeated("</x>", strings.Repeat("<b>", 255)),
	"scopes.html":      repeated("<b itemprop=a>", "<p itemscope>"+strings.Repeat("<div>", 254)),
	"tracks.html":      repeated("<track src=x>", `<base href="http://10.0.0.1/`+strings.Repeat("a/", 2000)+`">`),
	"links.html":       repeated("<a itemprop=x href=y>", `<base href="http://10.0.0.1/`+strings.Repeat("a/", 2000)+`"><p itemscope>`),
	"refs.html":        references,
	"twice.html":       repeated("&lt;b>", recipeOf+`<b itemprop="`+strings.Repeat("recipeInstructions ", 70_000)+`">`),
	"steps.twice.html": func() []byte { return nested("recipeInstructions", "itemListElement steps step item") },
	"items.twice.html": func() []byte { return nested("recipeIngredient", "itemListElement recipeIngredient ingredients item") },
	"names.twice.html": func() []byte { return nested("name", "name text url @id @value") },
	"semicolons.html":  ld("", ";", ""),
	"quotes.html":      ld("[", `"a"b`, "]"),
	"numbers.html":     ld("", "1 ", ""),
	"eggs.vtt":         eggs,
	"digits.srt":       repeated(strings.Repeat("1", 250_000)+" --> \n", "1\n00:00:00,000 --> 00:00:01,000\na\n\n"),
	"brackets.vtt":     repeated("[", "WEBVTT\n\n00:00.000 --> 00:01.000\n"),
	"codes.vtt":        repeated("&#9&#", "WEBVTT\n\n00:00.000 --> 00:01.000\n"),
	"bad.vtt":          repeated("\xff\n", "WEBVTT\n\n00:00.000 --> 00:01.000\n"),
	"packed.zst":       func() []byte { return append([]byte("\x28\xb5\x2f\xfd"), make([]byte, 1<<20)...) },
	"packed.vtt":       func() []byte { return append([]byte("\x1f\x8b\x08"), make([]byte, 1<<20)...) },
	"phone.jpg":        phone,
	"members.gz.vtt":   nil, // see hollow
	"blocks.gz.vtt":    nil,
})

func withPhotos(all map[string]func() []byte) map[string]func() []byte {
	files, err := zip.NewReader(bytes.NewReader(photos), int64(len(photos)))
	for _, f := range files.File {
		all[f.Name] = func() []byte {
			data, err := fs.ReadFile(files, f.Name)
			if err != nil {
				panic(err) // it is a part of the test
			}
			return data
		}
	}
	if err != nil {
		panic(err) // it is a part of the test
	}
	return all
}

// heaviest are those that are tried each time.
var heaviest = []string{
	"attributes.html", "cmyk.jpg", "eggs.vtt", "flat.heic", "grid.heic", "groups.webp", "hr.html", "ids.vtt", "interlaced.png", "items.html", "many.heic",
	"members.gz.vtt", "objects.html", "phone.jpg", "refs.html", "scans.jpg", "steps.twice.html", "tracks.html", "twice.html", "wide.png", "words.vtt",
}

// largest are those of them that take the most memory: together, without reservations, more than the importer may take.
var largest = []string{"cmyk.jpg", "eggs.vtt", "groups.webp", "hr.html", "interlaced.png", "items.html", "phone.jpg"}

// uploaded are those that are handed in each time. A file is read as the same from an address is.
var uploaded = []string{"hr.html", "ids.vtt", "interlaced.png"}

// tried reports whether the source of this name is tried in this run.
func tried(name string) bool { return crash.Long() || slices.Contains(heaviest, name) }

// repeated fills the part of a source that is read with a text.
func repeated(text, head string) func() []byte {
	return func() []byte { return append([]byte(head), bytes.Repeat([]byte(text), (8<<20)/len(text))...) }
}

// said fills the part of a source that is read with cues of one text, one after the other: of two at the same time one is left out.
func said(text string) func() []byte {
	return func() []byte {
		file := []byte("WEBVTT\n\n")
		for ms := 0; len(file) < 8<<20; ms++ {
			at := fmt.Sprintf("%02d:%02d:%02d.%03d", ms/3_600_000, ms/60_000%60, ms/1000%60, ms%1000)
			file = fmt.Appendf(file, "%s --> %s\n%s\n\n", at, at, text)
		}
		return file
	}
}

// ld returns a page with two scripts of JSON-LD: one of the largest size, and one whose values still fit.
func ld(head, text, tail string) func() []byte {
	return func() []byte {
		const open = `<script type="application/ld+json">`
		data := func(size int) string { return head + strings.Repeat(text, size/len(text)) + tail }
		return []byte(open + data(2<<20-500) + `</script>` + open + data(300<<10) + `</script>`)
	}
}

const recipeOf = `<p itemscope itemtype="http://schema.org/Recipe"><b itemprop=recipeIngredient>1 egg</b>`

// phone is a photo of as many pixels as the camera of a telephone takes, with texture everywhere.
func phone() []byte {
	photo := image.NewYCbCr(image.Rect(0, 0, 5000, 5000), image.YCbCrSubsampleRatio420)
	for i := range photo.Y {
		photo.Y[i] = uint8(128 + i%13*(i/5000%7))
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, photo, nil); err != nil {
		panic(err) // a buffer takes everything
	}
	return out.Bytes()
}

// nested is a recipe whose first property is an item within an item, and so on, each under several names.
func nested(first, names string) []byte {
	return []byte(recipeOf + `<b itemprop=recipeInstructions>Mix it.</b><b itemscope itemprop=` + first + `>` +
		strings.Repeat(`<b itemscope itemprop="`+names+`">`, 22))
}

// references is a recipe whose authors have long ids, as none of many others has.
func references() []byte {
	ref := fmt.Sprintf(`{"@id":%q}`, strings.Repeat("x ", 400_000))
	return []byte(`<script type="application/ld+json">[{"@type":"Recipe","name":"x","recipeIngredient":["1 egg"],"recipeInstructions":"Mix it.","author":[` +
		ref + "," + ref + `]}` + strings.Repeat(`,{"@type":"Person","name":"x","@id":"a"}`, 12_000) + `]</script>`)
}

// eggs has two hundred ingredients with one name, and their amounts at the end.
func eggs() []byte {
	var b strings.Builder
	cue := func(n int, text string) { fmt.Fprintf(&b, "00:0%d.000 --> 00:0%d.500\n%s\n\n", n, n, text) }
	b.WriteString("WEBVTT\n\n")
	for n := range 4 {
		cue(n, strings.Repeat("Beat the egg. ", 15_000))
	}
	var amounts strings.Builder
	for n, first := range strings.Fields("red white green yellow black brown golden large small medium wild raw") {
		for m, second := range strings.Fields("chicken duck turkey goat cow fish lemon lime apple onion garlic tomato potato chili corn rice olive") {
			fmt.Fprintf(&amounts, "Beat %d cups of %s %s egg. ", 20+17*n+m, first, second)
		}
	}
	cue(9, amounts.String())
	return []byte(b.String())
}

// hollow answers with gzip that goes on, and holds nothing.
func hollow(w http.ResponseWriter, r *http.Request, name string) {
	w.Header().Set("Content-Encoding", "gzip")
	var empty bytes.Buffer
	_ = gzip.NewWriter(&empty).Close() // in memory
	piece := empty.Bytes()
	if strings.HasPrefix(name, "blocks") {
		_, _ = w.Write(piece[:10]) // as below
		piece = []byte("\x00\x00\x00\xff\xff")
	}
	for many := bytes.Repeat(piece, 10_000); r.Context().Err() == nil; {
		_, _ = w.Write(many) // the importer may have gone
	}
}

// answers are those of a model and of a Recipe Service, and what is at all other addresses.
var answers = map[string]func() []byte{
	"": func() []byte { return []byte(pancakes("x")) },
	"model": func() []byte {
		return []byte(`{"choices":[{"finish_reason":"stop","message":{"content":"{\"title\":\"x\",\"steps\":[{\"text\":\"Mix.\"}` +
			strings.Repeat(",{}", 150_000) + `],\"ingredients\":[{\"item\":\"egg\"}` + strings.Repeat(",{}", 150_000) + `]}"}}]}`)
	},
	"recipes": func() []byte { return []byte(`{"id":"r","x":` + strings.Repeat("[", 9<<20)) },
}

var packed sync.Map // what pack has returned, by name

// pack returns a function that returns a source or an answer, compressed, and makes it when it is called first.
func pack(name string, made func() []byte) func() []byte {
	once, _ := packed.LoadOrStore(name, sync.OnceValue(func() []byte {
		var out bytes.Buffer
		z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
		if err == nil {
			_, err = z.Write(made())
		}
		if err = errors.Join(err, z.Close()); err != nil {
			panic(err) // a buffer takes everything
		}
		return out.Bytes()
	}))
	source, _ := once.(func() []byte) // nothing else is stored
	return source
}

// worstSite serves the worst sources, compressed, and the answers.
func worstSite(t *testing.T) *httptest.Server {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		made, found := worst[name]
		if found && made == nil {
			hollow(w, r, name)
			return
		}
		if first, _, _ := strings.Cut(r.URL.Path[1:], "/"); !found {
			name = ""
			if answers[first] != nil {
				name = first
			}
			made = answers[name]
		}
		_, _ = w.Write(pack(name, made)())
	}))
	t.Cleanup(site.Close)
	return site
}

// ytDlp is a program that says of each video more than anybody wants to know.
const ytDlp = `#!/bin/sh
case "$*" in *--version*) echo 2026.08.19; exit 0;; esac
id="${*##*v=}"
[ "$id" = bbbbbbbbbbb ] && { printf '{"id":"%s","formats":[' "$id"; yes '{},' | head -c 15000000; echo '0]}'; exit 0; }
[ "$id" = ccccccccccc ] && { printf '{"_type":"playlist","entries":['; yes '{},' | head -c 15000000; echo '{}]}'; exit 0; }
[ "$id" = ddddddddddd ] && { printf '{"id":"%s","subtitles":{' "$id"; yes '"en":[{}],' | head -c 15000000; echo '"de":[]}}'; exit 0; }
[ "$id" = eeeeeeeeeee ] && { printf '{"id":"%s","chapters":[' "$id"; yes '{"title":"x"},' | head -c 15000000; echo '{}]}'; exit 0; }
yes x
`

// peak returns the most memory that a process has had, in bytes.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, found := strings.Cut(string(status), "VmHWM:")
	if !found {
		t.Errorf("process %d has ended, perhaps for want of memory: %v", pid, err)
		return 0
	}
	kilobytes := check.Must(strconv.ParseInt(strings.Fields(rest)[0], 10, 64))(t)
	return kilobytes << 10
}

// spent returns the processor time of a process and its programs that have ended, in hundredths of seconds.
func spent(t *testing.T, pid int) (ticks int) {
	t.Helper()
	stat := check.Must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t)
	_, rest, _ := strings.Cut(string(stat), ") ")
	for _, field := range strings.Fields(rest)[11:15] {
		ticks += check.Must(strconv.Atoi(field))(t)
	}
	return ticks
}

// No source takes more than 10 seconds of processor time or 512 MiB, here or in a program, and each ends in a recipe or a message.
//
//	go test . -run Bombs -args -long     all of them
func TestBombs(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("the time of a process is looked up in /proc, which is missing")
	}
	site := worstSite(t)
	var process *crash.Process
	var api string
	var jobs jetstream.KeyValue // which are looked at, because an answer of the API takes time of the process
	for _, name := range slices.Sorted(maps.Keys(worst)) {
		if !tried(name) {
			continue
		}
		if process == nil || process.Ended() {
			srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
			process = bounded.Start(t, boundedDuty{TempDir: t.TempDir(), URL: srv.URL()})
			api = process.Await(`http=(http://\S+)`)[1] + "/v1/imports"
			_, js := natstest.Connect(t, srv)
			jobs = check.Must(js.KeyValue(t.Context(), contracts.BucketImportJobs))(t)
		}
		began := spent(t, process.PID())
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", process.PID()), []byte("5"), 0o600) // begins a new peak, where that is permitted
		job, took := ask(t, http.MethodPost, api, fmt.Sprintf(`{"owner_id":"ada","url":%q}`, site.URL+"/bomb/"+name)), 0
		check.Until(t, 10*time.Minute, name+" has ended, or taken too long", func() bool {
			if entry, err := jobs.Get(t.Context(), job.JobID); err == nil { // else again
				check.OK(t, json.Unmarshal(entry.Value(), &job))
			}
			took = spent(t, process.PID()) - began
			return job.Status.Final() || took > 1000
		})
		most := peak(t, process.PID())
		t.Logf("%-18s %5.2f s %4d MiB %s %s %.100s", name, float64(took)/100, most>>20, job.Status, job.Code, job.Error)
		check.That(t, took <= 1000 && most <= mostMemory && (job.Status == contracts.ImportReady || job.Error != ""),
			"%s took %d MiB and %d hundredths of a second, and ended as %+v", name, most>>20, took, job)
		if !job.Status.Final() {
			process.Kill()
		}
	}
	process.Stop()
}

// ask calls the API of imports.
func ask(t *testing.T, method, url, body string) (job Job) {
	t.Helper()
	r := check.Must(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	check.OK(t, err)
	defer resp.Body.Close()
	check.OK(t, json.NewDecoder(resp.Body).Decode(&job))
	return job
}

// An importer takes no more than its memory, whatever its sources, its model and its Recipe Service answer, eight at a time. No
// process dies, and every job ends.
//
//	go test . -run MemoryIsBounded -args -long     eight of each source, and all forms
func TestMemoryIsBounded(t *testing.T) { //nolint:tparallel // the memory of the machine is for one at a time
	t.Parallel()
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("the memory of a process is looked up in /proc, which is missing")
	}
	site := worstSite(t)
	program := filepath.Join(t.TempDir(), "yt-dlp")
	testbed.WriteProgram(t, program, ytDlp)
	var addresses []string
	for name := range worst {
		if crash.Long() || slices.Contains(largest, name) {
			addresses = append(addresses, site.URL+"/COPY/"+name)
		}
	}
	videos := []string{"ccccccccccc", "aaaaaaaaaaa", "bbbbbbbbbbb", "ddddddddddd", "eeeeeeeeeee"}
	if !crash.Long() {
		videos = videos[:1]
	}
	for _, id := range videos {
		addresses = append(addresses, "https://youtu.be/"+id)
	}
	copies := 1
	if crash.Long() {
		copies = 8
	}
	for name, test := range map[string]struct {
		far       string
		addresses []string
		forms     bool
	}{
		"sources": {"", addresses, false},
		"answers": {site.URL, []string{site.URL + "/COPY/good.vtt"}, false},
		"uploads": {"", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
			_, js := natstest.Connect(t, srv)
			check.OK(t,
				check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 4 << 30}), provision.Options{})))
			process := bounded.Start(t, boundedDuty{Far: test.far, TempDir: t.TempDir(), URL: srv.URL(), YtDlp: program})
			ids := map[string]bool{}
			if test.forms {
				ids = handIn(t, process, copies)
			}
			for n := range copies {
				for i, address := range test.addresses {
					id := fmt.Sprintf("%d-%d", i, n)
					ids[id] = true
					job, err := json.Marshal(contracts.ImportJob{JobID: id, OwnerID: "ada", URL: strings.Replace(address, "COPY", strconv.Itoa(n), 1)})
					check.OK(t, err)
					check.OK(t, check.Err(js.Publish(t.Context(), "jobs.import.normal."+id, job)))
				}
			}
			await(t, js, process, ids)
			most := peak(t, process.PID())
			t.Logf("%d MiB at most", most>>20)
			check.That(t, most <= mostMemory, "it took %d MiB: want at most %d", most>>20, mostMemory>>20)
			process.Stop()
		})
	}
}

// await waits until jobs have ended, and fails the test when the process has before.
func await(t *testing.T, js jetstream.JetStream, process *crash.Process, ids map[string]bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	kv := check.Must(js.KeyValue(ctx, contracts.BucketImportJobs))(t)
	states := check.Must(kv.WatchAll(ctx))(t)
	defer states.Stop() //nolint:errcheck // the server ends with the test
	for len(ids) > 0 {
		select {
		case entry := <-states.Updates():
			var job imports.Job
			if entry == nil || json.Unmarshal(entry.Value(), &job) != nil || !job.Status.Final() || !ids[job.JobID] {
				continue
			}
			check.That(t, job.Code != failure.Crashed && job.Code != failure.Timeout, "%s: %s %s", job.URL, job.Code, job.Error)
			t.Logf("%s %s %s %.100s: %d MiB", job.URL, job.Status, job.Code, job.Error, peak(t, process.PID())>>20)
			delete(ids, job.JobID)
		case <-process.Gone:
			t.Fatalf("the importer has ended: %s", process.Said())
		case <-ctx.Done():
			t.Fatalf("jobs %v have not ended", ids)
		}
	}
}

const (
	// atOnce is how many files arrive at a time, and boundary the line between the parts of their forms.
	atOnce   = 8
	boundary = "b"

	field = "--" + boundary + "\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n"
	file  = "--" + boundary + "\r\nContent-Disposition: form-data; name=\"file\"; filename=%q\r\n\r\n%s\r\n"
	end   = "--" + boundary + "--\r\n"
)

// worstForms returns functions that make form n of a kind, without its end. Each form costs the importer as much as one of its kind can.
// The forms with a file have other bytes for each n, as the importer takes the same file only once, and other owners, as it keeps a share
// of all files for each.
func worstForms() map[string]func(n int) []byte {
	owner := fmt.Sprintf(field, "owner_id", "ada")
	filled := func(part string) func(int) []byte {
		return func(int) []byte { return []byte(owner + strings.Repeat(part, (8<<20)/len(part))) }
	}
	forms := map[string]func(int) []byte{
		"fields":  filled(fmt.Sprintf(field, "x", "")),
		"names":   filled(fmt.Sprintf(field, strings.Repeat("x", 64), "")),
		"files":   filled(fmt.Sprintf(file, "a.txt", "x")),
		"headers": filled("--" + boundary + "\r\n" + strings.Repeat("X: y\r\n", 9000) + "\r\n\r\n"),
		"lines":   filled("--" + boundary + "\r\nX: " + strings.Repeat("y", 1<<20) + "\r\n\r\n\r\n"),
	}
	for name, made := range worst {
		if made != nil && (crash.Long() || slices.Contains(uploaded, name)) {
			content := made()
			content = content[:min(len(content), 8<<20-1)]
			forms[name] = func(n int) []byte {
				return fmt.Appendf(nil, field+file, "owner_id", fmt.Sprint(name, n), name, fmt.Appendf(content, "%d", n))
			}
		}
	}
	return forms
}

// handIn hands in the worst forms, eight at a time, and returns the ids of the jobs that they became. All eight have arrived but for
// their ends before one of them ends.
func handIn(t *testing.T, process *crash.Process, copies int) map[string]bool {
	t.Helper()
	address := process.Await(`http=(http://\S+)`)[1] + "/v1/imports"
	forms := worstForms()
	var names []string
	for name := range forms {
		names = append(names, slices.Repeat([]string{name}, copies)...)
	}
	slices.Sort(names)
	var mu sync.Mutex
	ids := map[string]bool{}
	for batch := range slices.Chunk(names, atOnce) {
		var arrived, done sync.WaitGroup
		arrived.Add(len(batch))
		for i, name := range batch {
			done.Go(func() {
				form := forms[name](i)
				body := &held{Reader: bytes.NewReader(form), arrived: &arrived}
				defer body.once.Do(arrived.Done) // when it was refused before all of it has arrived
				status, answer := post(t, address, body)
				for n := 0; status == http.StatusServiceUnavailable && n < 100; n++ { // the server has no time
					status, answer = post(t, address, bytes.NewReader(form))
				}
				var job imports.Job
				if status == http.StatusAccepted && json.Unmarshal(answer, &job) == nil {
					mu.Lock()
					ids[job.JobID] = true
					mu.Unlock()
				}
				t.Logf("%s: %d %.100s: %d MiB", name, status, answer, peak(t, process.PID())>>20)
				check.Equal(t, strings.Contains(name, "."), status == http.StatusAccepted, fmt.Sprintf("%s: %d: %.200s", name, status, answer))
			})
		}
		done.Wait()
	}
	return ids
}

// post hands in a form. The status is 0 when the connection ended before the form, because that was refused.
func post(t *testing.T, address string, body io.Reader) (status int, answer []byte) {
	t.Helper()
	r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, address, io.MultiReader(body, strings.NewReader(end))))(t)
	r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	check.OK(t, err)
	return resp.StatusCode, answer
}

// held is the beginning of a form. Its end waits for those of the others.
type held struct {
	io.Reader

	arrived *sync.WaitGroup
	once    sync.Once
}

// Read implements io.Reader.
func (h *held) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if err == io.EOF {
		h.once.Do(h.arrived.Done)
		h.arrived.Wait()
	}
	return n, err
}

func TestMain(m *testing.M) { crash.Main(m, 4, importers, bounded) }

// endless is a program tesseract that reads photos, with its own program, for longer than any test lasts.
const endless = `#!/bin/sh
case "$*" in *--list-langs*) echo List; echo eng; exit 0;; esac
sleep 10000 &
echo $! >> AT_WORK
wait
`

// While one large photo takes all the memory for large sources, and more of them wait than there are slots, another user's text is
// imported. When the photo's job is cancelled, its processes end, and another photo has its memory and its slot.
func TestLargeSourcesKeepNobodyOut(t *testing.T) {
	t.Parallel()
	programs, site := t.TempDir(), worstSite(t)
	atWork := filepath.Join(programs, "at-work")
	testbed.WriteProgram(t, filepath.Join(programs, "tesseract"), strings.ReplaceAll(endless, "AT_WORK", atWork))
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	process := bounded.Start(t, boundedDuty{Path: programs + ":" + os.Getenv("PATH"), TempDir: t.TempDir(), URL: srv.URL()})
	api := process.Await(`http=(http://\S+)`)[1] + "/v1/imports"
	submit := func(owner, name string) string {
		return ask(t, http.MethodPost, api, fmt.Sprintf(`{"owner_id":%q,"url":%q}`, owner, site.URL+name)).JobID
	}
	awaitWork := func(n int) (pid int) {
		check.Until(t, time.Minute, fmt.Sprintf("photo %d is read", n), func() bool {
			data, _ := os.ReadFile(atWork) // is made by the first
			pids := strings.Fields(string(data))
			if len(pids) == n {
				pid = check.Must(strconv.Atoi(pids[n-1]))(t)
			}
			return pid > 0
		})
		return pid
	}
	first := submit("ada", "/first/cmyk.jpg")
	pid := awaitWork(1)
	for n := range 10 {
		submit("ada", fmt.Sprintf("/%d/cmyk.jpg", n))
	}
	text := submit("bob", "/bob/text.vtt")
	check.Until(t, time.Minute, "the text is imported",
		func() bool { return ask(t, http.MethodGet, api+"/"+text, "").Status == contracts.ImportReady })
	ask(t, http.MethodPost, api+"/"+first+"/cancel", "")
	check.Until(t, time.Minute, "the program has ended", func() bool { return unix.Kill(pid, 0) != nil })
	awaitWork(2)
	process.Stop()
}
