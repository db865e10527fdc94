package cli

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/cmd/expediter/internal/doctor"
	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/cmd/expediter/internal/tour"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/audit"
	"github.com/expediter-io/expediter/pkg/service/console"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// consolePath is the path of the console beside the page on which to try everything.
const consolePath = "/console"

// site has the pages that up serves.
type site struct {
	*service.Server

	conn  *nats.Conn
	group *service.Group
}

// openSite serves the page of newcomers and the console at an address. The caller calls stop.
func openSite(ctx context.Context, address string, p *pipeline.Pipeline, logger *slog.Logger) (_ *site, err error) {
	server, err := service.Listen(ctx, "console", address)
	if err != nil {
		return nil, err
	}
	s := &site{Server: server, group: service.NewGroup(ctx)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.conn, err = p.Connect(nats.Name("console")); err != nil {
		return nil, fmt.Errorf("connect the console: %w", err)
	}
	js, err := jetstream.New(s.conn)
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	operators, err := console.New(console.Config{
		Accounts: []console.Account{{JetStream: js}}, Audit: audit.New(audit.Config{JetStream: js, Logger: logger, Source: "console"}),
		Conn: s.conn, Doctor: examiner(doctor.Config{Connect: p.Connect, Flags: "--server " + operate.Quote(p.NATSURL()), Server: p.NATSURL()}),
		Logger: logger, Prefix: consolePath,
	})
	if err != nil {
		return nil, err
	}
	router := service.NewRouter(service.RouterConfig{Logger: logger, Name: "tour", Ready: func() map[string]error { return nil }})
	err = tour.Add(router, tour.Config{
		Console: consolePath, Enricher: p.Enrichers[0].URL(), Importer: p.Importers[0].URL(), Notifier: p.Notifiers[0].URL(),
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(consolePath+"/", operators)
	mux.Handle("/", router)
	s.group.Go(operators.Run)
	s.Serve(s.group, service.ServerConfig{Handler: mux, Logger: logger, Name: "console"})
	return s, nil
}

// stop ends the streams to browsers, and then the console.
func (s *site) stop() error {
	err := errors.Join(s.Stop(), s.group.Stop())
	if s.conn != nil {
		s.conn.Close()
	}
	return err
}

// distant is a provider with delayed answers, like a remote one, so that pending places can be seen.
type distant struct{ provider.Provider }

// Search waits for 0.3 to 2.3 seconds, the same for the same place.
func (d distant) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(place.Name))
	pause.For(ctx, 300*time.Millisecond+time.Duration(sum.Sum32()%2000)*time.Millisecond)
	return d.Provider.Search(ctx, place)
}
