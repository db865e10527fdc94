package workertest

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrRefused is returned by the recorder for the job that is to be poison: the far side
// does not take it, however often it is tried.
var ErrRefused = errors.New("workertest: refused: this job is to be poison")

// Service is what a suite puts to the test: the program, or the part of it that works jobs.
// It works them through env until ctx ends, then returns.
type Service func(ctx context.Context, env Env) error

// Env is what a service gets from the suite.
type Env struct {
	// AckWait is what the worker's Config.AckWait should be. A suite waits for it when a
	// process was killed; a service that takes another only makes it wait longer.
	AckWait time.Duration

	// JS is where the jobs are. Its connection survives restarts of the server.
	JS jetstream.JetStream

	// Logger goes to the test's output.
	Logger *slog.Logger

	// Recorder is the far side, where effects are left.
	Recorder Recorder
}

// Recorder is the far side of a service under test, where its effects go. It outlives the service, and no crash of the service
// can confuse it. The suite also uses it to stop a handler: to kill its process right before or right after the effect, or to
// keep it waiting. A call returns when the suite lets it, or when ctx ends.
type Recorder interface {
	// Record leaves an effect of the job with this ID. A second call leaves a second one.
	Record(ctx context.Context, jobID string) error

	// RecordOnce leaves an effect unless the job has one, as a far side does that gets the job's ID as its idempotency key.
	RecordOnce(ctx context.Context, jobID string) error

	// Reach leaves nothing. It is for services whose effects are elsewhere (Suite.Effects),
	// called where the effect is about to be left.
	Reach(ctx context.Context, jobID string) error
}
