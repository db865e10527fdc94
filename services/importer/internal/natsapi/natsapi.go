// Package natsapi serves the importer as a NATS micro service (ADR-32): the functions of the HTTP API, for clients that have
// a NATS connection already, and for the nats command line.
package natsapi

import (
	"context"
	"encoding/json"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
)

// The endpoints' subjects. Services of one name share the requests. All answer a job; those but the first take {"job_id"}.
const (
	SubjectSubmit = "importer.v1.submit" // an ImportJob, whose job_id may be missing, and "unique"
	SubjectGet    = "importer.v1.get"
	SubjectCancel = "importer.v1.cancel"
	SubjectRetry  = "importer.v1.retry"
)

// Endpoints are what the importer answers.
func Endpoints(jobs *imports.Service) []service.Endpoint {
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
			sub, err := imports.DecodeSubmission(body)
			if err != nil {
				return imports.Job{}, err
			}
			job, _, err := jobs.Submit(ctx, sub)
			return job, err
		}),
		endpoint("get", SubjectGet, `{"job_id":"…"}`, byID(jobs.Get)),
		endpoint("cancel", SubjectCancel, `{"job_id":"…"}`, byID(jobs.Cancel)),
		endpoint("retry", SubjectRetry, `{"job_id":"…"}`, byID(jobs.Retry)),
	}
}

// byID reads the id of a job and does something with it.
func byID(do func(context.Context, string) (imports.Job, error)) func(context.Context, []byte) (imports.Job, error) {
	return func(ctx context.Context, body []byte) (imports.Job, error) {
		var req struct {
			JobID string `json:"job_id"`
		}
		if err := json.Unmarshal(body, &req); err != nil || req.JobID == "" {
			return imports.Job{}, &contracts.ValidationError{Type: "request", Fields: []contracts.FieldError{
				{Path: "/job_id", Problem: "is required"},
			}}
		}
		return do(ctx, req.JobID)
	}
}
