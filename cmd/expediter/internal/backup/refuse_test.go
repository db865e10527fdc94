package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// A backup that is not what it was makes no stream, and the error names the file.
func TestABackupThatIsNotAsItWasIsRefused(t *testing.T) {
	t.Parallel()
	_, from := applied(t)
	fill(t, from)
	whole := t.TempDir()
	must(t, Write(t.Context(), config(from, whole), nothing))
	_, to := listening(t)
	change := func(name, from, to string) func(dir string) error {
		return func(dir string) error {
			data, err := os.ReadFile(filepath.Join(dir, name))
			return errors.Join(err, os.WriteFile(filepath.Join(dir, name), bytes.Replace(data, []byte(from), []byte(to), 1), 0o600))
		}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, nil, 0o600))
	for name, test := range map[string]struct {
		file   string
		want   error
		damage func(dir string) error
	}{
		"no manifest":    {manifestName, ErrIncomplete, func(dir string) error { return os.Remove(filepath.Join(dir, manifestName)) }},
		"a bad manifest": {manifestName, ErrCorrupt, change(manifestName, "{", "")},
		"newer format":   {manifestName, ErrFormat, change(manifestName, `"format": 1`, `"format": 2`)},
		"unknown field":  {manifestName, ErrCorrupt, change(manifestName, `"format": 1`, `"format": 1, "more": 1`)},
		"path":           {manifestName, ErrCorrupt, change(manifestName, `"name": "EVENTS"`, `"name": "../EVENTS"`)},
		"listed twice":   {manifestName, ErrCorrupt, change(manifestName, `"name": "EVENTS"`, `"name": "KV_enrich"`)},
		"bytes": {"EVENTS.snapshot", ErrCorrupt, func(dir string) error {
			data, err := os.ReadFile(filepath.Join(dir, "EVENTS.snapshot"))
			data[len(data)/2] ^= 1
			return errors.Join(err, os.WriteFile(filepath.Join(dir, "EVENTS.snapshot"), data, 0o600))
		}},
		"truncated": {"EVENTS.snapshot", ErrCorrupt, func(dir string) error { return os.Truncate(filepath.Join(dir, "EVENTS.snapshot"), 100) }},
		"longer":    {"EVENTS.snapshot", ErrCorrupt, func(dir string) error { return os.Truncate(filepath.Join(dir, "EVENTS.snapshot"), 1<<20) }},
		"missing":   {"KV_jobs.snapshot", ErrCorrupt, func(dir string) error { return os.Remove(filepath.Join(dir, "KV_jobs.snapshot")) }},
		"foreign":   {"notes.txt", ErrForeign, func(dir string) error { return os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600) }},
		"link": {"KV_jobs.snapshot", nil, func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "KV_jobs.snapshot")), os.Symlink(outside, filepath.Join(dir, "KV_jobs.snapshot")))
		}},
	} {
		dir := filepath.Join(t.TempDir(), "copy")
		must(t, os.CopyFS(dir, os.DirFS(whole)))
		must(t, test.damage(dir))
		err := Restore(t.Context(), config(to, dir), nothing)
		file, ok := errors.AsType[*FileError](err)
		check.That(t, ok && file.File == test.file && (test.want == nil || errors.Is(err, test.want)),
			"%s: got %v, want %v of %s", name, err, test.want, test.file)
	}
	info, err := to.AccountInfo(t.Context())
	check.That(t, err == nil && info.Streams == 0, "streams were made: %+v, %v", info, err)
	check.Is(t, Write(t.Context(), config(from, whole), nothing), ErrNotEmpty)
}

// A backup that is killed leaves no manifest. A restore that is killed, wherever that is, is repeated and ends well.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	srv, from := applied(t)
	fill(t, from)
	random := crash.Random(t)(0)
	for i := range 40 { // so that one stream is sent in many parts
		publish(t, from, fmt.Sprintf("$KV.recipes.%d", i), incompressible(random, 200_000))
	}
	cut := t.TempDir()
	p := command.Start(t, task{Dir: cut, Hold: 5, URL: srv.URL()})
	p.Await("held")
	p.Kill()
	check.Is(t, Restore(t.Context(), config(from, cut), nothing), ErrIncomplete)
	dir := t.TempDir()
	must(t, Write(t.Context(), config(from, dir), nothing))
	target, to := listening(t)
	for range 3 {
		p := command.Start(t, task{Dir: dir, Hold: 1 + random.IntN(60), Restore: true, URL: target.URL()})
		p.Await("held")
		p.Kill()
	}
	must(t, Restore(t.Context(), config(to, dir), nothing))
	for _, name := range all(contracts.Services()) {
		was, is := contents(t, from, name), contents(t, to, name)
		check.That(t, was == is, "%s was\n%.2000sand is\n%.2000s", name, was, is)
	}
}

// incompressible returns a text of n letters that does not become smaller.
func incompressible(random *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('!' + random.IntN(90))
	}
	return string(b)
}

// A subject that the server, or a stranger in its place, names is used only where it belongs to the stream's snapshot.
func TestForeignSubjectsAreNotPublishedTo(t *testing.T) {
	t.Parallel()
	for named, want := range map[string]string{
		"$JS.SNAPSHOT.ACK.EVENTS.x.1":        "$JS.NOTIFIER.SNAPSHOT.ACK.EVENTS.x.1",
		"$JS.SNAPSHOT.ACK.DEAD.x.1":          "",
		"$JS.SNAPSHOT.RESTORE.EVENTS.x":      "",
		"$JS.API.STREAM.DELETE.EVENTS":       "",
		"$JS.ENRICHER.SNAPSHOT.ACK.EVENTS.x": "",
		"x.$JS.SNAPSHOT.ACK.EVENTS.x":        "",
	} {
		got, err := Config{Account: "NOTIFIER"}.subject("ACK", "EVENTS", named)
		check.That(t, got == want && (err == nil) == (want != ""), "%s: got %q, %v, want %q", named, got, err, want)
	}
}

// A snapshot that ends before its last entry is no snapshot, also when all its bytes are sound.
func TestASnapshotWithoutAnEndIsRefused(t *testing.T) {
	t.Parallel()
	var sound bytes.Buffer
	compressed := s2.NewWriter(&sound)
	must(t, archive.NewWriter(compressed).WriteHeader(&archive.Header{Name: "events.a", Sequence: 1}))
	must(t, compressed.Close())
	s := Stream{}
	err := s.copy(archive.NewWriter(io.Discard), archive.NewReader(s2.NewReader(&sound)))
	check.Is(t, err, io.ErrUnexpectedEOF)
}
