package operator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
)

// fault is one that the overview, doctor and an alert name until it is fixed.
type fault struct {
	name string
	only string // the stream for which it makes sense, "" for both

	shows string // what the overview says: a regular expression
	finds string // what doctor says: its id, the thing and the problem
	alert string // of the importer, "" for that of the console
	own   string // the alert of a user's program, "" for that of the console
	calm  bool   // the overview shows a warning, for which nobody is called

	// begin makes the fault, and fix ends it, before [rig.restore].
	begin, fix func(*rig)
}

func (r *rig) each(do func(*crash.Process)) {
	for p := range r.metrics {
		do(p)
	}
}

// given waits until workers have n jobs.
func (r *rig) given(n int) {
	r.Helper()
	check.Until(r.T, crash.Patience, fmt.Sprint("workers have jobs: ", n), func() bool {
		c, err := r.js.Consumer(r.Context(), r.Stream, r.Consumer)
		return err == nil && c.CachedInfo().NumAckPending >= n
	})
}

func hold(n int) func(*rig) { return func(r *rig) { r.publish("hold", n); r.given(n) } }

func (r *rig) client() *worker.Client {
	return check.Must(worker.NewClient(r.js, worker.ClientConfig{AllowUntaken: true, Stream: r.Stream}))(r.T)
}

// change changes the stream.
func (r *rig) change(f func(*jetstream.StreamConfig)) {
	r.Helper()
	cfg := check.Must(r.js.Stream(r.Context(), r.Stream))(r.T).CachedInfo().Config
	f(&cfg)
	check.OK(r.T, check.Err(r.js.UpdateStream(r.Context(), cfg)))
}

func (r *rig) purge(stream string, o ...jetstream.StreamPurgeOpt) {
	r.Helper()
	check.OK(r.T, check.Must(r.js.Stream(r.Context(), stream))(r.T).Purge(r.Context(), o...))
}

func (r *rig) remake() {
	r.Helper()
	if r.Own {
		r.makeOwn()
	} else {
		r.apply()
	}
}

// aside is a subject that no consumer takes.
func (r *rig) aside() string {
	if r.Own {
		return "work.nobody.a"
	}
	return "jobs.import.nobody.a"
}

var faults = []fault{
	{
		name: "all workers are killed", shows: `no worker`, finds: `worker\.gone`, alert: "ServiceDown",
		begin: func(r *rig) { hold(3)(r); r.each((*crash.Process).Kill); r.publish("hold", 3) },
	},
	{
		name: "one of two workers is killed", only: "IMPORT_JOBS", shows: `1 of 2 instances of the importer do not answer`, finds: `service\.missing`,
		alert: "ServiceDown", begin: func(r *rig) {
			p := r.start()
			r.attended(2)
			hold(3)(r)
			p.Kill()
		}, fix: func(r *rig) { // it is not to come back
			for _, place := range r.places(time.Now().Add(-8*time.Second), false) {
				r.purge("KV_jobs", jetstream.WithPurgeSubject(place))
			}
			r.each(func(p *crash.Process) {
				if p.Ended() {
					delete(r.metrics, p)
				}
			})
		},
	},
	{name: "the workers are frozen", shows: `frozen|no worker`, finds: `worker\.gone`, alert: "ServiceDown", begin: func(r *rig) {
		hold(3)(r)
		r.each((*crash.Process).Pause)
	}, fix: func(r *rig) { r.each((*crash.Process).Continue) }},
	{name: "no worker was started", shows: `no worker`, finds: `worker\.gone`, begin: func(r *rig) { r.stopAll(); r.publish("hold", 3) }},
	{
		name: "no worker runs, and no job waits", only: "IMPORT_JOBS", shows: `the importer is gone`, finds: `service\.missing`, alert: "ServiceDown",
		begin: func(r *rig) { r.attended(1); r.each((*crash.Process).Kill) },
	},
	{name: "the handler is paused", shows: `paused`, finds: `handler\.paused`, alert: "HandlerPaused", own: "HandlerPaused", begin: func(r *rig) {
		check.OK(r.T, r.client().Pause(r.Context(), worker.Pause{Pattern: r.Pattern}))
		r.publish("hold", 3)
	}, fix: func(r *rig) { check.OK(r.T, check.Err(r.client().Resume(r.Context(), r.Pattern))) }},
	{
		name: "every attempt fails", shows: `attempts failed.*bank: 503`, finds: `attempts.*bank: 503`, alert: "JobsFail", own: "JobsFail",
		begin: func(r *rig) { r.publish("fail", 20) },
	},
	{
		name: "a storm of retries", shows: `attempts failed.*bank: 503`, finds: `attempts.*bank: 503`, alert: "JobsFail", own: "JobsFail",
		begin: func(r *rig) { r.publish("fail", 500) },
	},
	{
		name: "a handler is stuck", shows: `ignore their ended contexts`, finds: `worker\.stuck`, alert: "HandlersStuck", own: "HandlersStuck",
		begin: func(r *rig) {
			r.stopAll()
			r.start(func(p *program) { p.Timeout = 100 * time.Millisecond })
			r.publish("stuck", 1)
		},
	},
	{
		name: "a message kills its worker each time", shows: `no worker|crash|killed|did not stop properly`, finds: `worker\.|service\.missing`, alert: "ServiceDown",
		begin: func(r *rig) {
			r.publish("poison", 1)
			r.each(func(p *crash.Process) { <-p.Gone })
			<-r.start().Gone
		},
	},
	{
		name: "messages that no consumer takes", shows: `no consumer will ever deliver`, finds: `queue\.stranded`, alert: "JobsStranded",
		begin: func(r *rig) { check.OK(r.T, check.Err(r.js.Publish(r.Context(), r.aside(), []byte(`"a"`)))) },
		fix:   func(r *rig) { r.purge(r.Stream, jetstream.WithPurgeSubject(r.aside())) },
	},
	{
		name: "the worker takes other subjects than those of the jobs", only: "WORK", shows: `no consumer will ever deliver`, finds: `queue\.stranded`,
		begin: func(r *rig) {
			check.OK(r.T, check.Err(r.js.Publish(r.Context(), "work.typo.1", []byte(`"a"`))))
		}, fix: func(r *rig) { r.purge(r.Stream, jetstream.WithPurgeSubject("work.typo.>")) },
	},
	{
		name: "the worker has a handler for other jobs", shows: `no handler for|takes no jobs|no worker`, finds: `handler\.missing|worker\.(idle|gone)`,
		begin: func(r *rig) {
			r.stopAll()
			r.start(func(p *program) { p.Pattern = strings.Replace(p.Pattern, ".>", ".typo.>", 1) })
			r.publish("ok", 3)
		},
	},
	{
		name: "a limit lets no job start", shows: `limit bank.*cannot be read`, finds: `limit\.starved`, begin: func(r *rig) {
			r.stopAll()
			r.start(func(p *program) { p.Limit = "bank" })
			hold(1)(r)
			check.OK(r.T, check.Err(r.js.Publish(r.Context(), "$KV.jobs.limits.bank", []byte("no record"))))
			r.publish("ok", 3)
		}, fix: func(r *rig) { r.purge("KV_jobs", jetstream.WithPurgeSubject("$KV.jobs.limits.bank")) },
	},
	{
		name: "the consumer was deleted", shows: `consumer|not ready|takes no jobs`, finds: `consumer\.missing|worker\.idle`, alert: "NoWorkerReady", own: "NoWorkerReady",
		begin: func(r *rig) {
			hold(1)(r)
			check.OK(r.T, r.js.DeleteConsumer(r.Context(), r.Stream, r.Consumer))
		}, fix: (*rig).remake,
	},
	{
		name: "the consumer was changed", shows: `max_deliver`, finds: `consumer\.`,
		begin: func(r *rig) {
			cfg := check.Must(r.js.Consumer(r.Context(), r.Stream, r.Consumer))(r.T).CachedInfo().Config
			cfg.MaxDeliver = 1
			check.OK(r.T, check.Err(r.js.UpdateConsumer(r.Context(), r.Stream, cfg)))
		}, fix: func(r *rig) {
			check.OK(r.T, r.js.DeleteConsumer(r.Context(), r.Stream, r.Consumer))
			r.remake()
		},
	},
	{
		name: "the stream is full", shows: `\d\d % full`, finds: `stream\.full`, alert: "StreamFull",
		begin: func(r *rig) {
			hold(40)(r)
			used := check.Must(r.js.Stream(r.Context(), r.Stream))(r.T).CachedInfo().State.Bytes
			r.change(func(c *jetstream.StreamConfig) { c.MaxBytes = int64(used) * 100 / 96 })
		}, fix: func(r *rig) {
			limit := int64(-1)
			if !r.Own {
				limit = 1 << 30
			}
			r.change(func(c *jetstream.StreamConfig) { c.MaxBytes = limit })
		},
	},
	{
		name: "the stream was deleted", shows: `%s ?: it is missing|takes no jobs|%s.*not ready`, finds: `stream\.missing|worker\.idle`, alert: "ServiceNotReady", own: "NoWorkerReady",
		begin: func(r *rig) { check.OK(r.T, r.js.DeleteStream(r.Context(), r.Stream)) }, fix: (*rig).remake,
	},
	{
		name: "dead letters rise", shows: `\d+ .*dead letters`, finds: `dead\.`, alert: "DeadLettersRise", own: "DeadLettersRise",
		begin: func(r *rig) { r.publish("discard", 60) }, fix: func(r *rig) { r.purge(contracts.StreamDead) },
	},
	{name: "a schedule that nobody takes", only: "WORK", shows: `no consumer|never|schedule`, finds: `queue\.stranded|schedule`, begin: func(r *rig) {
		check.OK(r.T, check.Err(r.client().Schedule(r.Context(), worker.Periodic{Subject: "work.report", Name: "daily", Every: time.Second})))
	}, fix: func(r *rig) {
		check.OK(r.T, r.client().Unschedule(r.Context(), "work.report.daily"))
		r.purge(r.Stream)
	}},
	{
		name: "a worker is drained, and jobs wait", calm: true, shows: `workers are drained`, finds: `worker\.drained`, begin: func(r *rig) {
			for _, w := range check.Must(inspect.Workers(r.Context(), r.js))(r.T) {
				check.OK(r.T, check.Err(inspect.Drain(r.Context(), r.js, w.Instance)))
			}
			r.publish("hold", 3)
		},
	},
	{
		name: "a worker's clock is wrong", calm: true, shows: `clock`, finds: `clock`, begin: func(r *rig) {
			answers(r, inspect.Info{ID: "skewed", Instance: "skewed", Ready: true, Stream: r.Stream, Consumer: r.Consumer, Now: time.Now().Add(time.Hour)})
		}, fix: func(r *rig) { r.undo() },
	},
	{
		name: "a worker may not pull", shows: `takes no jobs: .*ermission`, finds: `worker\.idle.*ermission`, alert: "NoWorkerReady", own: "NoWorkerReady",
		begin: func(r *rig) {
			r.stopAll()
			r.start(func(p *program) { p.URL = strings.Replace(p.URL, "//", "//limited:x@", 1) })
			r.publish("hold", 3)
		},
	},
}

// answers makes a worker that says something of itself.
func answers(r *rig, info inspect.Info) {
	sub, err := r.js.Conn().Subscribe(inspect.SubjectInfo, func(m *nats.Msg) {
		data, _ := json.Marshal(info) // is one
		_ = m.Respond(data)
	})
	check.OK(r.T, errors.Join(err, r.js.Conn().Flush()))
	r.undo = func() { check.OK(r.T, sub.Unsubscribe()) }
}

// until waits until something is done, and returns after which time, or -1 if it was not done in time.
func (f fault) until(r *rig, what string, done func() bool) (after time.Duration) {
	r.Helper()
	begun := time.Now()
	for ticker := time.NewTicker(50 * time.Millisecond); !done(); <-ticker.C {
		if time.Since(begun) > *patience {
			r.Errorf("%s on %s: %s: not within %s", f.name, r.Stream, what, *patience)
			return -1
		}
	}
	return time.Since(begun)
}

// check makes the fault, and waits until it is named, and until it is no longer named after its fix.
func (f fault) check(r *rig) {
	_ = os.Remove(r.fixed)
	before := r.scrape()
	r.undo = func() {}
	f.begin(r)
	names := func(of, text string) bool {
		return regexp.MustCompile("(?is)" + strings.ReplaceAll(of, "%s", r.Stream)).MatchString(text)
	}
	page := ""
	overview := f.until(r, "the overview does not say "+f.shows, func() bool {
		page = r.problems()
		return names(f.shows, page)
	})
	if overview < 0 {
		r.Logf("the overview says: %s", page)
	}
	first, runs := r.scrape(), 0
	var texts []string
	doctor := f.until(r, "doctor does not say "+f.finds, func() bool {
		texts, runs = r.examine(), runs+1
		return names(f.finds, strings.Join(texts, "\n"))
	})
	if doctor < 0 {
		r.Logf("doctor says: %s", strings.Join(texts, "\n"))
	}
	want := f.alert
	if r.Own {
		want = f.own
	}
	if want == "" && !f.calm {
		want = "ProblemFound"
	}
	alerts := []string{}
	var second map[string]float64
	f.until(r, "no alert "+want, func() bool { // services ask about their streams every 15 seconds
		second = r.scrape()
		alerts = r.alerts(before, first, second)
		return want == "" || slices.Contains(alerts, want)
	})
	if f.calm && slices.Contains(alerts, "ProblemFound") {
		r.Errorf("%s on %s is calm, and calls somebody: before %v, after %v", f.name, r.Stream, problemsOf(before), problemsOf(second))
	}
	if f.fix != nil {
		f.fix(r)
	}
	r.restore()
	cleared := r.clear(f)
	r.Logf("| %s | %s | %.1f | %.1f (%d) | %s | %.1f |", f.name, r.Stream, overview.Seconds(), doctor.Seconds(), runs, strings.Join(alerts, " "), cleared.Seconds())
}

func problemsOf(all map[string]float64) (names []string) {
	for name := range all {
		if strings.HasPrefix(name, "console_problem") {
			names = append(names, name)
		}
	}
	return names
}

// problems returns the problems that the overview lists.
func (r *rig) problems() string {
	_, list, _ := strings.Cut(r.overview(), `id="main"`)
	list, _, _ = strings.Cut(list, "<table")
	return strings.Join(strings.Fields(tag.ReplaceAllString(list, " ")), " ")
}

var tag = regexp.MustCompile(`<[^>]*>`)

// clear waits until neither the overview nor doctor names a problem.
func (r *rig) clear(f fault) time.Duration {
	page := ""
	overview := f.until(r, "the overview is not clear", func() bool {
		page = r.problems()
		return strings.Contains(page, "No problems detected")
	})
	var texts []string
	doctor := f.until(r, "doctor is not clear", func() bool { texts = r.examine(); return len(texts) == 0 })
	if overview < 0 || doctor < 0 {
		r.Logf("the overview says: %s\ndoctor says: %v", page, texts)
	}
	return overview
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
		t.Run(q.Stream, func(t *testing.T) {
			t.Parallel()
			newRig(t, q, single(t).URL(), 1).checkAll(faults)
		})
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

// checkAll checks every second fault on each of the two streams, or, in the long form or with -operator.only, each fault on both.
func (r *rig) checkAll(all []fault) {
	r.start()
	r.clear(fault{name: "before all"})
	for i, f := range all {
		here := f.only == r.Stream || f.only == "" && (crash.Long() || *only != "" || r.Own == (i%2 == 1))
		if here && regexp.MustCompile(*only).MatchString(f.name) {
			f.check(r)
		}
	}
}

// kill kills nodes of the cluster, the leader of the stream first.
func kill(n int, leader bool) func(*rig) {
	return func(r *rig) {
		first := check.Must(r.cluster.StreamLeader(r.Context(), r.Stream))(r.T)
		for _, node := range r.cluster.Nodes {
			if node == first == leader && n == 1 || n > 1 && node != r.cluster.Nodes[0] {
				check.OK(r.T, node.Kill())
				if n == 1 {
					return
				}
			}
		}
	}
}

func heal(r *rig) {
	for _, node := range r.cluster.Nodes {
		if !node.Running() {
			check.OK(r.T, node.Start(r.Context()))
		}
	}
	check.OK(r.T, r.cluster.WaitReady(r.Context()))
}

func TestFaultsOfServersAreNamed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a cluster that is killed")
	}
	for _, q := range queues {
		t.Run(q.Stream, func(t *testing.T) {
			t.Parallel()
			cluster := natstest.Cluster(t, 3)
			r := newRig(t, q, cluster.URLs(), 3)
			r.cluster = cluster
			r.checkAll([]fault{
				{name: "a server is lost", shows: `node \S+ (was silent|is offline)`, finds: `replica|node|server`, alert: "NodeAway", begin: kill(1, false), fix: heal},
				{name: "the leader is gone", shows: `node \S+ (was silent|is offline)`, finds: `replica|node|server`, alert: "NodeAway", begin: kill(1, true), fix: heal},
				{
					name: "no majority", shows: `servers? do(es)? not answer|no leader`, finds: `server|leader|connection`, alert: "StoreTakesNoWrites",
					begin: kill(2, false), fix: heal,
				},
			})
		})
	}
}

// Healthy load raises no alarm: jobs that fail now and then, that are deferred and scheduled, bursts, and programs that are replaced.
func TestHealthyLoadRaisesNoAlarm(t *testing.T) {
	t.Parallel()
	url := single(t).URL()
	var rigs []*rig
	for _, q := range queues {
		r := newRig(t, q, url, 1)
		r.start()
		rigs = append(rigs, r)
	}
	rigs[0].clear(fault{name: "before all"})
	every := worker.Periodic{Subject: strings.TrimSuffix(rigs[1].Pattern, ".>"), Name: "tick", Every: 2 * time.Second, Args: "ok"}
	check.OK(t, check.Err(rigs[1].client().Schedule(t.Context(), every)))
	seen := map[string]bool{}
	alarm := func(text string) {
		if !seen[text] {
			seen[text] = true
			t.Errorf("%s: %s", time.Now().Format(time.TimeOnly), text)
		}
	}
	end, n := time.Now().Add(*healthy), 0
	for ticker := time.NewTicker(250 * time.Millisecond); time.Now().Before(end); <-ticker.C {
		n++
		for _, r := range rigs {
			r.publish("ok", 3)
			switch {
			case n%20 == 0:
				r.publish("once", 1)
			case n%30 == 1:
				r.publish("snooze", 2)
			case n%240 == 2:
				r.publish("ok", 200)
			case n%120 == 3: // it is replaced
				r.stopAll(r.start())
			}
		}
		if page := rigs[0].problems(); !strings.Contains(page, "No problems detected") {
			alarm("the overview says " + page)
		}
		if n%40 == 4 {
			for _, text := range rigs[0].examine() {
				alarm("doctor says " + text)
			}
		}
	}
	t.Logf("%d rounds in %s", n, *healthy)
}
