package main

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

func TestMain(m *testing.M) { crash.Main(m, 1, programs) }

// programs are processes of the program.
var programs = crash.Role[invocation]{Name: "geoprocessor", Run: func(ctx context.Context, is invocation) error {
	if err := os.Setenv("NATS_URL", is.URL); err != nil {
		return err
	}
	return run(ctx, is.Args, os.Stdout)
}}

type invocation struct {
	Args []string
	URL  string
}

// A worker is killed in the middle of a job. Another, which waits for the same inputs for its own job, takes over; the job
// of the killed one is delivered again and gets that result. It was computed to its end once, and one result was accepted.
func TestWorkerIsKilledInMidJob(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	me := check.Must(newProcessor(t.Context(), js, io.Discard, 0))(t)
	defer me.flight.Close()
	jobs := check.Must(sampleJobs("first"))(t)
	job, same := jobs[2], jobs[2]
	same.ID = "second-all"
	key := check.Must(me.caches["union"].Key(job))(t)
	accepted := countResults(t, me.flight, key)

	doomed := programs.Start(t, invocation{[]string{"-slow", "1h", "-concurrency", "1", "work"}, srv.URL()})
	check.OK(t, enqueue(t.Context(), js, job))
	doomed.Await("^first-all: executing union")
	heir := programs.Start(t, invocation{[]string{"work"}, srv.URL()})
	check.OK(t, enqueue(t.Context(), js, same))
	heir.Await(`^union\..*: waiting for `)
	killed := time.Now()
	doomed.Kill()
	heir.Await(`^union\..*: taken over from .*, which is gone`)
	t.Logf("taken over %s after the kill", time.Since(killed).Round(time.Millisecond))
	heir.Await("^second-all: union computed")
	heir.Await("^first-all: union cached, .* computed for second-all")

	for _, j := range []Job{job, same} {
		out, entry, err := me.result(t.Context(), j)
		check.That(t, err == nil && entry.Attempt == 2 && entry.Job == "second-all" && !out.Geometry.IsEmpty(),
			"%s: got %+v, %+v, %v", j.ID, out, entry, err)
	}
	check.ErrorIs(t, me.idle(t.Context(), js), nil)
	check.Equal(t, strings.Count(doomed.Output(), "computed")+strings.Count(heir.Output(), "union computed"), 1, "computed times")
	check.Equal(t, strings.Count(heir.Output(), "executing"), 1, "executed times after the kill")
	check.Equal(t, accepted(), 1, "results were accepted")
	heir.Stop()
	heir.Await("^Total entries: +1 ")
	heir.Await("1 take-overs")
}

// countResults counts the results that the bucket accepts for key, by its own pushes.
func countResults(t *testing.T, f *flight.Flight, key string) func() int {
	t.Helper()
	w := check.Must(f.Watch(key))(t)
	ctx, stop := context.WithCancel(t.Context())
	n, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		defer w.Close()
		for {
			entry, err := w.Next(ctx)
			if err != nil {
				return
			}
			if entry.State == flight.Done {
				n++
			}
		}
	}()
	return func() int {
		stop()
		<-ended
		return n
	}
}

func TestDemo(t *testing.T) {
	t.Setenv("NATS_URL", "")
	var out strings.Builder
	check.OK(t, run(t.Context(), []string{"demo"}, &out))
	check.Contains(t, out.String(),
		"monday-wet: intersection computed", "tuesday-wet: intersection cached", "Total entries:    3 (0 being computed)", "Expiring in 24h:  1\n",
		"intersection    1, kept for 336h0m0s", "3 computed, 0 failed",
	)
	if t.Failed() {
		t.Log(out.String())
	}
}
