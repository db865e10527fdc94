package source_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/source/sourcetest"
)

// A worker that is killed while yt-dlp is at work leaves no process, and its folder goes when the next one starts.
func TestWorkerKilledWhileFetching(t *testing.T) {
	type task struct{ CAFile, Proxy, TempDir string }
	child.Main("fetcher", func(ctx context.Context, is task) error {
		s := sources(t, source.Config{TempDir: is.TempDir, YouTube: &source.YouTube{
			CAFile: is.CAFile, Proxy: is.Proxy, SocketTimeout: time.Hour, Timeout: time.Hour,
		}})
		_, err := s.Fetch(ctx, watch("stalling000"), nil)
		return err
	})
	t.Parallel()
	y, _, dir := tube(t, map[string]sourcetest.Video{"stalling000": {Stall: true}})
	worker, err := child.Start(t.Output(), "fetcher", task{y.CAFile, y.Proxy, dir}, "-test.run=^TestWorkerKilledWhileFetching$")
	check.OK(t, err)
	await(t, "yt-dlp asks for the video", func() bool { return y.Looks("stalling000") > 0 })
	_, err = os.Stat("/proc/self/cwd")
	check.That(t, err != nil || len(sourcetest.AtWork(dir)) != 0, "no process is seen to be at work: the test would not see one that is left")
	check.OK(t, worker.Kill())
	await(t, "yt-dlp is gone", func() bool { return len(sourcetest.AtWork(dir)) == 0 })
	check.OK(t, check.Err(source.New(source.Config{TempDir: dir})))
	wantEmpty(t, dir)
}

// await waits until something has come true, and says what when it never does.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	giveUp := time.NewTimer(time.Minute)
	defer giveUp.Stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-giveUp.C:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// Each page gives the recipe that a person reads on it.
func TestPages(t *testing.T) {
	t.Parallel()
	pages, err := sourcetest.Pages()
	check.OK(t, err)
	check.That(t, len(pages) >= 40, "%d pages", len(pages))
	for _, p := range pages {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			got, err := p.Read(t.Context())
			check.OK(t, err)
			check.Equal(t, p.Want, got)
		})
	}
}
