package source_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/source/sourcetest"
)

// A worker that is killed while yt-dlp is at work leaves no process, and its folder goes when the next one starts.
func TestWorkerKilledWhileFetching(t *testing.T) {
	if dir := os.Getenv("SOURCE_TEST_WORKER"); dir != "" { // this is the worker
		s := sources(t, source.Config{TempDir: dir, YouTube: &source.YouTube{
			CAFile: os.Getenv("SOURCE_TEST_CA"), Proxy: os.Getenv("SOURCE_TEST_PROXY"), SocketTimeout: time.Hour, Timeout: time.Hour,
		}})
		_, err := s.Fetch(t.Context(), watch("stalling000"), nil)
		t.Fatal(err) // it was to be killed long before
		return
	}
	t.Parallel()
	y, _, dir := tube(t, map[string]sourcetest.Video{"stalling000": {Stall: true}})
	worker := exec.Command(os.Args[0], "-test.run=^TestWorkerKilledWhileFetching$")
	worker.Env = append(os.Environ(), "SOURCE_TEST_WORKER="+dir, "SOURCE_TEST_CA="+y.CAFile, "SOURCE_TEST_PROXY="+y.Proxy)
	worker.Stdout, worker.Stderr, worker.WaitDelay = t.Output(), t.Output(), time.Minute
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "yt-dlp asks for the video", func() bool { return y.Looks("stalling000") > 0 })
	if _, err := os.Stat("/proc/self/cwd"); err == nil && len(sourcetest.AtWork(dir)) == 0 {
		t.Error("no process is seen to be at work: the test would not see one that is left")
	}
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	worker.Wait()
	await(t, "yt-dlp is gone", func() bool { return len(sourcetest.AtWork(dir)) == 0 })
	if _, err := source.New(source.Config{TempDir: dir}); err != nil {
		t.Fatal(err)
	}
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
