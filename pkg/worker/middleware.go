package worker

import (
	"context"
	"slices"

	"github.com/nats-io/nats.go"
)

// Middleware runs around every attempt of every job, on the goroutine of its handler: for
// tracing, for values in the context, for checks that all handlers share. It has to call
// next once at most and to return what next returned, or an error of its own in its place;
// one that does not call next decides the attempt without the handler. What it passes to
// next must be made from ctx. A panic of the handler passes through it.
//
// header holds the headers of the message, nil when it has none, and must not be changed.
type Middleware func(ctx context.Context, info Info, header nats.Header, next func(context.Context) error) error

// wrap puts the middleware around work, the first one outermost.
func wrap(all []Middleware, info Info, header nats.Header, work func(context.Context) error) func(context.Context) error {
	for _, outer := range slices.Backward(all) {
		next := work
		work = func(ctx context.Context) error { return outer(ctx, info, header, next) }
	}

	return work
}
