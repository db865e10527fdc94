package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher"
)

func TestMain(m *testing.M) { natstest.Main(m, 1) }

// An enricher finds a place with this server, and has NOT_FOUND for one that the server does not have.
func TestAnEnricherAsksTheServer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(find([]venue{
		{Name: "Café Alma Levana", Address: "Rothschild Boulevard 71", City: "Tel Aviv", URL: "https://example.com/alma"},
		{Name: "Café Alma", Address: "Hagana 9", City: "Akko", URL: "https://example.com/akko"},
	}, "s3cr3t"))
	defer server.Close()
	nc, _ := natstest.Connect(t, natstest.Server(t))
	e := check.Must(enricher.Start(t.Context(), nc, enricher.Config{
		BaseConfig: service.BaseConfig{CreateAssets: true, Listen: "-", Logger: slog.New(slog.DiscardHandler)},
		Enabled:    true, ProviderKey: "s3cr3t", ProviderURL: server.URL,
	}))(t)
	defer func() { check.OK(t, e.Stop()) }()
	answer := check.Must(e.Enrich(t.Context(), contracts.EnrichRequest{CityText: "Tel Aviv", WaitMS: 30_000, Results: []contracts.Restaurant{
		{PlaceID: "p1", Name: "Café Alma Levana", Address: "Rothschild Blvd 71"}, {PlaceID: "p2", Name: "Sushi Bar", Address: "Herzl 1"},
	}}))(t)
	found, _ := answer.Results[0].State("wolt")
	none, _ := answer.Results[1].State("wolt")
	check.That(t, found.URL != nil && *found.URL == "https://example.com/alma" && none.Status == contracts.StatusNotFound, "%+v, %+v",
		found, none)
}

func TestTheServerRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key, body string
		want      int
	}{{"other", `{"name":"A"}`, 401}, {"s3cr3t", `{`, 400}, {"s3cr3t", `{"name":"A","new":1}`, 200}} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(tt.body))
		r.Header.Set("Authorization", "Bearer "+tt.key)
		find([]venue{}, "s3cr3t")(w, r)
		check.Equal(t, w.Code, tt.want, tt.key+tt.body)
	}
}

func TestTheDocumentHasTheProgram(t *testing.T) {
	t.Parallel()
	_, program, _ := strings.Cut(string(check.Must(os.ReadFile("main.go"))(t)), "type venue")
	check.Contains(t, string(check.Must(os.ReadFile("../../docs/provider.md"))(t)), "```go\ntype venue"+program+"```")
}
