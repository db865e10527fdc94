package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/notifier"
)

// While no worker takes jobs, each service takes those of a caller up to its bound, and those of others. It takes more when
// workers have begun them.
func TestABacklogIsItsCallersOnly(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	nc, js := natstest.Connect(t, srv)
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys.json")
	secrets := map[string]string{}
	for _, name := range []string{"ada", "bob"} {
		secret := check.Must(access.Add(keys, access.Key{Name: name, Scopes: access.Scopes()}))(t)
		secrets[name] = secret
	}
	catalog, rules := filepath.Join(dir, "venues.json"), filepath.Join(dir, "rules.yaml")
	for file, text := range map[string]string{
		catalog: `[]`, rules: "version: 1\nevents:\n  OUTAGE:\n    CUSTOMER: {scope: user, channels: [inapp]}\n",
	} {
		check.OK(t, os.WriteFile(file, []byte(text), 0o600))
	}
	base := service.BaseConfig{
		CreateAssets: true, Keys: keys, LimitConfig: service.LimitConfig{Waiting: 2}, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler),
	}
	type running interface {
		Stop() error
		URL() string
	}
	for _, tc := range []struct {
		name, stream, consumer, path, body string
		known                              int // the status of a job that is submitted again
		start                              func() (running, error)
	}{
		{"enricher", contracts.StreamEnrichJobs, "enricher", "/v1/enrich", `{"results":[{"placeId":"%s","name":"Soup"}]}`, http.StatusOK, func() (running, error) {
			return enricher.Start(t.Context(), nc, enricher.Config{BaseConfig: base, Catalog: catalog, Enabled: true})
		}},
		{
			"importer", contracts.StreamImportJobs, "importer", "/v1/imports", `{"job_id":"%s","owner_id":"o","source_type":"captions","url":"https://example.org/a.vtt"}`,
			http.StatusTooManyRequests, func() (running, error) {
				return importer.Start(t.Context(), nc, importer.Config{BaseConfig: base, TempDir: dir})
			},
		},
		{
			"notifier", contracts.StreamEvents, "notifier", "/v1/events", `{"event_id":"%s","event_type":"OUTAGE","aggregate_type":"RESTAURANT","restaurant_id":"5"}`,
			http.StatusTooManyRequests, func() (running, error) {
				return notifier.Start(t.Context(), nc, notifier.Config{BaseConfig: base, Rules: rules})
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, err := tc.start()
			check.OK(t, err)
			defer func() {
				check.Is(t, s.Stop(), nil)
			}()
			submit := func(by, id string) (int, string) {
				return keyed(t, secrets[by], s.URL()+tc.path, fmt.Sprintf(tc.body, id))
			}
			var paused *jetstream.ConsumerPauseResponse
			for paused == nil { // until the worker has made it
				paused, err = js.PauseConsumer(t.Context(), tc.stream, tc.consumer, time.Now().Add(time.Hour))
				check.Require(t, err == nil || errors.Is(err, jetstream.ErrConsumerNotFound), "%v", err)
			}
			for _, step := range []struct {
				by, id string
				want   int
			}{{"ada", "one", 200}, {"ada", "two", 200}, {"ada", "three", 429}, {"ada", "one", tc.known}, {"bob", "four", 200}} {
				got, said := submit(step.by, step.id)
				check.That(t, got/100 == step.want/100 && (got == http.StatusTooManyRequests) == strings.Contains(said, `"code":"QUOTA_WAITING"`),
					"%s submits %s: %d %s, want %d", step.by, step.id, got, said, step.want)
			}
			check.OK(t, check.Err(js.ResumeConsumer(t.Context(), tc.stream, tc.consumer)))
			for { // until the test ends
				got, said := submit("ada", "three")
				if got/100 == 2 {
					return
				}
				check.Require(t, got == http.StatusTooManyRequests, "%d %s", got, said)
				pause.For(t.Context(), 50*time.Millisecond) // nothing says that the service, once a second, may ask again
			}
		})
	}
}

// keyed posts a body with a key, and returns the status and the answer.
func keyed(t *testing.T, secret, url, body string) (int, string) {
	t.Helper()
	r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body)))(t)
	r.Header.Set("Authorization", "Bearer "+secret)
	return reply(r)
}

// reply returns the status and body of an answer that is bounded, 0 for none.
func reply(r *http.Request) (int, string) {
	resp, err := (&http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}
