package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// requestTimeout bounds the answer to a request, from its last byte on, unless the service says otherwise.
const requestTimeout = 15 * time.Second

// timed answers a request in the time of a, from the last byte of its body on: a client that sends slowly has the deadline of the
// server for that. The error matches [context.DeadlineExceeded] when the time was too short.
func (a *Router) timed(w http.ResponseWriter, r *http.Request, answer func(http.ResponseWriter, *http.Request) error) error {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	timer := time.AfterFunc(a.cfg.Timeout, func() { cancel(errSilent) })
	defer timer.Stop()
	r = r.WithContext(ctx)
	r.Body = &arriving{ReadCloser: r.Body, arrived: func() { timer.Reset(a.cfg.Timeout) }}
	err := answer(w, r)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		err = fmt.Errorf("%w: %w", errSilent, err)
	}
	return err
}

// arriving calls arrived for each part of a body.
type arriving struct {
	io.ReadCloser

	arrived func()
}

func (a *arriving) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if n > 0 {
		a.arrived()
	}
	return n, err //nolint:wrapcheck // may be io.EOF
}
