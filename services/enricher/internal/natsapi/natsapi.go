// Package natsapi serves the enricher as a NATS micro service (ADR-32): for programs that have a NATS connection already,
// and for the nats command line.
package natsapi

import (
	"context"
	"fmt"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
)

// Endpoints returns the endpoints of the enricher. Instances of one name share the requests.
func Endpoints(s *enrich.Service) []service.Endpoint {
	a := api{s}
	return []service.Endpoint{
		{Answer: a.enrich, Name: "enrich", Subject: "enricher.v1.enrich", Takes: "EnrichRequest", Gives: "EnrichResponse"},
		service.Decoded("enricher.v1.get", `{"requestId":"…"}`, "Snapshot", a.get),
		service.Decoded("enricher.v1.place", `{"placeId":"…"}`, "Place", a.place),
	}
}

type api struct{ service *enrich.Service }

func (a api) enrich(ctx context.Context, r service.Request) ([]byte, error) {
	req, err := contracts.Decode[contracts.EnrichRequest](r.Data)
	if err != nil {
		return nil, err
	}
	resp, err := a.service.Enrich(ctx, req)
	if err != nil {
		return nil, err
	}
	return contracts.Encode(resp)
}

type placeRequest struct {
	PlaceID string `json:"placeId"`
}

func (a api) place(ctx context.Context, r placeRequest) (map[string]any, error) {
	if _, err := contracts.EncodeToken(r.PlaceID); err != nil {
		return nil, contracts.Mistake("request", "/placeId", fmt.Sprintf("must be an id of 1 to %d bytes", contracts.MaxID))
	}
	known, err := a.service.Place(ctx, r.PlaceID)
	return map[string]any{"placeId": r.PlaceID, "lookups": known}, err
}

type getRequest struct {
	RequestID string `json:"requestId"`
}

func (a api) get(ctx context.Context, r getRequest) (any, error) {
	if r.RequestID == "" {
		return nil, contracts.Mistake("request", "/requestId", "is required")
	}
	sub, err := a.service.Subscribe(ctx, r.RequestID, "")
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	update, err := sub.Next(ctx)
	return update.Body, err
}
