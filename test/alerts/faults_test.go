package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/installed"
	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
	"github.com/expediter-io/expediter/services/enricher"
)

const (
	jobs     = contracts.StreamEnrichJobs
	requests = "KV_" + contracts.BucketRequests
)

// site is an enricher, and a Prometheus that has the configuration and the rules of the repository.
type site struct {
	*testing.T

	asked      int         // places
	broken     atomic.Bool // the far side
	far        *httptest.Server
	js         jetstream.JetStream
	meanwhile  func() // is called again and again while await waits, nil for nothing
	nc         *nats.Conn
	prometheus string // its address
}

// answer is that of the far side: nothing is found.
func (s *site) answer(w http.ResponseWriter, _ *http.Request) {
	if s.broken.Load() {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	check.OK(s, check.Err(w.Write([]byte(`{"sections":[{"template":"venue-list","items":[
		{"template":"venue-large","venue":{"id":"1","name":"Pizza House","slug":"pizza-house"}}]}]}`))))
}

// enricher starts an enricher.
func (s *site) enricher(listen string) *enricher.Enricher {
	s.Helper()
	exports, err := export.Start(s.Context(), export.Config{Service: "enricher"})
	check.OK(s, err)
	s.Cleanup(func() { check.Is(s, exports.Stop(context.Background()), nil) })
	base := service.BaseConfig{CreateAssets: true, Exports: exports, Listen: listen, Logger: slog.New(slog.DiscardHandler), MaxBytes: 1}
	e, err := enricher.Start(s.Context(), s.nc, enricher.Config{BaseConfig: base, Enabled: true, WoltRate: 100, WoltURL: s.far.URL})
	check.OK(s, err)
	s.Cleanup(func() { check.Is(s, e.Stop(), nil) })
	return e
}

// ask asks an enricher for n places that were not asked for before.
func (s *site) ask(e *enricher.Enricher, n int) {
	s.Helper()
	request := contracts.EnrichRequest{RequestID: "r"}
	for range n {
		s.asked++
		name := fmt.Sprint("Kitchen ", s.asked)
		request.Results = append(request.Results, contracts.Restaurant{PlaceID: strconv.Itoa(s.asked), Name: name, CityText: "Haifa"})
	}
	check.OK(s, check.Err(e.Enrich(s.Context(), request)))
}

// edit changes the configuration of a stream.
func (s *site) edit(stream string, change func(*jetstream.StreamConfig)) jetstream.Stream {
	s.Helper()
	found, err := s.js.Stream(s.Context(), stream)
	check.OK(s, err)
	cfg := found.CachedInfo().Config
	change(&cfg)
	check.OK(s, check.Err(s.js.UpdateStream(s.Context(), cfg)))
	return found
}

// watch starts Prometheus, and waits until it has scraped services.
func (s *site) watch(urls ...string) {
	s.Helper()
	folder := s.TempDir()
	rulesPath, err := filepath.Abs(rules)
	check.OK(s, err)
	config, _, _ := strings.Cut(read(s.T, "../../deploy/prometheus/prometheus.yaml"), "  - job_name: importer\n")
	targets := strings.ReplaceAll(strings.Join(urls, `", "`), "http://", "")
	config = strings.NewReplacer("[rules.yaml]", "["+rulesPath+"]", "127.0.0.1:8080", targets).Replace(config)
	file := filepath.Join(folder, "prometheus.yaml")
	check.OK(s, os.WriteFile(file, []byte(config), 0o600))
	p := crash.Start(s, exec.CommandContext(s.Context(), "sh", "-c", `exec "$0" "$@" 2>&1`, installed.Prometheus.Find(s)[0],
		"--config.file="+file, "--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address=127.0.0.1:0"))
	s.prometheus = p.Await(`Listening on" address=(\S+)`)[1]
	p.Await("Server is ready")
	s.until("all are scraped", func() bool {
		var found struct {
			Data struct {
				Result []any `json:"result"`
			} `json:"data"`
		}
		s.read("query?query=stream_messages%7Bstream%3D%22DEAD%22%7D", &found)
		return len(found.Data.Result) == len(urls)
	})
	check.Same(s, "alerts of what is healthy", fmt.Sprint(s.firing()), "map[]")
}

// read decodes an answer of Prometheus.
func (s *site) read(path string, into any) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+s.prometheus+"/api/v1/"+path, http.NoBody)
	check.OK(s, err)
	answer, err := (&http.Client{Timeout: crash.Patience}).Do(r)
	check.OK(s, err)
	defer answer.Body.Close()
	check.OK(s, json.NewDecoder(answer.Body).Decode(into))
}

// firing returns the names of the alerts that fire.
func (s *site) firing() map[string]bool {
	s.Helper()
	var found struct {
		Data struct {
			Alerts []struct {
				Labels map[string]string `json:"labels"`
				State  string            `json:"state"`
			} `json:"alerts"`
		} `json:"data"`
	}
	s.read("alerts", &found)
	names := map[string]bool{}
	for _, a := range found.Data.Alerts {
		if a.State == "firing" {
			names[a.Labels["alertname"]] = true
		}
	}
	return names
}

// until waits for a condition.
func (s *site) until(says string, holds func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), crash.Patience)
	defer cancel()
	for !holds() {
		if !pause.For(ctx, 200*time.Millisecond) {
			s.Fatalf("never: %s; these fire: %v", says, s.firing())
		}
	}
}

// await waits until all of the alerts fire, or none of them, and logs how long each took.
func (s *site) await(fires bool, names ...string) {
	s.Helper()
	began := time.Now()
	s.until(fmt.Sprintf("%v fire: %t", names, fires), func() bool {
		if s.meanwhile != nil {
			s.meanwhile()
		}
		now := s.firing()
		names = slices.DeleteFunc(names, func(name string) bool {
			if now[name] == fires {
				s.Logf("%s fires after %.0f s: %t", name, time.Since(began).Seconds(), fires)
			}
			return now[name] == fires
		})
		return len(names) == 0
	})
}

// publish stores a message, and returns its sequence.
func (s *site) publish(subject string, data []byte) uint64 {
	s.Helper()
	ack, err := s.js.Publish(s.Context(), subject, data)
	check.OK(s, err)
	return ack.Sequence
}

// Faults of running services fire their alerts, and what their runbooks say ends these.
func TestFaultsFireAndAreMended(t *testing.T) {
	t.Parallel()
	installed.Prometheus.Find(t)
	srv := crash.StartServer(t)
	s := &site{T: t}
	s.far = httptest.NewServer(http.HandlerFunc(s.answer))
	t.Cleanup(s.far.Close)
	s.nc, s.js = natstest.ConnectURL(t, srv.URL)
	a, b := s.enricher("127.0.0.1:0"), s.enricher("127.0.0.1:0")
	s.watch(a.URL(), b.URL())

	s.broken.Store(true)
	s.ask(a, 20)
	polls := 0
	s.meanwhile = func() { // else the breaker lets a call through after 30 seconds, and there is none
		polls++
		if polls%50 == 0 {
			s.ask(a, 1)
		}
	}
	s.await(true, "DeadLettersGrow", "FarSideHeld")
	s.meanwhile = nil

	check.OK(t, check.Err(s.js.PauseConsumer(t.Context(), jobs, "enricher", time.Now().Add(time.Hour))))
	s.ask(a, 1)
	queue := s.edit(jobs, func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "jobs.nobody") })
	stranded := s.publish("jobs.nobody", nil)
	for n := range 10 {
		s.publish(fmt.Sprintf("$KV.requests.%d", n), make([]byte, 101_000))
	}
	s.await(true, "JobsNotWorked", "JobsStranded", "ServiceNotReady", "StreamFull")

	s.broken.Store(false)
	check.OK(t, check.Err(s.js.ResumeConsumer(t.Context(), jobs, "enricher")))
	check.OK(t, queue.DeleteMsg(t.Context(), stranded))
	s.edit(requests, func(c *jetstream.StreamConfig) { c.MaxBytes *= 2 })
	s.await(false, "FarSideHeld", "JobsNotWorked", "JobsStranded", "ServiceNotReady", "StreamFull")

	letters, err := deadletter.Open(t.Context(), s.js, deadletter.Config{})
	check.OK(t, err)
	check.OK(t, check.Err(letters.Replay(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{})))
	s.await(false, "DeadLettersGrow")

	check.OK(t, b.Stop())
	srv.Kill()
	s.await(true, "NATSUnreachable", "ServiceDown")
	check.OK(t, srv.Start(t.Context()))
	s.enricher(strings.TrimPrefix(b.URL(), "http://"))
	s.await(false, "NATSUnreachable", "ServiceDown")
}
