// Package operator_test breaks deployments, and checks what the overview of the console, doctor and the alerts say about it.
package operator_test

import (
	"context"
	"encoding/json"
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

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/cmd/expediter/internal/doctor"
	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/inspect"
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

func TestMain(m *testing.M) { crash.Main(m, 12, programs) }

// queue is a stream and its consumer.
type queue struct {
	Consumer, Pattern, Stream string
	Own                       bool // a user's, made by worker.StreamConfig; else the importer's
}

var queues = []queue{
	{Consumer: "importer", Pattern: "jobs.import.normal.>", Stream: contracts.StreamImportJobs},
	{Consumer: "work", Pattern: "work.do.>", Stream: "WORK", Own: true},
}

// program is a process with a worker, whose jobs do what their payload says until the file Fixed exists, and then end well.
type program struct {
	queue

	Fixed, Limit, URL string
	Timeout           time.Duration
}

var programs = crash.Role[program]{Name: "program", Run: func(ctx context.Context, p program) error { return p.run(ctx) }}

// reconnecting are the options of connections that outlast faults of servers.
var reconnecting = []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond)}

// run prints the address of the metrics when the worker pulls.
func (p program) run(ctx context.Context) error {
	nc, err := nats.Connect(p.URL, reconnecting...)
	if err != nil {
		return err
	}
	defer nc.Close()
	exports, err := export.Start(ctx, export.Config{Service: p.Consumer})
	if err != nil {
		return err
	}
	cfg := worker.Config{
		Bucket: contracts.BucketJobs, Consumer: p.Consumer, Logger: slog.New(slog.DiscardHandler), Stream: p.Stream,
		StuckAfter: 100 * time.Millisecond,
	}
	if !p.Own {
		return p.serve(ctx, nc, exports, cfg)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	telemetry, err := natsotel.New(natsotel.Config{
		MeterProvider: exports.Meters, Propagator: exports.Propagator, TracerProvider: exports.Tracers,
	})
	if err != nil {
		return err
	}
	cfg.Middleware, cfg.Hooks = []worker.Middleware{telemetry.Middleware}, telemetry.Hooks(cfg)
	w, err := worker.New(js, cfg)
	if err == nil {
		err = p.handle(w)
	}
	if err != nil {
		return err
	}
	web := httptest.NewServer(exports.Metrics)
	defer web.Close()
	fmt.Println(web.URL) //nolint:forbidigo // to the test
	err = w.Run(ctx)
	<-ctx.Done() // its metrics stay
	return err
}

// serve runs the worker as the importer's.
func (p program) serve(ctx context.Context, nc *nats.Conn, exports *export.Exports, cfg worker.Config) error {
	base := service.BaseConfig{Exports: exports, Listen: "127.0.0.1:0", Logger: cfg.Logger, MaxBytes: 1 << 30}
	s, err := service.Start(ctx, nc, service.Spec{
		Config: base.WithDefaults(service.None, 100), Description: "Imports", Name: contracts.ServiceImporter, Routes: func(*service.Router) {},
		Endpoints: func() []service.Endpoint { return nil }, Streams: []string{contracts.StreamDead, p.Stream, "KV_" + contracts.BucketJobs},
		Open: func(_ context.Context, s *service.Service) error {
			w, err := s.Worker("worker", cfg)
			if err == nil {
				err = p.handle(w)
			}
			return err
		},
	})
	if err != nil {
		return err
	}
	fmt.Println(s.URL() + "/metrics") //nolint:forbidigo // to the test
	<-ctx.Done()
	return s.Stop()
}

func (p program) handle(w *worker.Worker) error {
	policy := worker.Policy{Backoff: func(int) time.Duration { return time.Second }, MaxAttempts: 1000, Timeout: p.Timeout}
	if p.Limit != "" {
		policy.Limits = []worker.Limit{{Name: p.Limit, Concurrency: 1}}
	}
	return worker.Handle(w, p.Pattern, policy, func(ctx context.Context, job *worker.Job[string]) error {
		fixed := func() bool { return check.Err(os.Stat(p.Fixed)) == nil }
		switch {
		case fixed():
		case job.Args == "fail":
			return errors.New("bank: 503 Service Unavailable")
		case job.Args == "discard":
			return worker.Discard(errors.New("bank: 404 Not Found"))
		case job.Args == "poison":
			os.Exit(3)
		case job.Args == "once" && job.Attempt == 1: // a failure now and then is healthy
			return errors.New("bank: 429 Too Many Requests")
		case job.Args == "snooze" && job.Deliveries == 1:
			return worker.Snooze(time.Second)
		case job.Args == "stuck" || job.Args == "hold":
			for !fixed() {
				<-time.After(50 * time.Millisecond)
				if job.Args == "hold" && ctx.Err() != nil { // one that is stuck ignores its end
					return worker.Snooze(time.Second)
				}
			}
		}
		return nil
	})
}

// deployment is a server or a cluster with a console, and programs, of which one queue is broken.
type deployment struct {
	*testing.T
	queue

	cluster   *natsrun.Cluster // nil for a single server
	console   http.Handler
	exports   *export.Exports // of the console
	fixed     string          // the file that makes all jobs end well
	js        jetstream.JetStream
	processes map[*crash.Process]string // with the addresses of their metrics
	replicas  int
	undo      func()
	url       string
}

func newDeployment(t *testing.T, q queue, url string, replicas int) *deployment {
	t.Helper()
	d := &deployment{
		T: t, queue: q, fixed: filepath.Join(t.TempDir(), "fixed"), processes: map[*crash.Process]string{}, replicas: replicas, url: url,
	}
	nc, js := natstest.ConnectURL(t, url, reconnecting...)
	d.js = js
	d.remake()
	d.exports = check.Must(export.Start(t.Context(), export.Config{Service: "console"}))(t)
	t.Cleanup(func() { check.OK(t, d.exports.Stop(context.WithoutCancel(t.Context()))) })
	c := check.Must(console.New(console.Config{
		Accounts: []console.Account{{JetStream: js}}, Conn: nc, Logger: slog.New(slog.DiscardHandler), Meters: d.exports.Meters, ReadOnly: true,
	}))(t)
	d.console = c
	t.Cleanup(natstest.Background(t, c.Run))
	return d
}

func (d *deployment) options() contracts.AssetOptions {
	services := []string{contracts.ServiceLock}
	if !d.Own {
		services = append(services, contracts.ServiceImporter)
	}
	return contracts.AssetOptions{MaxBytes: 1 << 30, Replicas: d.replicas, Services: services}
}

// remake makes what is missing: what the services need, and the stream and the consumer of a user.
func (d *deployment) remake() {
	d.Helper()
	check.OK(d, check.Err(provision.Apply(d.Context(), d.js, contracts.Assets(d.options()), provision.Options{})))
	check.OK(d, check.Err(provision.ApplyConsumers(d.Context(), d.js, provision.Consumers(d.options()), provision.Options{})))
	if !d.Own {
		return
	}
	cfg := worker.StreamConfig(d.Stream, "work.>")
	cfg.Replicas = d.replicas
	check.OK(d, check.Err(d.js.CreateOrUpdateStream(d.Context(), cfg)))
	w := check.Must(worker.New(d.js, worker.Config{
		AutoCreate: true, Consumer: d.Consumer, Stream: d.Stream, Logger: slog.New(slog.DiscardHandler),
	}))(d)
	check.OK(d, worker.Handle(w, d.Pattern, worker.Policy{}, func(context.Context, *worker.Job[string]) error { return nil }))
	stop := natstest.Background(d.T, w.Run)
	check.Until(d, crash.Patience, "the consumer, bucket and stream of dead letters exist", func() bool {
		ctx, cancel := context.WithTimeout(d.Context(), 5*time.Second) // servers that elect the leader of a stream answer nothing about it
		defer cancel()
		_, consumer := d.js.Consumer(ctx, d.Stream, d.Consumer)
		_, bucket := d.js.Stream(ctx, "KV_"+contracts.BucketJobs)
		_, dead := d.js.Stream(ctx, contracts.StreamDead)
		return errors.Join(consumer, bucket, dead) == nil
	})
	stop()
}

// start starts a program.
func (d *deployment) start(change ...func(*program)) *crash.Process {
	d.Helper()
	of := program{queue: d.queue, Fixed: d.fixed, URL: d.url}
	for _, f := range change {
		f(&of)
	}
	p := programs.Start(d.T, of)
	d.processes[p] = p.Line()
	return p
}

// restart stops the programs and starts one that is changed.
func (d *deployment) restart(change func(*program)) {
	d.Helper()
	d.stopAll()
	d.start(change)
}

func (d *deployment) each(do func(*crash.Process)) {
	for p := range d.processes {
		do(p)
	}
}

// stopAll stops all programs but some.
func (d *deployment) stopAll(but ...*crash.Process) {
	for p := range maps.Clone(d.processes) {
		if !slices.Contains(but, p) {
			_ = p.Process.Stop() // a worker whose handler is stuck ends with an error
			delete(d.processes, p)
		}
	}
}

// publish stores n jobs.
func (d *deployment) publish(do string, n int) {
	d.Helper()
	for i := range n {
		subject := fmt.Sprint(strings.TrimSuffix(d.Pattern, ">"), do, "-", i, "-", time.Now().UnixNano())
		check.OK(d, check.Err(d.js.Publish(d.Context(), subject, fmt.Appendf(nil, "%q", do))))
	}
}

// hold makes workers run n jobs, and waits until they have them.
func (d *deployment) hold(n int) {
	d.Helper()
	d.publish("hold", n)
	check.Until(d, crash.Patience, fmt.Sprint("workers have jobs: ", n), func() bool {
		c, err := d.js.Consumer(d.Context(), d.Stream, d.Consumer)
		return err == nil && c.CachedInfo().NumAckPending >= n
	})
}

// restore makes all jobs end well. A program takes the place of each one that died, and one stays.
func (d *deployment) restore() {
	d.Helper()
	check.OK(d, os.WriteFile(d.fixed, nil, 0o600))
	last := d.start()
	for p := range maps.Clone(d.processes) {
		if p.Ended() {
			delete(d.processes, p)
			d.start()
		}
	}
	d.stopAll(last)
}

func (d *deployment) client() *worker.Client {
	return check.Must(worker.NewClient(d.js, worker.ClientConfig{AllowUntaken: true, Stream: d.Stream}))(d)
}

func (d *deployment) info(stream string) *jetstream.StreamInfo {
	d.Helper()
	return check.Must(d.js.Stream(d.Context(), stream))(d).CachedInfo()
}

// limit changes the size of the stream.
func (d *deployment) limit(bytes int64) {
	d.Helper()
	cfg := d.info(d.Stream).Config
	cfg.MaxBytes = bytes
	check.OK(d, check.Err(d.js.UpdateStream(d.Context(), cfg)))
}

func (d *deployment) purge(stream string, o ...jetstream.StreamPurgeOpt) {
	d.Helper()
	check.OK(d, check.Must(d.js.Stream(d.Context(), stream))(d).Purge(d.Context(), o...))
}

// aside is a subject that no consumer takes.
func (d *deployment) aside() string {
	return map[bool]string{false: "jobs.import.nobody.a", true: "work.nobody.a"}[d.Own]
}

// places returns the records of the service's instances that were written before or after a time. Vacant ones are left out.
func (d *deployment) places(at time.Time, after bool) (subjects []string) {
	stream := check.Must(d.js.Stream(d.Context(), "KV_"+contracts.BucketJobs))(d)
	for n := range 64 {
		m, err := stream.GetLastMsgForSubject(d.Context(), fmt.Sprintf("$KV.%s.ready.%s-%d", contracts.BucketJobs, d.Consumer, n))
		if err == nil && len(m.Data) > 0 && m.Time.After(at) == after {
			subjects = append(subjects, m.Subject)
		}
	}
	return subjects
}

// attended waits until n instances of the service have a place, without which nobody misses them: one takes it some seconds after another
// has left.
func (d *deployment) attended(n int) {
	d.Helper()
	began := time.Now()
	check.Until(d, crash.Patience, "the instances have places", func() bool { return len(d.places(began, true)) == n })
}

// answers makes a worker that says something of itself, until undo.
func (d *deployment) answers(info inspect.Info) {
	sub, err := d.js.Conn().Subscribe(inspect.SubjectInfo, func(m *nats.Msg) {
		data, _ := json.Marshal(info) // is one
		_ = m.Respond(data)
	})
	check.OK(d, errors.Join(err, d.js.Conn().Flush()))
	d.undo = func() { check.OK(d, sub.Unsubscribe()) }
}

var tag = regexp.MustCompile(`<[^>]*>`)

// problems returns the problems that the overview lists.
func (d *deployment) problems() string {
	_, list, _ := strings.Cut(get(d.Context(), d.console, "http://localhost/"), `id="main"`)
	list, _, _ = strings.Cut(list, "<table")
	return strings.Join(strings.Fields(tag.ReplaceAllString(list, " ")), " ")
}

// get returns the answer of a handler, or of a server for nil, "" for none.
func get(ctx context.Context, from http.Handler, url string) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if from != nil {
		answer := httptest.NewRecorder()
		from.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody))
		return answer.Body.String()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return ""
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return string(body)
}

// examine returns doctor's findings about the deployment.
func (d *deployment) examine() (texts []string) {
	report := doctor.Run(d.Context(), doctor.Config{
		Assets: d.options(), Server: d.url,
		Connect: func(o ...nats.Option) (*nats.Conn, error) { return nats.Connect(d.url, o...) },
	})
	for _, f := range report.Findings {
		texts = append(texts, fmt.Sprintf("%s %s: %s", f.ID, f.Of, f.Problem))
	}
	return texts
}

var sample = regexp.MustCompile(`(?m)^(\w+?)(?:\{(.*)\})? (\S+)$`)

// scrape returns the values of the metrics of the programs and the console by their series; what does not answer has only up.
func (d *deployment) scrape() map[string]float64 {
	all := map[string]float64{}
	read := func(job, url, text string) {
		labels := fmt.Sprintf(`job=%q,instance=%q`, job, url)
		all["up{"+labels+"}"] = map[bool]float64{true: 1}[text != ""]
		for _, m := range sample.FindAllStringSubmatch(text, -1) {
			if v, err := strconv.ParseFloat(m[3], 64); err == nil && !strings.HasSuffix(m[1], "_bucket") {
				all[fmt.Sprintf("%s{%s}", m[1], strings.Trim(labels+","+m[2], ","))] = v
			}
		}
	}
	read("console", "console", get(d.Context(), d.exports.Metrics, "/metrics"))
	for _, url := range d.processes {
		read(d.Consumer, url, get(d.Context(), nil, url))
	}
	return all
}

var (
	fired = regexp.MustCompile(`alertname="(\w+)"`)
	rule  = regexp.MustCompile(`(?m)^      - alert: (\w+)\n(?:        .*\n)+`)
)

// rules returns the text of the alerts with these names, or of all without names. A rule reads no other alert.
func (d *deployment) rules(names ...string) string {
	text := string(check.Must(os.ReadFile("../../../../deploy/prometheus/rules.yaml"))(d))
	some := "groups:\n  - name: some\n    rules:\n"
	for _, found := range rule.FindAllStringSubmatch(text, -1) {
		if len(names) == 0 || slices.Contains(names, found[1]) {
			some += found[0]
		}
	}
	return some
}

// input returns the unit test for promtool in which the metrics stay as they are in second for 70 minutes: ages grow, and counters as
// between first and second. It leaves out metrics that no rule reads.
func input(rules string, before, first, second map[string]float64) string {
	text := "rule_files: [rules.yaml]\nevaluation_interval: 1m\ntests:\n- interval: 15s\n  input_series:\n"
	series := maps.Clone(before)
	maps.Copy(series, second)
	for _, name := range slices.Sorted(maps.Keys(series)) {
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
				until += "+15"
			}
		}
		text += fmt.Sprintf("  - {series: '%s', values: '%sx40 %sx280'}\n", strings.ReplaceAll(name, "'", "''"), was, until)
	}
	return text + "  promql_expr_test:\n  - {expr: 'count by (alertname) (count_over_time(ALERTS{alertstate=\"firing\"}[70m]))', eval_time: 80m}\n"
}

// alerts returns the alerts of the rules that fire on an input.
func (d *deployment) alerts(rules, input string) []string {
	dir := d.TempDir()
	check.OK(d, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules), 0o600))
	file := filepath.Join(dir, "alerts.yaml")
	check.OK(d, os.WriteFile(file, []byte(input), 0o600))
	cmd := exec.CommandContext(d.Context(), testbed.Promtool.Find(d.T)[0], "test", "rules", file)
	cmd.Env = append(os.Environ(), "GOGC=off") // it has ended before its garbage matters
	out, _ := cmd.CombinedOutput()             // fails with what fires
	check.That(d, !strings.Contains(string(out), "yaml:"), "%s", out)
	var all []string
	for _, m := range fired.FindAllStringSubmatch(string(out), -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// fires waits until the alert fires, "" for none, and returns what fires: of that alert and ProblemFound, or of all with -long.
func (d *deployment) fires(fault, alert string, before, first map[string]float64) (alerts []string) {
	d.Helper()
	rules := d.rules(alert, "ProblemFound")
	if crash.Long() {
		rules = d.rules()
	}
	seen := ""
	d.until(fault+": no alert "+alert, func() bool { // services ask about their streams every 15 seconds
		if now := input(rules, before, first, d.scrape()); now != seen {
			alerts, seen = d.alerts(rules, now), now
		}
		return alert == "" || slices.Contains(alerts, alert)
	})
	return alerts
}

// fault is one that the overview, doctor and an alert name until it is fixed.
type fault struct {
	name string
	only string // the stream for which it makes sense, "" for both

	shows string // what the overview says: a regular expression
	finds string // what doctor says: its id, the thing and the problem
	alert string // of the importer, "" for that of the console
	own   string // the alert of a user's program, "" for that of the console
	calm  bool   // the overview shows a warning, for which nobody is called
	never string // what neither the overview nor doctor may say: a regular expression, "" for nothing

	// begin makes the fault, and fix ends it, before [deployment.restore].
	begin, fix func(*deployment)
}

var faults = []fault{
	{name: "all workers are killed", shows: `no worker`, finds: `worker\.gone`, alert: "ServiceDown", begin: func(d *deployment) {
		d.hold(3)
		d.each((*crash.Process).Kill)
		d.publish("hold", 3)
	}},
	{
		name: "one of two workers is killed", only: "IMPORT_JOBS", shows: `1 of 2 instances of the importer do not answer`,
		finds: `service\.missing`, alert: "ServiceDown", begin: func(d *deployment) {
			p := d.start()
			d.attended(2)
			d.hold(3)
			p.Kill()
		}, fix: func(d *deployment) { // it is not to come back
			for _, place := range d.places(time.Now().Add(-8*time.Second), false) {
				d.purge("KV_jobs", jetstream.WithPurgeSubject(place))
			}
			maps.DeleteFunc(d.processes, func(p *crash.Process, _ string) bool { return p.Ended() })
		},
	},
	{name: "the workers are frozen", shows: `frozen|no worker`, finds: `worker\.gone`, alert: "ServiceDown", begin: func(d *deployment) {
		d.hold(3)
		d.each((*crash.Process).Pause)
	}, fix: func(d *deployment) { d.each((*crash.Process).Continue) }},
	{name: "no worker was started", shows: `no worker`, finds: `worker\.gone`, begin: func(d *deployment) {
		d.stopAll()
		d.publish("hold", 3)
	}},
	{
		name: "no worker runs, and no job waits", only: "IMPORT_JOBS", shows: `the importer is gone`, finds: `service\.missing`,
		alert: "ServiceDown", begin: func(d *deployment) {
			d.attended(1)
			d.each((*crash.Process).Kill)
		},
	},
	{
		name: "the handler is paused", shows: `paused`, finds: `handler\.paused`, alert: "HandlerPaused", own: "HandlerPaused",
		begin: func(d *deployment) {
			check.OK(d, d.client().Pause(d.Context(), worker.Pause{Pattern: d.Pattern}))
			d.publish("hold", 3)
		}, fix: func(d *deployment) { check.OK(d, check.Err(d.client().Resume(d.Context(), d.Pattern))) },
	},
	{
		name: "every attempt fails", shows: `attempts failed.*bank: 503`, finds: `attempts.*bank: 503`, alert: "JobsFail", own: "JobsFail",
		begin: func(d *deployment) { d.publish("fail", 20) },
	},
	{
		name: "a storm of retries", shows: `attempts failed.*bank: 503`, finds: `attempts.*bank: 503`, alert: "JobsFail", own: "JobsFail",
		begin: func(d *deployment) { d.publish("fail", 500) },
	},
	{
		name: "a handler is stuck", shows: `ignore their ended contexts`, finds: `worker\.stuck`, alert: "HandlersStuck", own: "HandlersStuck",
		begin: func(d *deployment) {
			d.restart(func(p *program) { p.Timeout = 100 * time.Millisecond })
			d.publish("stuck", 1)
		},
	},
	{
		name: "a message kills its worker each time", shows: `no worker|crash|killed|did not stop properly`,
		finds: `worker\.|service\.missing`, alert: "ServiceDown", begin: func(d *deployment) {
			d.publish("poison", 1)
			d.each(func(p *crash.Process) { <-p.Gone })
			<-d.start().Gone
		},
	},
	{
		name: "messages that no consumer takes", shows: `no consumer will ever deliver`, finds: `queue\.stranded`, alert: "JobsStranded",
		begin: func(d *deployment) { check.OK(d, check.Err(d.js.Publish(d.Context(), d.aside(), []byte(`"a"`)))) },
		fix:   func(d *deployment) { d.purge(d.Stream, jetstream.WithPurgeSubject(d.aside())) },
	},
	{
		name: "the worker takes other subjects than those of the jobs", only: "WORK", shows: `no consumer will ever deliver`,
		finds: `queue\.stranded`,
		begin: func(d *deployment) { check.OK(d, check.Err(d.js.Publish(d.Context(), "work.typo.1", []byte(`"a"`)))) },
		fix:   func(d *deployment) { d.purge(d.Stream, jetstream.WithPurgeSubject("work.typo.>")) },
	},
	{
		name: "the worker has a handler for other jobs", shows: `no handler for|takes no jobs|no worker`,
		finds: `handler\.missing|worker\.(idle|gone)`, begin: func(d *deployment) {
			d.restart(func(p *program) { p.Pattern = strings.Replace(p.Pattern, ".>", ".typo.>", 1) })
			d.publish("ok", 3)
		},
	},
	{name: "a limit lets no job start", shows: `limit bank.*cannot be read`, finds: `limit\.starved`, begin: func(d *deployment) {
		d.restart(func(p *program) { p.Limit = "bank" })
		d.hold(1)
		check.OK(d, check.Err(d.js.Publish(d.Context(), "$KV.jobs.limits.bank", []byte("no record"))))
		d.publish("ok", 3)
	}, fix: func(d *deployment) { d.purge("KV_jobs", jetstream.WithPurgeSubject("$KV.jobs.limits.bank")) }},
	{
		name: "the consumer was deleted", shows: `consumer|not ready|takes no jobs`, finds: `consumer\.missing|worker\.idle`,
		alert: "NoWorkerReady", own: "NoWorkerReady", begin: func(d *deployment) {
			d.hold(1)
			check.OK(d, d.js.DeleteConsumer(d.Context(), d.Stream, d.Consumer))
		}, fix: (*deployment).remake,
	},
	{name: "the consumer was changed", shows: `max_deliver`, finds: `consumer\.`, begin: func(d *deployment) {
		cfg := check.Must(d.js.Consumer(d.Context(), d.Stream, d.Consumer))(d).CachedInfo().Config
		cfg.MaxDeliver = 1
		check.OK(d, check.Err(d.js.UpdateConsumer(d.Context(), d.Stream, cfg)))
	}, fix: func(d *deployment) {
		check.OK(d, d.js.DeleteConsumer(d.Context(), d.Stream, d.Consumer))
		d.remake()
	}},
	{name: "the stream is full", shows: `\d\d % full`, finds: `stream\.full`, alert: "StreamFull", begin: func(d *deployment) {
		d.hold(40)
		d.limit(int64(d.info(d.Stream).State.Bytes) * 100 / 96)
	}, fix: func(d *deployment) { d.limit(map[bool]int64{false: 1 << 30, true: -1}[d.Own]) }},
	{
		name: "the stream was deleted", shows: `%s ?: it is missing|takes no jobs|%s.*not ready`, finds: `stream\.missing|worker\.idle`,
		alert: "ServiceNotReady", own: "NoWorkerReady",
		begin: func(d *deployment) { check.OK(d, d.js.DeleteStream(d.Context(), d.Stream)) }, fix: (*deployment).remake,
	},
	{
		name: "dead letters rise", shows: `\d+ .*dead letters`, finds: `dead\.`, alert: "DeadLettersRise", own: "DeadLettersRise",
		begin: func(d *deployment) { d.publish("discard", 60) }, fix: func(d *deployment) { d.purge(contracts.StreamDead) },
	},
	{
		name: "a schedule that nobody takes", only: "WORK", shows: `no consumer|never|schedule`, finds: `queue\.stranded|schedule`,
		begin: func(d *deployment) {
			daily := worker.Periodic{Subject: "work.report", Name: "daily", Every: time.Second}
			check.OK(d, check.Err(d.client().Schedule(d.Context(), daily)))
		}, fix: func(d *deployment) {
			check.OK(d, d.client().Unschedule(d.Context(), "work.report.daily"))
			d.purge(d.Stream)
		},
	},
	{
		name: "a worker is drained, and jobs wait", calm: true, shows: `workers are drained`, finds: `worker\.drained`,
		begin: func(d *deployment) {
			for _, w := range check.Must(inspect.Workers(d.Context(), d.js))(d) {
				check.OK(d, check.Err(inspect.Drain(d.Context(), d.js, w.Instance)))
			}
			d.publish("hold", 3)
		},
	},
	{name: "a worker's clock is wrong", calm: true, shows: `clock`, finds: `clock`, begin: func(d *deployment) {
		d.answers(inspect.Info{
			ID: "skewed", Instance: "skewed", Ready: true, Stream: d.Stream, Consumer: d.Consumer, Now: time.Now().Add(time.Hour),
		})
	}, fix: func(d *deployment) { d.undo() }},
	{
		name: "a worker may not pull", shows: `takes no jobs: .*ermission`, finds: `worker\.idle.*ermission`, alert: "NoWorkerReady",
		own: "NoWorkerReady", begin: func(d *deployment) {
			d.restart(func(p *program) { p.URL = strings.Replace(p.URL, "//", "//limited:x@", 1) })
			d.publish("hold", 3)
		},
	},
}

// until waits until something is done, and returns after which time, or -1 if it was not done in time.
func (d *deployment) until(what string, done func() bool) (after time.Duration) {
	d.Helper()
	begun := time.Now()
	for ticker := time.NewTicker(time.Second / 4); !done(); <-ticker.C {
		if time.Since(begun) > *patience {
			d.Errorf("%s: %s: not within %s", d.Stream, what, *patience)
			return -1
		}
	}
	return time.Since(begun)
}

// check makes the fault, and waits until it is named, and until it is no longer named after its fix.
func (d *deployment) check(f fault) {
	_ = os.Remove(d.fixed)
	before := d.scrape()
	f.begin(d)
	names := func(of, text string) bool {
		return regexp.MustCompile("(?is)" + strings.ReplaceAll(of, "%s", d.Stream)).MatchString(text)
	}
	never := func(text string) { check.That(d, f.never == "" || !names(f.never, text), "%s: %s", f.name, text) }
	page, texts, runs := "", "", 0
	overview := d.until(f.name+": the overview does not say "+f.shows, func() bool {
		page = d.problems()
		never(page)
		return names(f.shows, page)
	})
	first := d.scrape()
	found := d.until(f.name+": doctor does not say "+f.finds, func() bool {
		texts, runs = strings.Join(d.examine(), "\n"), runs+1
		never(texts)
		never(d.problems())
		return names(f.finds, texts)
	})
	if overview < 0 || found < 0 {
		d.Logf("the overview says: %s\ndoctor says: %s", page, texts)
	}
	want := f.alert
	if d.Own {
		want = f.own
	}
	if want == "" && !f.calm {
		want = "ProblemFound"
	}
	alerts := d.fires(f.name, want, before, first)
	check.That(d, !f.calm || !slices.Contains(alerts, "ProblemFound"), "%s is calm, and calls somebody: %v", f.name, alerts)
	if f.fix != nil {
		f.fix(d)
	}
	d.restore()
	cleared := d.clear(f.name)
	d.Logf("| %s | %s | %.1f | %.1f (%d) | %s | %.1f |", f.name, d.Stream, overview.Seconds(), found.Seconds(), runs,
		strings.Join(alerts, " "), cleared.Seconds())
}

// clear waits until neither the overview nor doctor names a problem.
func (d *deployment) clear(after string) time.Duration {
	page, texts := "", []string(nil)
	overview := d.until(after+": the overview is not clear", func() bool {
		page = d.problems()
		return strings.Contains(page, "No problems detected")
	})
	found := d.until(after+": doctor is not clear", func() bool { texts = d.examine(); return len(texts) == 0 })
	if overview < 0 || found < 0 {
		d.Logf("the overview says: %s\ndoctor says: %v", page, texts)
	}
	return overview
}

// checkAll checks one fault after the other.
func (d *deployment) checkAll(all []fault) {
	d.start()
	d.clear("before all")
	for _, f := range all {
		d.check(f)
	}
}

// of returns those of the faults that are checked on a queue: every second one, or, in the long form or with -operator.only, all that make
// sense there.
func (q queue) of(all []fault) (here []fault) {
	for i, f := range all {
		ours := f.only == q.Stream || f.only == "" && (crash.Long() || *only != "" || q.Own == (i%2 == 1))
		if ours && regexp.MustCompile(*only).MatchString(f.name) {
			here = append(here, f)
		}
	}
	return here
}

// Faults are named by the overview, doctor and an alert until they are fixed.
//
//	go test . -run Faults -timeout 30m -args -long     all of them on both streams
func TestFaultsAreNamed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("some minutes of faults")
	}
	for _, q := range queues {
		// A fault waits for nearly all of its time, and a deployment costs little.
		for _, f := range q.of(faults) {
			t.Run(q.Stream+"/"+f.name, func(t *testing.T) {
				t.Parallel()
				newDeployment(t, q, single(t).URL(), 1).checkAll([]fault{f})
			})
		}
	}
}

// single is a server with a user who may not pull.
func single(t *testing.T) *natsrun.Server {
	t.Helper()
	return natstest.Server(t, func(c *natsrun.Config) {
		c.Listen = true
		natsrun.ChangeOptions(c, func(o *server.Options) {
			deny := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.MSG.NEXT.>"}}}
			o.Users = []*server.User{{Username: "admin", Password: "x"}, {Username: "limited", Password: "x", Permissions: deny}}
			o.NoAuthUser = "admin"
		})
	})
}

// kill kills a node of the cluster: the leader of the stream, or another.
func kill(leader bool) func(*deployment) {
	return func(d *deployment) {
		first := check.Must(d.cluster.StreamLeader(d.Context(), d.Stream))(d)
		i := slices.IndexFunc(d.cluster.Nodes, func(n *natsrun.Node) bool { return (n == first) == leader })
		check.OK(d, d.cluster.Nodes[i].Kill())
	}
}

func heal(d *deployment) {
	for _, node := range d.cluster.Nodes {
		if !node.Running() {
			check.OK(d, node.Start(d.Context()))
		}
	}
	check.OK(d, d.cluster.WaitReady(d.Context()))
}

func TestFaultsOfServersAreNamed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a cluster that is killed")
	}
	const away, replica, instances = `node \S+ (was silent|is offline)`, `replica|node|server`, `instances? of the importer|the importer is gone`
	for _, q := range queues {
		t.Run(q.Stream, func(t *testing.T) {
			t.Parallel()
			cluster := natstest.Cluster(t, 3)
			d := newDeployment(t, q, cluster.URLs(), 3)
			d.cluster = cluster
			d.checkAll(q.of([]fault{
				{
					name: "the leader is gone", shows: away, finds: replica, never: instances, alert: "NodeAway", begin: kill(true),
					fix: heal,
				},
				{
					name: "a server is lost", shows: away, finds: replica, never: instances, alert: "NodeAway", begin: kill(false),
					fix: heal,
				},
				{
					name: "no majority", shows: `servers? do(es)? not answer|no leader`, finds: `server|leader|connection`,
					alert: "StoreTakesNoWrites", begin: func(d *deployment) {
						check.OK(d, errors.Join(d.cluster.Nodes[1].Kill(), d.cluster.Nodes[2].Kill()))
					}, fix: heal,
				},
			}))
		})
	}
}

// Healthy load raises no alarm: jobs that fail now and then, that are deferred and scheduled, bursts, and programs that are replaced.
func TestHealthyLoadRaisesNoAlarm(t *testing.T) {
	t.Parallel()
	url := single(t).URL()
	var all []*deployment
	for _, q := range queues {
		d := newDeployment(t, q, url, 1)
		d.start()
		all = append(all, d)
	}
	all[0].clear("before all")
	every := worker.Periodic{Subject: strings.TrimSuffix(all[1].Pattern, ".>"), Name: "tick", Every: 2 * time.Second, Args: "ok"}
	check.OK(t, check.Err(all[1].client().Schedule(t.Context(), every)))
	alarms := map[string]bool{}
	end, n := time.Now().Add(*healthy), 0
	for ticker := time.NewTicker(250 * time.Millisecond); time.Now().Before(end); <-ticker.C {
		n++
		for _, d := range all {
			d.publish("ok", 3)
			switch {
			case n%20 == 0:
				d.publish("once", 1)
			case n%30 == 1:
				d.publish("snooze", 2)
			case n%240 == 2:
				d.publish("ok", 200)
			case n%120 == 3: // it is replaced
				d.stopAll(d.start())
			}
		}
		if page := all[0].problems(); !strings.Contains(page, "No problems detected") {
			alarms["the overview says "+page] = true
		}
		if n%40 == 4 {
			for _, text := range all[0].examine() {
				alarms["doctor says "+text] = true
			}
		}
	}
	check.That(t, len(alarms) == 0, "after %d rounds in %s: %q", n, *healthy, slices.Sorted(maps.Keys(alarms)))
}
