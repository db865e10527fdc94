package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/service"
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
type store struct {
	*testing.T

	exports *export.Exports
	hold    chan struct{} // has an element for each job that may end
	js      jetstream.JetStream
	proxy   *natstest.Proxy
	service *service.Service
}

func newStore(t *testing.T, srv *natsrun.Server, works bool) *store {
	t.Helper()
	sh := &store{T: t, hold: make(chan struct{}, 100), proxy: natstest.NewProxy(t, srv)}
	_, sh.js = natstest.Connect(t, srv)
	nc, _ := natstest.Connect(t, srv, sh.proxy.Through())
	var err error
	sh.exports, err = export.Start(t.Context(), export.Config{Service: "shop"})
	check.OK(t, err)
	t.Cleanup(func() {
		if err := service.StopExports(context.Background(), sh.exports); err != nil { //nolint:usetesting // that of the test is over
			t.Error(err)
		}
	})
	open := func(context.Context, *service.Service) error { return nil }
	if works {
		open = sh.open
	}
	cfg := service.BaseConfig{CreateAssets: true, Exports: sh.exports, Logger: slog.New(slog.DiscardHandler), MaxBytes: 1}
	sh.service, err = service.Start(t.Context(), nc, service.Spec{
		Config: cfg.WithDefaults(service.None, 1), Description: "Sells", Endpoints: func() []service.Endpoint { return nil }, Name: "shop",
		Open:   open,
		Routes: func(*service.Router) {}, Streams: []string{contracts.StreamDead, jobs, events, recipes, objects},
	})
	check.OK(t, err)
	t.Cleanup(func() {
		check.ErrorIs(t, sh.service.Stop(), nil)
	})
	return sh
}

// open makes the worker of the stream of jobs, which works one at a time.
func (sh *store) open(_ context.Context, s *service.Service) error {
	w, err := s.Worker("worker", worker.Config{Consumer: "importer", Concurrency: 1, Stream: jobs})
	if err != nil {
		return err
	}
	work := func(ctx context.Context, _ *worker.Job[json.RawMessage]) error {
		select {
		case <-sh.hold:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return worker.Handle(w, "jobs.import.worked.>", worker.Policy{Timeout: time.Hour}, work)
}

// fill stores messages in a stream until they use a part of its bound in percent, and lets the time of a sample pass.
func (sh *store) fill(stream, subject string, percent uint64) {
	sh.Helper()
	const body = 1000
	for {
		s := check.Must(sh.js.Stream(sh.Context(), stream))(sh)
		if s.CachedInfo().State.Bytes*100 >= bound*percent {
			break
		}
		check.OK(sh, check.Err(sh.js.Publish(sh.Context(), subject, make([]byte, body))))
	}
	pass()
}

// pass lets the time of a sample pass.
func pass() { time.Sleep(16 * time.Second) } //nolint:forbidigo // fake time

// ready checks the state of the check: "" for passed, "note" and "failed", and parts of its text.
func (sh *store) ready(state string, says ...string) {
	sh.Helper()
	err := sh.service.Ready()["streams"]
	got := "failed"
	if _, ok := errors.AsType[service.Note](err); ok {
		got = "note"
	} else if err == nil {
		got = ""
	}
	if got != state {
		sh.Errorf("%q with %v, want %q", got, err, state)
	}
	for _, part := range says {
		if !strings.Contains(fmt.Sprint(err), part) {
			sh.Errorf("%v does not say %q", err, part)
		}
	}
}

// gauge returns the fullness of a stream in the metrics, "" for none.
func (sh *store) gauge(stream, by string) string {
	return sh.metric("stream_fullness_ratio", stream, by)
}

// metric returns the value with the labels in the metrics, "" for none.
func (sh *store) metric(name string, labels ...string) string {
	sh.Helper()
	answer := httptest.NewRecorder()
	sh.exports.Metrics.ServeHTTP(answer, httptest.NewRequestWithContext(sh.Context(), "GET", "/metrics", nil))
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

func inStore(t *testing.T, f func(*store)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) { f(newStore(t, srv, false)) })
}

// The service is not ready before its stream refuses messages, says so before that, and is ready again when there is room.
func TestReadinessTurnsBeforeAStreamRefuses(t *testing.T) {
	inStore(t, func(sh *store) {
		sh.ready("")
		sh.fill(jobs, "jobs.import.x", 79)
		sh.ready("")
		sh.fill(jobs, "jobs.import.x", 80)
		sh.ready("note", jobs+" is 80 % full")
		if got := sh.gauge(jobs, "bytes"); !strings.HasPrefix(got, "0.80") {
			sh.Errorf("the gauge is %q", got)
		}
		sh.fill(jobs, "jobs.import.x", 95)
		sh.ready("failed", jobs+" is 95 % full")
		check.ErrorIs(sh, check.Err(sh.js.Publish(sh.Context(), "jobs.import.x", nil)), nil)
		s := check.Must(sh.js.Stream(sh.Context(), jobs))(sh)
		check.OK(sh, s.Purge(sh.Context()))
		pass()
		sh.ready("")
		check.Equal(sh, sh.gauge(jobs, "bytes"), "0", "the gauge")

		// A stream that drops its oldest messages is full as a rule: the gauge shows it.
		sh.fill(events, "events.x", 96)
		sh.ready("")
		if got := sh.gauge(events, "bytes"); !strings.HasPrefix(got, "0.96") {
			sh.Errorf("the gauge is %q", got)
		}
		check.Equal(sh, sh.gauge(contracts.StreamDead, "bytes"), "0", "the gauge of dead letters")

		// The server's present bounds count, also that of messages.
		cfg := s.CachedInfo().Config
		cfg.MaxMsgs = 10
		check.OK(sh, check.Err(sh.js.UpdateStream(sh.Context(), cfg)))
		for range 9 {
			check.OK(sh, check.Err(sh.js.Publish(sh.Context(), "jobs.import.x", nil)))
		}
		pass()
		sh.ready("note", jobs+" is 90 % full")
		check.Equal(sh, sh.gauge(jobs, "messages"), "0.9", "the gauge")

		// A stream that was deleted is named until it is there again.
		check.OK(sh, sh.js.DeleteStream(sh.Context(), jobs))
		pass()
		sh.ready("failed", jobs+" is missing")
		check.Equal(sh, sh.gauge(jobs, "bytes"), "", "the gauge")
		check.OK(sh, check.Err(sh.js.CreateStream(sh.Context(), s.CachedInfo().Config)))
		pass()
		sh.ready("")
	})
}

// An old answer is not shown as one that holds, and a server that answers again is believed.
func TestAnOldAnswerIsNotShown(t *testing.T) {
	inStore(t, func(sh *store) {
		sh.fill(jobs, "jobs.import.x", 96)
		sh.ready("failed")
		sh.proxy.Filter(natstest.Losing(func(f natstest.Frame) bool { return f.FromClient && f.Subject == "$JS.API.STREAM.INFO."+jobs }))
		pass()
		sh.ready("failed")      // one lost answer changes nothing
		time.Sleep(time.Minute) //nolint:forbidigo // fake time
		sh.ready("note", jobs+": how full it is was not answered for 1m")
		check.Equal(sh, sh.gauge(jobs, "bytes"), "", "the gauge")
		if sh.gauge(events, "bytes") == "" {
			sh.Error("the other streams have no gauge")
		}
		sh.proxy.Filter(nil)
		pass()
		sh.ready("failed", "96 % full")
	})
}
