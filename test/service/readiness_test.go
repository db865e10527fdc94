package service_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	_ "github.com/expediter-io/expediter/internal/testbed/fastelection"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	bound  = 1 << 20 // of each stream in bytes
	jobs   = contracts.StreamImportJobs
	events = contracts.StreamEvents
)

// store is a service with a stream that refuses messages when it is full, and one that drops the oldest.
type storeFixture struct {
	*testing.T

	exports *export.Exports
	hold    chan struct{} // has an element for each job that may end
	js      jetstream.JetStream
	proxy   *natstest.Proxy
	service *service.Service
}

func newStore(t *testing.T, srv *natsrun.Server, works bool) *storeFixture {
	t.Helper()
	f := &storeFixture{T: t, hold: make(chan struct{}, 100), proxy: natstest.NewProxy(t, srv)}
	_, f.js = natstest.Connect(t, srv)
	nc, _ := natstest.Connect(t, srv, f.proxy.Through())
	f.exports = check.Must(export.Start(t.Context(), export.Config{Service: "shop"}))(t)
	t.Cleanup(func() { check.ErrorIs(t, service.StopExports(context.WithoutCancel(t.Context()), f.exports), nil) })
	open := func(context.Context, *service.Service) error { return nil }
	if works {
		open = f.open
	}
	cfg := service.BaseConfig{CreateAssets: true, Exports: f.exports, Logger: slog.New(slog.DiscardHandler), MaxBytes: 1}
	f.service = check.Must(service.Start(t.Context(), nc, service.Spec{
		Config: cfg.WithDefaults(service.None, 1), Description: "Sells", Endpoints: func() []service.Endpoint { return nil }, Name: "shop",
		Open: open, Routes: func(*service.Router) {}, Streams: []string{contracts.StreamDead, jobs, events, recipes, objects},
	}))(t)
	t.Cleanup(func() { check.ErrorIs(t, f.service.Stop(), nil) })
	return f
}

// open makes the worker of the stream of jobs, which works one at a time.
func (f *storeFixture) open(_ context.Context, s *service.Service) error {
	w, err := s.Worker("worker", worker.Config{Consumer: "importer", Concurrency: 1, Stream: jobs})
	if err != nil {
		return err
	}
	work := func(ctx context.Context, _ *worker.Job[json.RawMessage]) error {
		select {
		case <-f.hold:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return worker.Handle(w, "jobs.import.worked.>", worker.Policy{Timeout: time.Hour}, work)
}

// fill stores messages in a stream until they use a part of its bound in percent, and lets the time of a sample pass.
func (f *storeFixture) fill(stream, subject string, percent uint64) {
	f.Helper()
	const body = 1000
	for {
		s := check.Must(f.js.Stream(f.Context(), stream))(f)
		if s.CachedInfo().State.Bytes*100 >= bound*percent {
			break
		}
		check.OK(f, check.Err(f.js.Publish(f.Context(), subject, make([]byte, body))))
	}
	passSampleTime()
}

// passSampleTime lets the time of a sample pass.
func passSampleTime() { natstest.Pass(16 * time.Second) }

// ready checks the state of the check: "" for passed, "note" and "failed", and parts of its text.
func (f *storeFixture) ready(state string, says ...string) {
	f.Helper()
	err := f.service.Ready()["streams"]
	got := "failed"
	if _, ok := errors.AsType[service.Note](err); ok {
		got = "note"
	} else if err == nil {
		got = ""
	}
	check.That(f, got == state, "%q with %v, want %q", got, err, state)
	check.Contains(f, fmt.Sprint(err), says...)
}

// gauge returns the fullness of a stream in the metrics, "" for none.
func (f *storeFixture) gauge(stream, by string) string {
	return f.metric("stream_fullness_ratio", stream, by)
}

// metric returns the value with the labels in the metrics, "" for none.
func (f *storeFixture) metric(name string, labels ...string) string {
	f.Helper()
	answer := httptest.NewRecorder()
	f.exports.Metrics.ServeHTTP(answer, httptest.NewRequestWithContext(f.Context(), "GET", "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		has := strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ")
		for _, label := range labels {
			has = has && strings.Contains(line, `"`+label+`"`)
		}
		if has {
			return strings.TrimSpace(line[strings.LastIndex(line, " "):])
		}
	}
	return ""
}

func inStore(t *testing.T, run func(*storeFixture)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) { run(newStore(t, srv, false)) })
}

// The service is not ready before its stream refuses messages, says so before that, and is ready again when there is room.
func TestReadinessTurnsBeforeAStreamRefuses(t *testing.T) {
	inStore(t, func(f *storeFixture) {
		f.ready("")
		f.fill(jobs, "jobs.import.x", 79)
		f.ready("")
		f.fill(jobs, "jobs.import.x", 80)
		f.ready("note", jobs+" is 80 % full")
		check.That(f, strings.HasPrefix(f.gauge(jobs, "bytes"), "0.80"), "the gauge is %s", f.gauge(jobs, "bytes"))
		f.fill(jobs, "jobs.import.x", 95)
		f.ready("failed", jobs+" is 95 % full")
		check.ErrorIs(f, check.Err(f.js.Publish(f.Context(), "jobs.import.x", nil)), nil)
		s := check.Must(f.js.Stream(f.Context(), jobs))(f)
		check.OK(f, s.Purge(f.Context()))
		passSampleTime()
		f.ready("")
		check.Equal(f, f.gauge(jobs, "bytes"), "0", "the gauge")

		// A stream that drops its oldest messages is full as a rule: the gauge shows it.
		f.fill(events, "events.x", 96)
		f.ready("")
		check.That(f, strings.HasPrefix(f.gauge(events, "bytes"), "0.96"), "the gauge is %s", f.gauge(events, "bytes"))
		check.Equal(f, f.gauge(contracts.StreamDead, "bytes"), "0", "the gauge of dead letters")

		// The server's present bounds count, also that of messages.
		cfg := s.CachedInfo().Config
		cfg.MaxMsgs = 10
		check.OK(f, check.Err(f.js.UpdateStream(f.Context(), cfg)))
		for range 9 {
			check.OK(f, check.Err(f.js.Publish(f.Context(), "jobs.import.x", nil)))
		}
		passSampleTime()
		f.ready("note", jobs+" is 90 % full")
		check.Equal(f, f.gauge(jobs, "messages"), "0.9", "the gauge")

		// A stream that was deleted is named until it is there again.
		check.OK(f, f.js.DeleteStream(f.Context(), jobs))
		passSampleTime()
		f.ready("failed", jobs+" is missing")
		check.Equal(f, f.gauge(jobs, "bytes"), "", "the gauge")
		check.OK(f, check.Err(f.js.CreateStream(f.Context(), s.CachedInfo().Config)))
		passSampleTime()
		f.ready("")
	})
}

// An old answer is not shown as one that holds, and a server that answers again is believed.
func TestAnOldAnswerIsNotShown(t *testing.T) {
	inStore(t, func(f *storeFixture) {
		f.fill(jobs, "jobs.import.x", 96)
		f.ready("failed")
		f.proxy.Filter(natstest.Losing(func(f natstest.Frame) bool { return f.FromClient && f.Subject == "$JS.API.STREAM.INFO."+jobs }))
		passSampleTime()
		f.ready("failed") // one lost answer changes nothing
		natstest.Pass(time.Minute)
		f.ready("note", jobs+": how full it is was not answered for 1m")
		check.Equal(f, f.gauge(jobs, "bytes"), "", "the gauge")
		check.That(f, f.gauge(events, "bytes") != "", "the other streams have no gauge")
		f.proxy.Filter(nil)
		passSampleTime()
		f.ready("failed", "96 % full")
	})
}

// shop is a service with a route of each kind.
func shop(cfg service.BaseConfig) service.Spec {
	sell := func(w http.ResponseWriter, _ *http.Request) error {
		_ = json.NewEncoder(w).Encode("sold")
		return nil
	}
	return service.Spec{
		Config: cfg.WithDefaults("127.0.0.1:0", 1), Endpoints: func() []service.Endpoint { return nil }, Name: "shop",
		Open: func(context.Context, *service.Service) error { return nil },
		Routes: func(r *service.Router) {
			r.Handle("GET /page", access.Public(), sell)
			r.Handle("GET /v1/items/{item}", access.All(access.Read), sell)
			r.Handle("DELETE /v1/items/{item}", access.All(access.Operate), sell)
		},
	}
}

func start(t *testing.T, spec service.Spec) *service.Service {
	t.Helper()
	nc, _ := natstest.Connect(t, natstest.Server(t))
	s := check.Must(service.Start(t.Context(), nc, spec))(t)
	t.Cleanup(func() { check.ErrorIs(t, s.Stop(), nil) })
	return s
}

// Each route is on one listener, all listeners speak TLS, and a service without a listener for operators has all routes on one.
func TestEachRouteIsOnItsListener(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue(t, "shop")
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "shop"}))(t)
	cfg := service.BaseConfig{Exports: exports, Logger: slog.New(slog.DiscardHandler), TLSCert: a.file("shop.pem"), TLSKey: a.file("shop.key")}
	one := start(t, shop(cfg))
	cfg.AdminListen = "127.0.0.1:0"
	many := start(t, shop(cfg))
	cfg.AdminListen = service.None
	hidden := start(t, shop(cfg))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: a.pool(t)}}}
	for route, part := range map[string]string{
		"GET /v1/items/7": "", "DELETE /v1/items/7": "admin", "GET /page": "",
		"GET /livez": "admin", "GET /readyz": "admin", "GET /version": "admin", "GET /metrics": "admin",
	} {
		listeners := map[string]bool{one.URL(): true, hidden.URL(): part == "", many.URL(): part == "", many.AdminURL(): part == "admin"}
		for base, want := range listeners {
			method, path, _ := strings.Cut(route, " ")
			r, err := http.NewRequestWithContext(t.Context(), method, base+path, http.NoBody)
			check.Require(t, err == nil && strings.HasPrefix(base, "https://"), "%v %v", base, err)
			resp := check.Must(client.Do(r))(t)
			text, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			got := resp.StatusCode == http.StatusOK
			check.That(t, got == want && err == nil, "%s of %q at %s is %d %s: %v", route, part, base, resp.StatusCode, text, err)
		}
	}
	check.That(t, one.AdminURL() == "" && hidden.AdminURL() == "", "there are listeners that nobody asked for")
}

// Without keys, no listener may be reached from other machines.
func TestNoListenerIsExposedWithoutKeys(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	check.OK(t, check.Err(access.Add(keys, access.Key{Name: "reader", Scopes: []access.Scope{access.Read}})))
	for name, tt := range map[string]struct {
		api, admin string
		change     func(*service.Spec)
		refused    string
	}{
		"API":       {api: ":0", refused: "SHOP_LISTEN"},
		"admin":     {admin: ":0", refused: "SHOP_ADMIN_LISTEN"},
		"probes":    {admin: ":0", change: func(s *service.Spec) { s.Routes = func(*service.Router) {} }, refused: "SHOP_ADMIN_LISTEN"},
		"with keys": {api: ":0", admin: ":0", change: func(s *service.Spec) { s.Config.Keys = keys }},
		"insecure":  {api: ":0", admin: ":0", change: func(s *service.Spec) { s.Config.Insecure = true }},
	} {
		spec := shop(service.BaseConfig{AdminListen: tt.admin, Listen: tt.api, Logger: slog.New(slog.DiscardHandler)})
		if tt.change != nil {
			tt.change(&spec)
		}
		nc, _ := natstest.Connect(t, natstest.Server(t))
		s, err := service.Start(t.Context(), nc, spec)
		check.That(t, (err == nil) == (tt.refused == "") && (err == nil || strings.Contains(err.Error(), "its callers are unknown")) &&
			(err == nil || strings.Contains(err.Error(), "or "+tt.refused+" to an address")),
			"%s: %v", name, err)
		if err == nil {
			check.ErrorIs(t, s.Stop(), nil, name)
		}
	}
}

// inWorkedStore calls run with a service that works jobs, and has asked how many there are.
func inWorkedStore(t *testing.T, run func(*storeFixture)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		f := newStore(t, srv, true)
		passSampleTime()
		run(f)
	})
}

// send stores messages.
func (f *storeFixture) send(subject string, n int) {
	f.Helper()
	for range n {
		check.OK(f, check.Err(f.js.Publish(f.Context(), subject, []byte("{}"))))
	}
}

// shows checks values of metrics: each is a name with labels, and the value, "" for none.
func (f *storeFixture) shows(want string, name string, labels ...string) {
	f.Helper()
	check.Equal(f, f.metric(name, labels...), want, fmt.Sprintf("%s %v", name, labels))
}

// A service that has created its consumers counts their jobs within seconds, not at the next of its questions.
func TestJobsAreCountedSoonAfterTheStart(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		f := newStore(t, srv, true)
		natstest.Pass(3 * time.Second)
		f.shows("0", "stream_jobs", jobs, "importer", "queued")
	})
}

// The gauges count the jobs that wait, since when, and those that a worker has.
func TestJobsThatWaitAreCounted(t *testing.T) {
	inWorkedStore(t, func(f *storeFixture) {
		f.shows("0", "stream_jobs", jobs, "importer", "queued")
		f.shows("0", "stream_jobs_age_seconds", jobs)
		f.send("jobs.import.worked.a", 1)
		natstest.Pass(10 * time.Second)
		f.send("jobs.import.worked.b", 2)
		f.send("dead.X.y", 3)
		passSampleTime()
		f.shows("2", "stream_jobs", jobs, "importer", "queued")
		f.shows("1", "stream_jobs", jobs, "importer", "delivered")
		f.shows("0", "stream_jobs", jobs, "stranded")
		f.shows("16", "stream_jobs_age_seconds", jobs)
		f.shows("3", "stream_messages", contracts.StreamDead)
		f.hold <- struct{}{}
		passSampleTime()
		f.shows("1", "stream_jobs", jobs, "importer", "queued")
		f.shows("32", "stream_jobs_age_seconds", jobs)
		f.hold <- struct{}{}
		f.hold <- struct{}{}
		passSampleTime()
		f.shows("0", "stream_jobs", jobs, "importer", "queued")
		f.shows("0", "stream_jobs", jobs, "importer", "delivered")
		f.shows("0", "stream_jobs_age_seconds", jobs)

		// Messages for other consumers before a job do not make the job older.
		check.OK(t,
			check.Err(f.js.CreateConsumer(f.Context(), jobs, jetstream.ConsumerConfig{Durable: "idle", FilterSubject: "jobs.import.idle"})))
		f.send("jobs.import.nobody", 1)
		passSampleTime()
		natstest.Pass(time.Hour)
		f.send("jobs.import.idle", 1)
		passSampleTime()
		f.shows("1", "stream_jobs", jobs, "idle", "queued")
		f.shows("16", "stream_jobs_age_seconds", jobs)
	})
}

// A message that no consumer takes, and one that its consumer has given up, are stranded; one that waits or runs is not.
func TestStrandedMessagesAreCounted(t *testing.T) {
	inWorkedStore(t, func(f *storeFixture) {
		foreign := check.Must(f.js.CreateConsumer(f.Context(), jobs, jetstream.ConsumerConfig{
			Durable: "foreign", FilterSubject: "jobs.import.foreign", MaxDeliver: 1, AckWait: time.Second,
		}))(t)
		f.send("jobs.import.nobody", 2)
		f.send("jobs.import.foreign", 1)
		f.send("jobs.import.worked.a", 2)
		passSampleTime()
		natstest.Pass(2 * time.Second) // the second look
		f.shows("2", "stream_jobs", jobs, "stranded")
		for range 2 { // the second request finds that the first is not acknowledged
			if _, err := foreign.Next(jetstream.FetchMaxWait(2 * time.Second)); err == nil {
				natstest.Pass(2 * time.Second)
			}
		}
		passSampleTime()
		passSampleTime()
		f.shows("3", "stream_jobs", jobs, "stranded")
		f.shows("0", "stream_jobs", jobs, "foreign", "queued")
	})
}

// declared makes the streams and consumers of the importer.
func declared(t *testing.T, js jetstream.JetStream, replicas int) {
	t.Helper()
	options := contracts.AssetOptions{MaxBytes: 1, Replicas: replicas, Services: []string{contracts.ServiceImporter}}
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(options), provision.Options{})))
	check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), js, provision.Consumers(options), provision.Options{})))
}

// imports describes a service that works the stream of imports.
func imports(cfg service.BaseConfig) service.Spec {
	cfg.Logger, cfg.MaxBytes = slog.New(slog.DiscardHandler), 1
	return service.Spec{
		Config: cfg.WithDefaults(service.None, 1), Description: "Imports", Endpoints: func() []service.Endpoint { return nil }, Name: "shop",
		Open: func(_ context.Context, s *service.Service) error {
			w, err := s.Worker("imports", worker.Config{Consumer: "importer", Stream: jobs})
			if err != nil {
				return err
			}
			return worker.Handle(w, "jobs.import.normal.>", worker.Policy{}, func(context.Context, *worker.Job[string]) error { return nil })
		},
		Routes: func(*service.Router) {}, Streams: []string{contracts.StreamDead, jobs, "KV_" + contracts.BucketJobs},
	}
}

// importing starts a service that works the stream of imports, and stops it with the test.
func importing(t *testing.T, nc *nats.Conn, replicas int) *service.Service {
	t.Helper()
	s := check.Must(service.Start(t.Context(), nc, imports(service.BaseConfig{Replicas: replicas})))(t)
	t.Cleanup(func() { check.ErrorIs(t, s.Stop(), nil) })
	return s
}

// A node that is away is named with each stream of which it has a replica. The service is ready without it.
func TestAMissingNodeIsNamed(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 3)
	nc, js := natstest.ConnectURL(t, c.URLs())
	declared(t, js, 3)
	ready := func() error {
		t.Helper()
		check.OK(t, c.WaitReady(t.Context()))
		return importing(t, nc, 3).Ready()["streams"]
	}
	check.ErrorIs(t, ready(), nil)
	away := c.Nodes[2]
	check.OK(t, away.Stop())
	err := ready()
	_, ok := errors.AsType[service.Note](err)
	check.Require(t, ok, "without a node: got %v, want a note", err)
	for _, stream := range []string{contracts.StreamDead, jobs, "KV_" + contracts.BucketJobs} {
		want := stream + ": node " + away.Name + " "
		check.That(t, strings.Contains(err.Error(), want), "%q does not say %q", err, want)
	}
	check.OK(t, away.Start(t.Context()))
	check.ErrorIs(t, ready(), nil)
}

// A consumer that is deleted is named, and the service is ready again when it is there.
func TestAMissingConsumerIsNamed(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		nc, js := natstest.Connect(t, srv)
		declared(t, js, 1)
		s := importing(t, nc, 1)
		natstest.Pass(10 * time.Second)
		check.OK(t, s.Ready()["imports"])
		consumer := check.Must(js.Consumer(t.Context(), jobs, "importer"))(t)
		check.OK(t, js.DeleteConsumer(t.Context(), jobs, "importer"))
		natstest.Pass(10 * time.Second)
		check.ErrorContains(t, s.Ready()["imports"], "consumer "+jobs+"/importer is missing")
		check.OK(t, check.Err(js.CreateConsumer(t.Context(), jobs, consumer.CachedInfo().Config)))
		natstest.Pass(10 * time.Second)
		check.ErrorIs(t, s.Ready()["imports"], nil)
	})
}

// A service with CreateAssets changes no consumer that is there. It names the difference with which it cannot work.
func TestCreateAssetsKeepsAConsumer(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	options := contracts.AssetOptions{AckWait: 7 * time.Second, MaxBytes: 1, Services: []string{contracts.ServiceImporter}}
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(options), provision.Options{})))
	check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), js, provision.Consumers(options), provision.Options{})))
	err := service.Run(t.Context(), imports(service.BaseConfig{CreateAssets: true, NATSConfig: service.NATSConfig{NATSURL: srv.URL()}}))
	check.ErrorContains(t, err, jobs+"/importer", "ack_wait is 7s, must be 5s", "apply the declared settings)")
	c := check.Must(js.Consumer(t.Context(), jobs, "importer"))(t)
	check.Equal(t, c.CachedInfo().Config.AckWait, options.AckWait)
}

const (
	recipes = "KV_" + contracts.BucketRecipes
	objects = "OBJ_" + contracts.BucketImportSteps
)

// stored checks the check of the stores, and its metric: passed, or failed with a text.
func (f *storeFixture) stored(says string) {
	f.Helper()
	err := f.service.Ready()["store"]
	check.That(f, (err == nil) == (says == "") && strings.Contains(fmt.Sprint(err), says), "the check of the stores is %v, want %q", err, says)
	f.shows(map[bool]string{true: "1", false: "0"}[says == ""], "service_ready", "store")
}

// A store that does not acknowledge writes is named within 5 seconds, and is believed again at the first write that it
// acknowledges, also when an answer was lost and the record has expired.
func TestAStoreThatTakesNoWritesIsNamed(t *testing.T) {
	inStore(t, func(f *storeFixture) {
		for stream, subject := range map[string]string{recipes: "$KV.recipes.ready.", objects: "$O.import-steps.C.ready."} {
			for _, lost := range []bool{true, false} { // the write, or its answer
				f.stored("")
				f.proxy.Filter(func(f natstest.Frame) natstest.Verdict {
					if lost && f.FromClient && strings.HasPrefix(f.Subject, subject) ||
						!lost && !f.FromClient && strings.Contains(string(f.Payload()), `"stream":"`+stream+`"`) {
						return natstest.Lose
					}
					return natstest.Relay
				})
				natstest.Pass(5 * time.Second)
				f.stored(stream + " for ")
				f.stored("not acknowledged")
				natstest.Pass(2 * time.Minute)
				f.stored(stream + " for 2m")
				f.proxy.Filter(nil)
				natstest.Pass(5 * time.Second)
			}
		}
		f.stored("")
	})
}

// A deleted bucket is named within 5 seconds, and one that is full for as long as it is.
func TestAStoreThatIsMissingOrFullIsNamed(t *testing.T) {
	inStore(t, func(f *storeFixture) {
		s := check.Must(f.js.Stream(f.Context(), recipes))(f)
		check.OK(f, f.js.DeleteStream(f.Context(), recipes))
		natstest.Pass(5 * time.Second)
		f.stored(recipes + " for ")
		f.stored("is missing")
		full := s.CachedInfo().Config
		full.MaxMsgs = 1
		check.OK(f, check.Err(f.js.CreateStream(f.Context(), full)))
		check.OK(f, check.Err(f.js.Publish(f.Context(), "$KV.recipes.x", nil)))
		natstest.Pass(5 * time.Second)
		f.stored("maximum messages")
		full.MaxMsgs = -1
		check.OK(f, check.Err(f.js.UpdateStream(f.Context(), full)))
		natstest.Pass(5 * time.Second)
		f.stored("")
	})
}

// The record of a service is one in each store, no client of the store sees it, and it ends a minute after the service.
func TestTheRecordOfReadinessIsNoData(t *testing.T) {
	inStore(t, func(f *storeFixture) {
		natstest.Pass(time.Hour)
		count := func(want uint64) {
			f.Helper()
			for _, name := range []string{recipes, objects} {
				check.Equal(f, check.Must(f.js.Stream(f.Context(), name))(f).CachedInfo().State.Msgs, want, name+" has messages")
			}
		}
		count(1)
		kv := check.Must(f.js.KeyValue(f.Context(), contracts.BucketRecipes))(f)
		check.ErrorIs(f, check.Err(kv.Keys(f.Context())), jetstream.ErrNoKeysFound)
		files := check.Must(f.js.ObjectStore(f.Context(), contracts.BucketImportSteps))(f)
		check.ErrorIs(f, check.Err(files.List(f.Context())), jetstream.ErrNoObjectsFound)
		check.ErrorIs(f, f.service.Stop(), nil)
		natstest.Pass(62 * time.Second)
		count(0)
	})
}

// lastSeen is the end of a problem, which differs each time.
var lastSeen = regexp.MustCompile(`, last seen at 20\d\d-\S+Z on host ".+" with version "0\.0\.0-dev"`)

// An instance that died, is frozen or cut off is missed, and no other: not one that was stopped, replaced or declared vacant.
func TestMissingInstancesAreNamed(t *testing.T) {
	const (
		late    = "late" // and may be restarting
		gone    = "the shop is gone: no instance answers, and 1 did not stop properly"
		one     = "1 of 2 instances of the shop do not answer"
		unknown = "read the places of the shop: "
	)
	// A script starts, kills, freezes, thaws and stops instances. In between an observer watches for 14 seconds, or waits for 2. The script
	// takes the servers away, to which the observer then comes back before instances, and deletes and makes the bucket.
	for name, test := range map[string]struct {
		script string
		want   []string                  // problems in their order
		lose   func(natstest.Frame) bool // of the observer's messages
		stuck  bool                      // no instance can write once it has a place
	}{
		"one that runs":                {script: "start a, watch"},
		"the only one is killed":       {script: "start a, watch, kill a, watch", want: []string{late, gone}},
		"one of two, then the other":   {script: "start a, watch, start b, watch, kill b, watch, stop a, watch", want: []string{late, one, gone}},
		"two":                          {script: "start a, watch, start b, watch, kill a, kill b, watch", want: []string{late, strings.Replace(gone, "1 did", "2 did", 1)}},
		"the only one is stopped":      {script: "start a, watch, stop a, watch"},
		"a rolling deployment":         {script: "start a, start b, watch, start c, watch, stop a, start d, watch, stop b, watch, stop c, start e, watch, stop d, stop e, watch"},
		"it is started again later":    {script: "start a, watch, kill a, watch, start b, watch", want: []string{late, gone}},
		"it is started again at once":  {script: "start a, watch, kill a, start b, watch, stop b, watch"},
		"one of two, and stopped soon": {script: "start a, watch, start b, watch, kill b, start c, wait, stop c, watch, kill a, watch", want: []string{late, gone}},
		"a third one is stopped soon":  {script: "start a, watch, start b, watch, start c, wait, stop c, watch, watch, kill b, watch", want: []string{late, one}},
		"the servers were away":        {script: "start a, watch, away, watch"},
		"they were, and it died":       {script: "start a, watch, away, watch, kill a, away, watch", want: []string{gone}},
		"one of two is started again":  {script: "start a, watch, start b, watch, kill a, stop b, start c, watch, watch", want: []string{one}},
		"a frozen one that is replaced": {
			script: "start a, watch, freeze a, watch, start b, watch, thaw a, watch, kill b, watch", want: []string{late, gone, late, one},
		},
		"the disk is full":          {script: "start a, watch, watch", stuck: true},
		"the observer may not ask":  {script: "start a, watch, watch, kill a, watch", want: []string{late, gone}, lose: to("$SRV.PING.")},
		"the bucket is made again":  {script: "start a, watch, delete, make, watch, kill a, watch", want: []string{late, gone}},
		"the bucket is missing":     {script: "start a, watch, delete, watch, kill a, watch"},
		"the observer may not read": {script: "start a, watch, kill a, watch", want: []string{unknown}, lose: to("$JS.API.STREAM.MSG.GET.KV_jobs")},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
				observer, js := natstest.Proxied(t, srv)
				declared(t, js, 1)
				if test.lose != nil {
					observer.Filter(natstest.Losing(test.lose))
				}
				links, services, shop := map[string]*natstest.Proxy{}, map[string]*service.Service{}, service.Attend(js, "shop")
				var got []string
				look := func(times int) {
					for range times {
						roll, err := shop.Look(t.Context(), 0)
						if err != nil {
							roll.Problem, _, _ = strings.Cut(err.Error(), "ask about")
						}
						if roll.Late {
							roll.Problem = late
						}
						if text := lastSeen.ReplaceAllString(roll.Problem, ""); text != "" && (len(got) == 0 || got[len(got)-1] != text) {
							got = append(got, text)
						}
						natstest.Pass(2 * time.Second)
					}
				}
				for step := range strings.SplitSeq(test.script, ", ") {
					switch do, id, _ := strings.Cut(step, " "); do {
					case "start":
						links[id] = natstest.NewProxy(t, srv)
						nc, _ := natstest.Connect(t, srv, links[id].Through())
						services[id] = check.Must(service.Start(t.Context(), nc, imports(service.BaseConfig{})))(t)
						t.Cleanup(func() { _ = services[id].Stop() }) // a killed one has no connection
						natstest.Pass(time.Second)
						if test.stuck {
							links[id].Filter(natstest.Losing(to("$KV.jobs.ready.shop-")))
						}
					case "kill":
						links[id].Cut()
						delete(links, id)
					case "freeze":
						links[id].Partition()
					case "thaw":
						links[id].Heal()
					case "stop":
						check.OK(t, services[id].Stop())
					case "watch":
						look(7)
					case "wait":
						natstest.Pass(2 * time.Second)
					case "away":
						for _, link := range links {
							link.Partition()
						}
						natstest.Pass(20 * time.Second)
						look(2)
						for _, link := range links {
							link.Heal()
						}
					case "delete":
						check.OK(t, js.DeleteStream(t.Context(), "KV_jobs"))
					case "make":
						declared(t, js, 1)
					}
				}
				check.Equal(t, got, test.want)
			})
		})
	}
}

// to returns whether a message of a client is for a subject that begins so.
func to(subject string) func(natstest.Frame) bool {
	return func(f natstest.Frame) bool { return f.FromClient && strings.HasPrefix(f.Subject, subject) }
}
