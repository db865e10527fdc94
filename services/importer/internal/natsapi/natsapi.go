// Package natsapi serves the importer as a NATS micro service (ADR-32): the functions of the HTTP API, for clients that have
// a NATS connection already, and for the nats command line.
package natsapi

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
	"github.com/expediter-io/expediter/services/importer/store"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

// The endpoints' subjects. Instances of one name share the requests. Each answers with a job, and all except the
// first take {"job_id"}.
const (
	SubjectSubmit = "importer.v1.submit" // an ImportJob, whose job_id may be missing
	SubjectGet    = "importer.v1.get"
	SubjectCancel = "importer.v1.cancel"
	SubjectRetry  = "importer.v1.retry"

	SubjectRecipe = "importer.v1.recipe" // {"recipe_id"}; answers the recipe with its source
)

// Endpoints returns the endpoints of the importer. recipes is nil when another service keeps the recipes.
func Endpoints(jobs *imports.Service, recipes *kvstore.Store) []service.Endpoint {
	endpoint := func(name, subject, takes string, answer func(context.Context, []byte) (imports.Job, error)) service.Endpoint {
		return service.Endpoint{
			Name: name, Subject: subject, Takes: takes, Gives: "ImportStatus",
			Answer: func(ctx context.Context, r service.Request) ([]byte, error) {
				job, err := answer(ctx, r.Data)
				if err != nil {
					return nil, err
				}
				return json.Marshal(job)
			},
		}
	}
	return []service.Endpoint{
		endpoint("submit", SubjectSubmit, "ImportJob", func(ctx context.Context, body []byte) (imports.Job, error) {
			sub, err := contracts.Decode[imports.Submission](body)
			if err != nil {
				return imports.Job{}, err
			}
			job, _, err := jobs.Submit(ctx, sub)
			return job, err
		}),
		endpoint("get", SubjectGet, `{"job_id":"…"}`, byID(jobs.Get)),
		endpoint("cancel", SubjectCancel, `{"job_id":"…"}`, byID(jobs.Cancel)),
		endpoint("retry", SubjectRetry, `{"job_id":"…"}`, byID(jobs.Retry)),
		{Name: "recipe", Subject: SubjectRecipe, Takes: `{"recipe_id":"…"}`, Gives: "Recipe", Answer: recipe(recipes)},
	}
}

// recipe answers with a recipe.
func recipe(recipes *kvstore.Store) func(context.Context, service.Request) ([]byte, error) {
	return func(ctx context.Context, r service.Request) ([]byte, error) {
		type request struct {
			RecipeID string `json:"recipe_id"`
		}
		req, err := contracts.Read[request](r.Data)
		if err == nil && req.RecipeID == "" {
			err = required("/recipe_id")
		}
		if err != nil {
			return nil, err
		}
		if recipes == nil {
			return nil, fmt.Errorf("%w here: another service keeps the recipes", store.ErrNotFound)
		}
		stored, err := recipes.Get(ctx, req.RecipeID)
		if err != nil {
			return nil, err
		}
		return json.Marshal(stored)
	}
}

func required(path string) error {
	return &contracts.ValidationError{Type: "request", Fields: []contracts.FieldError{{Path: path, Problem: "is required"}}}
}

// byID returns a handler that calls do with the job id of a request.
func byID(do func(context.Context, string) (imports.Job, error)) func(context.Context, []byte) (imports.Job, error) {
	return func(ctx context.Context, body []byte) (imports.Job, error) {
		type request struct {
			JobID string `json:"job_id"`
		}
		req, err := contracts.Read[request](body)
		if err == nil && req.JobID == "" {
			err = required("/job_id")
		}
		if err != nil {
			return imports.Job{}, err
		}
		return do(ctx, req.JobID)
	}
}
