package workertest

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrRefused is returned by the recorder for the poison job: the recorder refuses it at every attempt.
var ErrRefused = errors.New("workertest: refused: this job is to be poison")

// Service is the program under test, or the part of it that works jobs. It works the jobs of env until ctx ends, then
// returns.
type Service func(ctx context.Context, env Env) error

// Env is what a service gets from the suite.
type Env struct {
	// AckWait is what the worker's Config.AckWait should be. The suite waits for the deliveries of a killed process; with a
	// longer AckWait it waits longer.
	AckWait time.Duration

	// JS reaches the stream of the jobs. Its connection survives restarts of the server.
	JS jetstream.JetStream

	// Logger goes to the test's output.
	Logger *slog.Logger

	// Recorder receives the effects of the jobs.
	Recorder Recorder
}

// Recorder receives the effects of a service under test, in place of the system that the service calls. It outlives the
// service and its crashes. The suite also uses it to hold a handler: to kill its process right before or right after the
// effect, or to keep it waiting. A call returns when the suite releases it, or when ctx ends.
type Recorder interface {
	// Record counts an effect of the job with this ID. A second call counts a second effect.
	Record(ctx context.Context, jobID string) error

	// RecordOnce counts an effect unless the job has one, like a system that gets the job's ID as its idempotency key.
	RecordOnce(ctx context.Context, jobID string) error

	// Reach counts no effect. A service whose effects are elsewhere (Suite.Effects) calls it right before an effect.
	Reach(ctx context.Context, jobID string) error
}
