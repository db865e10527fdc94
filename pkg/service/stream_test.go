package service_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
)

// An event stream of which nothing is written for a while stays open, over HTTP/1.1 and over HTTP/2, which browsers speak where there is TLS.
// A client that does not read is cut off all the same.
func TestStreamsEndOnlyForClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	const beats = 20
	idle := func(ctx context.Context, s *service.Stream) error {
		for range beats {
			if _, err := service.Wait(ctx, 15*time.Second, func(ctx context.Context) (int, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			}); !errors.Is(err, service.ErrIdle) {
				return err
			}
			if err := s.Heartbeat(); err != nil {
				return err
			}
		}
		return nil
	}
	flood := func(_ context.Context, s *service.Stream) (err error) {
		for err == nil {
			err = s.Event("1", "status", strings.Repeat("x", 1<<20))
		}
		return err
	}
	for name, version := range map[string]func(*http.Protocols, bool){
		"HTTP 1": (*http.Protocols).SetHTTP1, "HTTP 2": (*http.Protocols).SetUnencryptedHTTP2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				text, err := read(t, version, idle, io.ReadAll)
				check.That(t, err == nil && strings.Count(string(text), ": heartbeat\n\n") == beats,
					"%q, %v after %d heartbeats", text, err, strings.Count(string(text), ": heartbeat\n\n"))
			})
			synctest.Test(t, func(t *testing.T) {
				began, ended := time.Now(), make(chan struct{})
				_, err := read(t, version, func(ctx context.Context, s *service.Stream) error {
					defer close(ended)
					err := flood(ctx, s)
					took := time.Since(began)
					check.That(t, err != nil && took == 10*time.Second, "%v after %s", err, took)
					return err
				}, func(io.Reader) ([]byte, error) {
					<-ended
					return nil, nil
				})
				check.Is(t, err, nil)
			})
		})
	}
}

// read asks for an event stream over a version of HTTP.
func read(
	t *testing.T, version func(*http.Protocols, bool), send func(context.Context, *service.Stream) error, take func(io.Reader) ([]byte, error),
) ([]byte, error) {
	t.Helper()
	router := service.NewRouter(service.RouterConfig{Logger: slog.New(slog.DiscardHandler), Name: "shop"})
	router.HandleStream("GET /events", access.Public(), func(w http.ResponseWriter, r *http.Request) error {
		s, err := service.OpenStream(w, r, service.Retry)
		if err == nil {
			err = send(r.Context(), s)
		}
		return err
	})
	protocols, pipes := new(http.Protocols), servicetest.NewPipes()
	version(protocols, true)
	server := &http.Server{Handler: router, Protocols: protocols, ReadTimeout: time.Minute, WriteTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(pipes) }()
	transport := &http.Transport{DialContext: pipes.DialContext, Protocols: protocols}
	defer func() {
		transport.CloseIdleConnections()
		check.Is(t, server.Close(), nil)
		<-served
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/events", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return take(resp.Body)
}
