// Package natsapi serves the importer as a NATS micro service (ADR-32): the functions of the HTTP API, for clients that have
// a NATS connection already, and for the nats command line.
package natsapi

import (
	"context"
	"fmt"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
	"github.com/expediter-io/expediter/services/importer/store"
)

// Endpoints returns the endpoints of the importer. Instances of one name share the requests. recipes is nil when another service keeps the
// recipes.
func Endpoints(jobs *imports.Service, recipes *store.Bucket) []service.Endpoint {
	submit := func(ctx context.Context, r service.Request) (imports.Job, error) {
		sub, err := contracts.Decode[imports.Submission](r.Data)
		if err != nil {
			return imports.Job{}, err
		}
		job, _, err := jobs.Submit(ctx, sub)
		return job, err
	}
	return []service.Endpoint{
		service.Answering("importer.v1.submit", "ImportJob", "ImportStatus", submit), // whose job_id may be missing
		byID("importer.v1.get", jobs.Get),
		byID("importer.v1.cancel", jobs.Cancel),
		byID("importer.v1.retry", jobs.Retry),
		service.Decoded("importer.v1.recipe", `{"recipe_id":"…"}`, "Recipe", recipe(recipes)),
	}
}

type recipeRequest struct {
	RecipeID string `json:"recipe_id"`
}

// recipe answers with a recipe and its source.
func recipe(recipes *store.Bucket) func(context.Context, recipeRequest) (store.Stored, error) {
	return func(ctx context.Context, r recipeRequest) (store.Stored, error) {
		switch {
		case r.RecipeID == "":
			return store.Stored{}, contracts.Mistake("request", "/recipe_id", "is required")
		case recipes == nil:
			return store.Stored{}, fmt.Errorf("%w here: another service keeps the recipes", store.ErrNotFound)
		}
		return recipes.Get(ctx, r.RecipeID)
	}
}

type jobRequest struct {
	JobID string `json:"job_id"`
}

// byID returns an endpoint that calls do with the job id of a request.
func byID(subject string, do func(context.Context, string) (imports.Job, error)) service.Endpoint {
	return service.Decoded(subject, `{"job_id":"…"}`, "ImportStatus", func(ctx context.Context, r jobRequest) (imports.Job, error) {
		if r.JobID == "" {
			return imports.Job{}, contracts.Mistake("request", "/job_id", "is required")
		}
		return do(ctx, r.JobID)
	})
}
