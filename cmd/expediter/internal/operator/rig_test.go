// Package operator_test breaks deployments, and checks what the overview of the console, doctor and the alerts say about it.
package operator_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/cmd/expediter/internal/doctor"
	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
)

var (
	only     = flag.String("operator.only", "", "check the faults whose names match")
	patience = flag.Duration("operator.patience", 3*time.Minute, "for how long a fault may stay unnamed")
	healthy  = flag.Duration("operator.healthy", 5*time.Second, "for how long healthy load must raise no alarm")
)

func TestMain(m *testing.M) { crash.Main(m, 4, programs) }

// program is a process with a worker, whose jobs do what their payload says until the file Fixed exists, and then end well.
type program struct {
	queue

	Fixed, URL string
	Limit      string
	Timeout    time.Duration
}

// queue is a stream and its consumer.
type queue struct {
	Consumer, Pattern, Stream string
	Own                       bool // a user's, made by worker.StreamConfig; else the importer's
}

func (q queue) subject(id any) string {
	return strings.TrimSuffix(q.Pattern, ">") + fmt.Sprint(id)
}

var queues = []queue{
	{Consumer: "importer", Pattern: "jobs.import.normal.>", Stream: contracts.StreamImportJobs},
	{Consumer: "work", Pattern: "work.do.>", Stream: "WORK", Own: true},
}

var programs = crash.Role[program]{Name: "program", Run: func(ctx context.Context, p program) error { return p.run(ctx) }}

// run prints the address of the metrics when the worker pulls.
func (p program) run(ctx context.Context) error {
	nc, err := nats.Connect(p.URL, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer nc.Close()
	exports, err := export.Start(ctx, export.Config{Service: p.Consumer})
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	cfg := worker.Config{Bucket: contracts.BucketJobs, Consumer: p.Consumer, Logger: log, Stream: p.Stream, StuckAfter: 100 * time.Millisecond}
	if !p.Own {
		base := service.BaseConfig{Exports: exports, Listen: "127.0.0.1:0", Logger: log, MaxBytes: 1 << 30}
		s, err := service.Start(ctx, nc, service.Spec{
			Config: base.WithDefaults(service.None, 100), Description: "Imports", Name: contracts.ServiceImporter, Routes: func(*service.Router) {},
			Endpoints: func() []service.Endpoint { return nil }, Streams: []string{contracts.StreamDead, p.Stream, "KV_" + contracts.BucketJobs},
			Open: func(_ context.Context, s *service.Service) error {
				w, err := s.Worker("worker", cfg)
				if err != nil {
					return err
				}
				return p.handle(w)
			},
		})
		if err != nil {
			return err
		}
		return errors.Join(serve(ctx, s.URL()+"/metrics"), s.Stop())
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	telemetry, err := natsotel.New(natsotel.Config{MeterProvider: exports.Meters, Propagator: exports.Propagator, TracerProvider: exports.Tracers})
	if err != nil {
		return err
	}
	cfg.Middleware, cfg.Hooks = []worker.Middleware{telemetry.Middleware}, telemetry.Hooks(cfg)
	w, err := worker.New(js, cfg)
	if err != nil {
		return err
	}
	if err := p.handle(w); err != nil {
		return err
	}
	web := httptest.NewServer(exports.Metrics)
	defer web.Close()
	var ended error
	done := make(chan struct{})
	go func() { defer close(done); ended = w.Run(ctx) }()
	err = serve(ctx, web.URL)
	<-done
	return errors.Join(err, ended)
}

func serve(ctx context.Context, url string) error {
	_, err := fmt.Fprintln(os.Stdout, url)
	<-ctx.Done()
	return err
}

func (p program) handle(w *worker.Worker) error {
	policy := worker.Policy{Backoff: func(int) time.Duration { return time.Second }, MaxAttempts: 1000, Timeout: p.Timeout}
	if p.Limit != "" {
		policy.Limits = []worker.Limit{{Name: p.Limit, Concurrency: 1}}
	}
	return worker.Handle(w, p.Pattern, policy, func(ctx context.Context, job *worker.Job[string]) error {
		fixed := func() bool { _, err := os.Stat(p.Fixed); return err == nil }
		if fixed() {
			return nil
		}
		switch job.Args {
		case "fail":
			return errors.New("bank: 503 Service Unavailable")
		case "discard":
			return worker.Discard(errors.New("bank: 404 Not Found"))
		case "poison":
			os.Exit(3)
		case "once": // a failure now and then is healthy
			if job.Attempt == 1 {
				return errors.New("bank: 429 Too Many Requests")
			}
		case "snooze":
			if job.Deliveries == 1 {
				return worker.Snooze(time.Second)
			}
		case "stuck":
			for !fixed() { // ignores its end
				<-time.After(50 * time.Millisecond)
			}
		case "hold":
			for !fixed() {
				select {
				case <-ctx.Done():
					return worker.Snooze(time.Second)
				case <-time.After(50 * time.Millisecond):
				}
			}
		}
		return nil
	})
}

// rig is a deployment with a console, of which one queue is broken.
type rig struct {
	*testing.T
	queue

	cluster        *natsrun.Cluster // nil for a single server
	console, fixed string
	exported       string // the address of the console's metrics
	js             jetstream.JetStream
	metrics        map[*crash.Process]string // addresses of the programs that run
	replicas       int
	undo           func()
	url            string
}

func newRig(t *testing.T, q queue, url string, replicas int) *rig {
	t.Helper()
	r := &rig{T: t, queue: q, fixed: filepath.Join(t.TempDir(), "fixed"), metrics: map[*crash.Process]string{}, replicas: replicas, url: url}
	nc, js := natstest.ConnectURL(t, url, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	r.js = js
	r.apply()
	if q.Own {
		r.makeOwn()
	}
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "console"}))(t)
	t.Cleanup(func() { check.OK(t, exports.Stop(context.WithoutCancel(t.Context()))) })
	c, err := console.New(console.Config{
		Accounts: []console.Account{{JetStream: js}}, Conn: nc, Logger: slog.New(slog.DiscardHandler), Meters: exports.Meters, ReadOnly: true,
	})
	check.OK(t, err)
	web, metrics := httptest.NewServer(c), httptest.NewServer(exports.Metrics)
	t.Cleanup(web.Close)
	t.Cleanup(metrics.Close)
	t.Cleanup(natstest.Background(t, c.Run))
	r.console, r.exported = web.URL, metrics.URL
	return r
}

func (r *rig) options() contracts.AssetOptions {
	services := []string{contracts.ServiceLock}
	if !r.Own {
		services = append(services, contracts.ServiceImporter)
	}
	return contracts.AssetOptions{MaxBytes: 1 << 30, Replicas: r.replicas, Services: services}
}

// apply makes what the services need.
func (r *rig) apply() {
	r.Helper()
	check.OK(r.T, check.Err(provision.Apply(r.Context(), r.js, contracts.Assets(r.options()), provision.Options{})))
	check.OK(r.T, check.Err(provision.ApplyConsumers(r.Context(), r.js, provision.Consumers(r.options()), provision.Options{})))
}

// makeOwn makes the stream and the consumer of a user.
func (r *rig) makeOwn() {
	cfg := worker.StreamConfig(r.Stream, "work.>")
	cfg.Replicas = r.replicas
	check.OK(r.T, check.Err(r.js.CreateOrUpdateStream(r.Context(), cfg)))
	w, err := worker.New(r.js, worker.Config{AutoCreate: true, Consumer: r.Consumer, Stream: r.Stream, Logger: slog.New(slog.DiscardHandler)})
	check.OK(r.T, err)
	check.OK(r.T, worker.Handle(w, r.Pattern, worker.Policy{}, func(context.Context, *worker.Job[string]) error { return nil }))
	stop := natstest.Background(r.T, w.Run)
	check.Until(r.T, crash.Patience, "the consumer, bucket and stream of dead letters exist", func() bool {
		_, consumer := r.js.Consumer(r.Context(), r.Stream, r.Consumer)
		_, bucket := r.js.Stream(r.Context(), "KV_"+contracts.BucketJobs)
		_, dead := r.js.Stream(r.Context(), contracts.StreamDead)
		return errors.Join(consumer, bucket, dead) == nil
	})
	stop()
}

// start starts a program.
func (r *rig) start(change ...func(*program)) *crash.Process {
	r.Helper()
	of := program{queue: r.queue, Fixed: r.fixed, URL: r.url}
	for _, f := range change {
		f(&of)
	}
	p := programs.Start(r.T, of)
	r.metrics[p] = p.Line()
	return p
}

// publish stores n jobs.
func (r *rig) publish(do string, n int) {
	r.Helper()
	for i := range n {
		check.OK(r.T, check.Err(r.js.Publish(r.Context(), r.subject(fmt.Sprint(do, "-", i, "-", time.Now().UnixNano())), fmt.Appendf(nil, "%q", do))))
	}
}

// restore makes all jobs end well. A program takes the place of each one that died, and one stays.
func (r *rig) restore() {
	r.Helper()
	check.OK(r.T, os.WriteFile(r.fixed, nil, 0o600))
	last := r.start()
	for p := range maps.Clone(r.metrics) {
		if p.Ended() {
			delete(r.metrics, p)
			r.start()
		}
	}
	r.stopAll(last)
}

// stopAll stops all programs but some.
func (r *rig) stopAll(but ...*crash.Process) {
	for p := range maps.Clone(r.metrics) {
		if !slices.Contains(but, p) {
			_ = p.Process.Stop() // a worker whose handler is stuck ends with an error
			delete(r.metrics, p)
		}
	}
}

// places returns the records of the service's instances that were written before or after a time. Vacant ones are left out.
func (r *rig) places(at time.Time, after bool) (subjects []string) {
	stream := check.Must(r.js.Stream(r.Context(), "KV_"+contracts.BucketJobs))(r.T)
	for n := range 64 {
		m, err := stream.GetLastMsgForSubject(r.Context(), fmt.Sprintf("$KV.%s.ready.%s-%d", contracts.BucketJobs, r.Consumer, n))
		if err == nil && len(m.Data) > 0 && m.Time.After(at) == after {
			subjects = append(subjects, m.Subject)
		}
	}
	return subjects
}

// attended waits until n instances of the service have a place, without which nobody misses them: one takes it some seconds after another
// has left.
func (r *rig) attended(n int) {
	r.Helper()
	began := time.Now()
	check.Until(r.T, crash.Patience, "the instances have places", func() bool { return len(r.places(began, true)) == n })
}

func (r *rig) overview() string {
	client := &http.Client{}
	resp, err := client.Get(r.console + "/")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

// examine returns doctor's findings about the deployment.
func (r *rig) examine() (texts []string) {
	report := doctor.Run(r.Context(), doctor.Config{
		Assets: r.options(), Server: r.url,
		Connect: func(o ...nats.Option) (*nats.Conn, error) { return nats.Connect(r.url, o...) },
	})
	for _, f := range report.Findings {
		texts = append(texts, fmt.Sprintf("%s %s: %s", f.ID, f.Of, f.Problem))
	}
	return texts
}

var sample = regexp.MustCompile(`(?m)^(\w+?)(?:\{(.*)\})? (\S+)$`)

// scrape returns the values of the metrics of the programs and the console by their series; what does not answer has only up.
func (r *rig) scrape() map[string]float64 {
	all, client := map[string]float64{}, &http.Client{}
	targets := map[string]string{r.exported: "console"} // the jobs, by their addresses
	for _, url := range r.metrics {
		targets[url] = r.Consumer
	}
	for url, job := range targets {
		labels := fmt.Sprintf(`job=%q,instance=%q`, job, url)
		up := "up{" + labels + "}"
		all[up] = 0
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		resp, err := client.Do(req)
		if err == nil {
			all[up] = 1
			body, _ := io.ReadAll(resp.Body)
			for _, m := range sample.FindAllStringSubmatch(string(body), -1) {
				if v, err := strconv.ParseFloat(m[3], 64); err == nil && !strings.HasSuffix(m[1], "_bucket") {
					all[fmt.Sprintf("%s{%s}", m[1], strings.Trim(labels+","+m[2], ","))] = v
				}
			}
			check.OK(r.T, resp.Body.Close())
		}
		cancel()
	}
	return all
}

var fired = regexp.MustCompile(`alertname="(\w+)"`)

// alerts returns the alerts that fire within 70 minutes if the fault lasts: ages grow, and counters as between two scrapes of it.
func (r *rig) alerts(before, first, second map[string]float64) []string {
	path := check.Must(filepath.Abs("../../../../deploy/prometheus/rules.yaml"))(r.T)
	rules := string(check.Must(os.ReadFile(path))(r.T))
	text := fmt.Sprintf("rule_files: [%q]\nevaluation_interval: 5s\ntests:\n- interval: 5s\n  input_series:\n", path)
	names := maps.Clone(before)
	maps.Copy(names, second)
	for name := range names {
		metric, _, _ := strings.Cut(name, "{")
		if !strings.Contains(rules, metric) {
			continue
		}
		was, until := "_", "_"
		if v, ok := before[name]; ok {
			was = fmt.Sprint(v)
		}
		if v, ok := second[name]; ok {
			until = fmt.Sprint(v)
			if a, known := first[name]; known && v > a && strings.HasSuffix(metric, "_total") {
				until = fmt.Sprintf("%g+%g", v, v-a)
			} else if v > 0 && strings.HasSuffix(metric, "_age_seconds") {
				until += "+5"
			}
		}
		text += fmt.Sprintf("  - {series: '%s', values: '%sx120 %sx840'}\n", strings.ReplaceAll(name, "'", "''"), was, until)
	}
	text += "  promql_expr_test:\n  - {expr: 'count by (alertname) (count_over_time(ALERTS{alertstate=\"firing\"}[70m]))', eval_time: 80m}\n"
	file := filepath.Join(r.TempDir(), "alerts.yaml")
	check.OK(r.T, os.WriteFile(file, []byte(text), 0o600))
	command := exec.CommandContext(r.Context(), testbed.Promtool.Find(r.T)[0], "test", "rules", file)
	out, _ := command.CombinedOutput() // it fails with what fires
	check.That(r.T, !strings.Contains(string(out), "yaml:"), "%s", out)
	var all []string
	for _, m := range fired.FindAllStringSubmatch(string(out), -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}
