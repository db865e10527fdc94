package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

const (
	// durability is the durability of acknowledged writes on the server of natsrun.
	durability = "R1, default sync"

	// storeBytes is the number of bytes that all streams may reserve.
	storeBytes = 4 << 30

	// settlePoll is the time between two checks whether the jobs are done.
	settlePoll = 500 * time.Microsecond
)

// stand is everything that runs in a round: a server, an enricher, and clients, each on separate TCP connections.
type stand struct {
	server   *natsrun.Server
	conn     *nats.Conn // the enricher's
	enricher *enricher.Enricher
	exports  *export.Exports    // as the command has them, nil for none
	askers   map[string][]asker // by transport, one for each client
	closers  []func()
	ids      int // of places, used so far
}

// newStand starts a server, an enricher of a kind and its clients.
func newStand(ctx context.Context, kind string, memory int64) (_ *stand, err error) {
	s := &stand{askers: map[string][]asker{}}
	if kind == "stored" {
		memory = -1
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.server, err = natsrun.Start(natsrun.Config{Listen: true}); err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	url := s.server.URL()
	if s.conn, err = nats.Connect(url); err != nil {
		return nil, fmt.Errorf("connect the enricher: %w", err)
	}
	if kind != "bare" {
		if s.exports, err = export.Start(ctx, export.Config{Service: "enricher"}); err != nil {
			return nil, fmt.Errorf("start the telemetry: %w", err)
		}
	}
	s.enricher, err = enricher.Start(ctx, s.conn, enricher.Config{
		BaseConfig: service.BaseConfig{
			CreateAssets: true, Exports: s.exports, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler), MaxBytes: storeBytes,
		},
		Enabled: true, MemoryBytes: memory, Providers: []provider.Provider{instant{}},
	})
	if err != nil {
		return nil, fmt.Errorf("start the enricher: %w", err)
	}
	for range manyClients {
		nc, err := nats.Connect(url)
		if err != nil {
			return nil, fmt.Errorf("connect a client: %w", err)
		}
		client := &http.Client{Transport: &http.Transport{}}
		s.closers = append(s.closers, nc.Close, client.CloseIdleConnections)
		s.askers["http"] = append(s.askers["http"], overHTTP(client, s.enricher.URL()+"/v1/enrich"))
		s.askers["nats"] = append(s.askers["nats"], overNATS(nc))
	}
	return s, nil
}

// newIDs returns n ids of places that nobody has asked for.
func (s *stand) newIDs(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = s.ids
		s.ids++
	}
	return ids
}

// settle waits until every job that was queued is done.
func (s *stand) settle(ctx context.Context) error {
	for {
		stats := s.enricher.Stats()
		found := stats.Outcomes[contracts.OutcomeFound]
		if found == stats.Jobs {
			return nil
		}
		for outcome := range stats.Outcomes {
			if outcome != contracts.OutcomeFound {
				return fmt.Errorf("every place should be found: %+v", stats)
			}
		}
		if !retry.Sleep(ctx, settlePoll) {
			return fmt.Errorf("wait for the jobs: %w: %+v", ctx.Err(), stats)
		}
	}
}

func (s *stand) close() error {
	var err error
	for _, c := range s.closers {
		c()
	}
	if s.enricher != nil {
		err = s.enricher.Stop()
	}
	if s.exports != nil {
		err = errors.Join(err, s.exports.Stop(context.Background()))
	}
	if s.conn != nil {
		s.conn.Close()
	}
	if s.server != nil {
		s.server.Stop()
	}
	return err
}

// instant is a provider that knows every place and answers at once.
type instant struct{}

func (instant) Name() string { return "wolt" }

func (instant) Search(_ context.Context, place match.Place) ([]provider.Venue, error) {
	id := strings.ReplaceAll(strings.TrimPrefix(place.Phone, "+"), " ", "-")
	return []provider.Venue{{ID: id, Place: place, URL: "https://wolt.example/en/springfield/restaurant/" + id}}, nil
}

// asker asks on a separate connection.
type asker func(ctx context.Context, body []byte) ([]byte, error)

func overHTTP(client *http.Client, url string) asker {
	return func(ctx context.Context, body []byte) ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return nil, fmt.Errorf("make the request: %w", err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return nil, fmt.Errorf("ask: %w", err)
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("answer: %s: %.300s", resp.Status, data)
		}
		return data, nil
	}
}

func overNATS(nc *nats.Conn) asker {
	return func(ctx context.Context, body []byte) ([]byte, error) {
		m, err := nc.RequestWithContext(ctx, "enricher.v1.enrich", body)
		if err != nil {
			return nil, fmt.Errorf("ask: %w", err)
		}
		if text := m.Header.Get("Nats-Service-Error"); text != "" {
			return nil, fmt.Errorf("answer: %s: %.300s", text, m.Data)
		}
		return m.Data, nil
	}
}

// body returns a request for places, each of the size that a search returns. Requests for the same places are equal.
func body(ids []int) []byte {
	text := []byte(`{"cityText":"Springfield","results":[`)
	for i, id := range ids {
		if i > 0 {
			text = append(text, ',')
		}
		text = fmt.Appendf(text, `{"placeId":"ChIJ-bench-%07[1]d-Qx7","name":"Kitchen %[1]d, the Corner","address":"%[1]d Evergreen Terrace, Springfield",`+
			`"location":{"lat":%.5[2]f,"lng":%.5[3]f},"phone":"+1 555 %07[1]d","rating":4.4,"userRatingsTotal":1076,"openNow":true,`+
			`"priceLevel":2,"types":["restaurant","meal_takeaway","food"],"photoReference":"photo-79528076302bbdf9-%[1]d"}`,
			id, 30+float64(id%10000)/1000, 30+float64(id/10000)/1000)
	}
	return append(text, `]}`...)
}

// check returns an error for a wrong answer, without the cost of decoding the JSON.
func check(k kase, answer []byte) error {
	pending := 0
	if !k.hit() {
		pending = k.Places
	}
	if !bytes.Contains(answer, []byte(`"pending":`+strconv.Itoa(pending))) {
		return fmt.Errorf("%s: want %d pending: %.300s", k, pending, answer)
	}
	return nil
}
