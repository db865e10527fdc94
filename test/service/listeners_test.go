package service_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
	t.Cleanup(func() {
		check.ErrorIs(t, s.Stop(), nil)
	})
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
		listeners := map[string]bool{
			one.URL(): true, hidden.URL(): part == "", many.URL(): part == "", many.AdminURL(): part == "admin",
		}
		for base, want := range listeners {
			method, path, _ := strings.Cut(route, " ")
			r, err := http.NewRequestWithContext(t.Context(), method, base+path, http.NoBody)
			check.Require(t, err == nil && strings.HasPrefix(base, "https://"), "%v %v", base, err)
			resp, err := client.Do(r)
			check.OK(t, err)
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

// inWorkedStore runs f with a service that works jobs, and has asked how many there are.
func inWorkedStore(t *testing.T, f func(*store)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		sh := newStore(t, srv, true)
		pass()
		f(sh)
	})
}

// send stores messages.
func (sh *store) send(subject string, n int) {
	sh.Helper()
	for range n {
		check.OK(sh, check.Err(sh.js.Publish(sh.Context(), subject, []byte("{}"))))
	}
}

// shows checks values of metrics: each is a name with labels, and the value, "" for none.
func (sh *store) shows(want string, name string, labels ...string) {
	sh.Helper()
	check.Equal(sh, sh.metric(name, labels...), want, fmt.Sprintf("%s %v", name, labels))
}

// The gauges count the jobs that wait, since when, and those that a worker has.
func TestJobsThatWaitAreCounted(t *testing.T) {
	inWorkedStore(t, func(sh *store) {
		sh.shows("0", "stream_jobs", jobs, "importer", "queued")
		sh.shows("0", "stream_jobs_age_seconds", jobs)
		sh.send("jobs.import.worked.a", 1)
		time.Sleep(10 * time.Second) //nolint:forbidigo // fake time
		sh.send("jobs.import.worked.b", 2)
		sh.send("dead.X.y", 3)
		pass()
		sh.shows("2", "stream_jobs", jobs, "importer", "queued")
		sh.shows("1", "stream_jobs", jobs, "importer", "delivered")
		sh.shows("0", "stream_jobs", jobs, "stranded")
		sh.shows("16", "stream_jobs_age_seconds", jobs)
		sh.shows("3", "stream_messages", contracts.StreamDead)
		sh.hold <- struct{}{}
		pass()
		sh.shows("1", "stream_jobs", jobs, "importer", "queued")
		sh.shows("32", "stream_jobs_age_seconds", jobs)
		sh.hold <- struct{}{}
		sh.hold <- struct{}{}
		pass()
		sh.shows("0", "stream_jobs", jobs, "importer", "queued")
		sh.shows("0", "stream_jobs", jobs, "importer", "delivered")
		sh.shows("0", "stream_jobs_age_seconds", jobs)

		// Messages for other consumers before a job do not make the job older.
		check.OK(t,
			check.Err(sh.js.CreateConsumer(sh.Context(), jobs, jetstream.ConsumerConfig{Durable: "idle", FilterSubject: "jobs.import.idle"})))
		sh.send("jobs.import.nobody", 1)
		pass()
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		sh.send("jobs.import.idle", 1)
		pass()
		sh.shows("1", "stream_jobs", jobs, "idle", "queued")
		sh.shows("16", "stream_jobs_age_seconds", jobs)
	})
}

// A message that no consumer takes, and one that its consumer has given up, are stranded; one that waits or runs is not.
func TestStrandedMessagesAreCounted(t *testing.T) {
	inWorkedStore(t, func(sh *store) {
		foreign, err := sh.js.CreateConsumer(sh.Context(), jobs, jetstream.ConsumerConfig{
			Durable: "foreign", FilterSubject: "jobs.import.foreign", MaxDeliver: 1, AckWait: time.Second,
		})
		check.OK(t, err)
		sh.send("jobs.import.nobody", 2)
		sh.send("jobs.import.foreign", 1)
		sh.send("jobs.import.worked.a", 2)
		pass()
		natstest.Pass(2 * time.Second) // the second look
		sh.shows("2", "stream_jobs", jobs, "stranded")
		for range 2 { // the second request finds that the first is not acknowledged
			if _, err := foreign.Next(jetstream.FetchMaxWait(2 * time.Second)); err == nil {
				time.Sleep(2 * time.Second) //nolint:forbidigo // fake time
			}
		}
		pass()
		pass()
		sh.shows("3", "stream_jobs", jobs, "stranded")
		sh.shows("0", "stream_jobs", jobs, "foreign", "queued")
	})
}
