package importer

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/importer/source"
)

// endless is a program tesseract that reads photos, with a program of its own, for longer than any test lasts.
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
	check.OK(t, os.WriteFile(filepath.Join(programs, "tesseract"), []byte(strings.ReplaceAll(endless, "AT_WORK", atWork)), 0o700))
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
	check.Until(t, time.Minute, "the text is imported", func() bool { return ask(t, http.MethodGet, api+"/"+text, "").Status == contracts.ImportReady })
	ask(t, http.MethodPost, api+"/"+first+"/cancel", "")
	check.Until(t, time.Minute, "the program has ended", func() bool { return unix.Kill(pid, 0) != nil })
	awaitWork(2)
	process.Stop()
}

// deaf is a source that goes on until it is told, whatever its context.
type deaf struct{ end chan struct{} }

func (deaf) Identify(_ context.Context, r source.Request) (string, error) { return "web:" + r.URL, nil }

func (d deaf) Fetch(context.Context, source.Request, func(float64)) (*source.Material, error) {
	<-d.end
	return nil, context.Canceled
}

// A job that keeps its slot after its time is over is named by the check of readiness, until it has ended.
func TestAJobThatGoesOnIsSeen(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		nc, _ := natstest.Connect(t, srv)
		fetcher := deaf{make(chan struct{})}
		i := check.Must(Start(t.Context(), nc, Config{
			BaseConfig: service.BaseConfig{CreateAssets: true, Listen: "-", Logger: slog.New(slog.DiscardHandler), Concurrency: 2}, Fetcher: fetcher,
		}))(t)
		end := sync.OnceFunc(func() { close(fetcher.end) })
		defer end()
		ready := func() string { return fmt.Sprint(i.running.Ready()["worker"]) }
		for _, id := range []string{"a", "b"} {
			_, _, err := i.Submit(t.Context(), Submission{ImportJob: contracts.ImportJob{JobID: id, OwnerID: "ada", URL: "http://a.test/" + id}})
			check.OK(t, err)
		}
		check.Until(t, time.Hour, "both are named", func() bool { return strings.Contains(ready(), "2 of 2 slots") })
		end()
		check.Until(t, time.Hour, "it is ready again", func() bool { return ready() == "<nil>" })
		check.OK(t, i.Stop())
	})
}
