package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/peterstace/simplefeatures/geom"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// programEnv makes the test binary the program itself.
const programEnv = "GEOPROCESSOR_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		err := run(ctx, os.Args[1:], os.Stdout)
		stop()
		if err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// program is a process of the program.
type program struct {
	cmd   *exec.Cmd
	lines chan string
	all   []string
	mu    sync.Mutex
}

func start(t *testing.T, url string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.CommandContext(t.Context(), os.Args[0], args...), lines: make(chan string, 1000)}
	p.cmd.Env = append(os.Environ(), programEnv+"=1", "NATS_URL="+url)
	p.cmd.Stderr = t.Output()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.mu.Lock()
			p.all = append(p.all, s.Text())
			p.mu.Unlock()
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-read
		_ = p.cmd.Wait()
	})
	return p
}

// says waits for a line that matches.
func (p *program) says(t *testing.T, pattern string) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				t.Fatalf("the program ended without saying %s", pattern)
			}
			if regexp.MustCompile(pattern).MatchString(line) {
				return
			}
		case <-timeout:
			t.Fatalf("the program does not say %s", pattern)
		}
	}
}

func (p *program) count(text string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(strings.Join(p.all, "\n"), text)
}

// A worker is killed in the middle of a job. Another, which waits for the same inputs for a job of its own, takes over; the job
// of the killed one is delivered again and gets that result. It was computed to its end once, and one result was accepted.
func TestWorkerIsKilledInMidJob(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	me, err := newProcessor(t.Context(), js, io.Discard, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer me.flight.Close()
	jobs, err := sampleJobs("first")
	if err != nil {
		t.Fatal(err)
	}
	job, same := jobs[2], jobs[2]
	same.ID = "second-all"
	key, err := me.caches["union"].Key(job)
	if err != nil {
		t.Fatal(err)
	}
	accepted := countResults(t, me.flight, key)

	doomed := start(t, srv.URL(), "-slow", "1h", "-concurrency", "1", "work")
	if err := enqueue(t.Context(), js, job); err != nil {
		t.Fatal(err)
	}
	doomed.says(t, "^first-all: executing union")
	heir := start(t, srv.URL(), "work")
	if err := enqueue(t.Context(), js, same); err != nil {
		t.Fatal(err)
	}
	heir.says(t, `^union\..*: waiting for `)
	killed := time.Now()
	if err := doomed.cmd.Process.Kill(); err != nil { // SIGKILL
		t.Fatal(err)
	}
	heir.says(t, `^union\..*: taken over from .*, which is gone`)
	t.Logf("taken over %s after the kill", time.Since(killed).Round(time.Millisecond))
	heir.says(t, "^second-all: union computed")
	heir.says(t, "^first-all: union cached, .* computed for second-all")

	for _, j := range []Job{job, same} {
		out, slot, err := me.result(t.Context(), j)
		if err != nil || slot.Attempt != 2 || slot.Job != "second-all" || out.Geometry.IsEmpty() {
			t.Errorf("%s: got %+v, %+v, %v", j.ID, out, slot, err)
		}
	}
	if err := me.idle(t.Context(), js); err != nil {
		t.Error(err)
	}
	if n := doomed.count("computed") + heir.count("union computed"); n != 1 {
		t.Errorf("computed %d times", n)
	}
	if n := heir.count("executing"); n != 1 {
		t.Errorf("executed %d times after the kill", n)
	}
	if n := accepted(); n != 1 {
		t.Errorf("%d results were accepted", n)
	}
	if err := heir.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	heir.says(t, "^Total entries: +1 ")
	heir.says(t, "1 take-overs")
}

// countResults counts the results that the bucket accepts for key, by its own pushes.
func countResults(t *testing.T, f *kvlock.Flight, key string) func() int {
	t.Helper()
	w, err := f.Watch(key)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	n, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		defer w.Close()
		for {
			slot, err := w.Next(ctx)
			if err != nil {
				return
			}
			if slot.State == kvlock.Done {
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
	if err := run(t.Context(), []string{"demo"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"monday-wet: intersection computed", "tuesday-wet: intersection cached", "Total entries:    3 (0 being computed)", "Expiring in 24h:  1\n",
		"intersection    1, kept for 336h0m0s", "3 computed, 0 failed",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func shape(t *testing.T, text string) geom.Geometry {
	t.Helper()
	var g geom.Geometry
	if err := json.Unmarshal([]byte(text), &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// On the equator in the middle of a UTM zone lengths are 0.04 % short, and a degree is 111 km.
func TestOperations(t *testing.T) {
	t.Parallel()
	point := shape(t, `{"type":"Point","coordinates":[33,0]}`)
	square := shape(t, `{"type":"Polygon","coordinates":[[[33,0],[33.02,0],[33.02,0.02],[33,0.02],[33,0]]]}`)
	right := shape(t, `{"type":"Polygon","coordinates":[[[33.01,0],[33.03,0],[33.03,0.02],[33.01,0.02],[33.01,0]]]}`)
	far := shape(t, `{"type":"Point","coordinates":[33.5,0.5]}`)
	side := 0.02 * 111_300.0
	for name, tt := range map[string]struct {
		process string
		in      Inputs
		area    float64
	}{
		"buffer":             {"buffer", Inputs{Distance: 100, Geometries: []geom.Geometry{point}}, math.Pi * 100 * 100},
		"union":              {"union", Inputs{Geometries: []geom.Geometry{square, right}}, 1.5 * side * side},
		"union of one":       {"union", Inputs{Geometries: []geom.Geometry{square}}, side * side},
		"intersection":       {"intersection", Inputs{Geometries: []geom.Geometry{square, right}}, 0.5 * side * side},
		"empty intersection": {"intersection", Inputs{Geometries: []geom.Geometry{square, far}}, 0},
	} {
		for _, p := range processes() {
			if p.name != tt.process {
				continue
			}
			out, err := p.compute(t.Context(), tt.in)
			if err != nil || math.Abs(out.Area-tt.area) > 0.02*tt.area {
				t.Errorf("%s: got %.0f m², %v; want about %.0f", name, out.Area, err, tt.area)
			}
			if err := out.Geometry.Validate(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for _, p := range processes() {
		for _, in := range []Inputs{
			{},
			{Distance: -1, Geometries: []geom.Geometry{{}}},
			{Distance: 1, Geometries: []geom.Geometry{point, point, point}},
			{Geometries: []geom.Geometry{shape(t, `{"type":"Point","coordinates":[0,89]}`)}},
		} {
			if _, err := p.compute(t.Context(), in); !errors.Is(err, errInputs) && (p.name != "union" || len(in.Geometries) != 3) {
				t.Errorf("%s of %+v: got %v", p.name, in, err)
			}
		}
	}
}
