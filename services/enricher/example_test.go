package enricher_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/services/enricher"
)

// A program with an embedded NATS server starts the service, here with a file of venues, and asks it without a network in
// between.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "enricher")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	venues := filepath.Join(dir, "venues.csv")
	content := "id,name,address,city,url\n1,Pizza House,50 Dizengoff Street,Tel Aviv,https://example.com/pizza-house\n"
	if err := os.WriteFile(venues, []byte(content), 0o600); err != nil {
		log.Fatal(err)
	}

	server, err := natsrun.Start(natsrun.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Stop()
	nc, err := server.Connect()
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	e, err := enricher.Start(ctx, nc, enricher.Config{
		BaseConfig: service.BaseConfig{CreateAssets: true, Listen: service.None, Logger: slog.New(slog.DiscardHandler), MaxBytes: 1 << 30},
		Catalog:    venues, Enabled: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer e.Stop() //nolint:errcheck // an example

	answer, err := e.Enrich(ctx, contracts.EnrichRequest{
		CityText: "Tel Aviv",
		Results:  []contracts.Restaurant{{PlaceID: "ChIJ123", Name: "Pizza House", Address: "Dizengoff 50"}},
		WaitMS:   10_000,
	})
	if err != nil {
		log.Fatal(err)
	}
	state, _ := answer.Results[0].State("wolt")
	fmt.Println(state.Status, *state.URL)
	// Output: FOUND https://example.com/pizza-house
}

// Without variables nothing is looked up, and there is no provider: Run says so.
func ExampleFromEnvironment() {
	cfg, err := enricher.FromEnvironment()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cfg.Enabled)
	// Output: false
}
