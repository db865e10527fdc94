// Package natsapi serves the enricher as a NATS micro service (ADR-32): for programs that have a NATS connection already,
// and for the nats command line.
package natsapi

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
)

// Endpoints returns the endpoints of the enricher. Instances of one name share the requests.
func Endpoints(s *enrich.Service) []service.Endpoint {
	a := api{s}
	return []service.Endpoint{
		{Answer: a.enrich, Name: "enrich", Subject: "enricher.v1.enrich", Takes: "EnrichRequest", Gives: "EnrichResponse"},
		{Answer: a.get, Name: "get", Subject: "enricher.v1.get", Takes: `{"requestId":"…"}`, Gives: "Snapshot"},
		{Answer: a.place, Name: "place", Subject: "enricher.v1.place", Takes: `{"placeId":"…"}`, Gives: "Place"},
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

func (a api) place(ctx context.Context, r service.Request) ([]byte, error) {
	type PlaceRequest struct {
		PlaceID string `json:"placeId"`
	}
	req, err := contracts.Read[PlaceRequest](r.Data)
	if err != nil {
		return nil, err
	}
	if _, err := contracts.EncodeToken(req.PlaceID); err != nil {
		return nil, &contracts.ValidationError{Type: "PlaceRequest", Fields: []contracts.FieldError{
			{Path: "/placeId", Problem: fmt.Sprintf("must be an id of 1 to %d bytes", contracts.MaxID)},
		}}
	}
	known, err := a.service.Place(ctx, req.PlaceID)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"placeId": req.PlaceID, "lookups": known})
}

func (a api) get(ctx context.Context, r service.Request) ([]byte, error) {
	type GetRequest struct {
		RequestID string `json:"requestId"`
	}
	req, err := contracts.Read[GetRequest](r.Data)
	if err == nil && req.RequestID == "" {
		err = &contracts.ValidationError{Type: "GetRequest", Fields: []contracts.FieldError{{Path: "/requestId", Problem: "is required"}}}
	}
	if err != nil {
		return nil, err
	}
	sub, err := a.service.Subscribe(ctx, req.RequestID, "")
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	update, err := sub.Next(ctx)
	if err != nil {
		return nil, err
	}
	return json.Marshal(update.Body)
}
