package enricher

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
)

// TestLongAnswers: the time that a client has to send its request does not end a stream of events, nor a request that
// waits.
func TestLongAnswers(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		nc, _ := natstest.Connect(t, srv)
		listener := servicetest.NewPipes()
		cfg := config()
		cfg.Listener = listener
		e, err := prepare(cfg)
		check.OK(t, err)
		spec := e.spec()
		spec.Open = e.answer // without a worker: the place stays pending
		if e.running, err = service.Start(t.Context(), nc, spec); err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: &http.Transport{DialContext: listener.DialContext}}
		defer client.CloseIdleConnections()
		check.Same(t, "URL", e.URL(), "http://127.0.0.1:80")
		began := time.Now()
		answer, err := client.Post("http://localhost/v1/enrich?wait=55s", "application/json", strings.NewReader(`{"requestId":"r","results":[{"placeId":"a","name":"A"}]}`))
		check.OK(t, err)
		defer answer.Body.Close()
		if took := time.Since(began); took < 55*time.Second || took > 56*time.Second {
			t.Errorf("answered after %s, want 55 s", took)
		}
		resp, err := client.Get("http://localhost/v1/requests/r/events") //nolint:bodyclose // closed below
		check.OK(t, err)
		defer resp.Body.Close()
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, resp.Body)
			ended <- err
		}()
		elapse(10 * time.Minute)
		select {
		case err := <-ended:
			t.Errorf("the stream has ended: %v", err)
		default:
		}
		began = time.Now()
		check.Is(t, e.Stop(), nil)
		<-ended
		if took := time.Since(began); took > time.Second {
			t.Errorf("the stop took %s, want no wait for open streams", took)
		}
	})
}

// elapse lets fake time pass.
func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a bubble only
