package test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestOnDeadLetterComesBeforeTheEnd dead-letters jobs for every reason. Policy.OnDeadLetter fails, panics and then
// succeeds: until then there is no letter, and the job is in its stream.
func TestOnDeadLetterComesBeforeTheEnd(t *testing.T) {
	for name, test := range map[string]struct {
		fails  error
		decode error
		reason worker.Reason
	}{
		"exhausted":   {io.EOF, nil, worker.ReasonExhausted},
		"cancelled":   {worker.Cancel(io.EOF), nil, worker.ReasonCancelled},
		"undecodable": {nil, io.EOF, worker.ReasonUndecodable},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
				b := setup(t, srv)
				settled := make(chan worker.Settlement, 10)
				asked, answer := make(chan worker.DeadLetter), make(chan error, 1)
				attempts := 10 // it is tried to be read, or its handler runs, each time

				if test.reason == worker.ReasonExhausted {
					attempts = 1
				}

				run(t, b.js, b.config(t, func(c *worker.Config) {
					c.Hooks.Settled = func(s worker.Settlement) { settled <- s }
				}), worker.Policy{
					OnDeadLetter: func(ctx context.Context, letter worker.DeadLetter) error {
						select {
						case asked <- letter:
						case <-ctx.Done():
							return ctx.Err()
						}

						select {
						case err := <-answer:
							if errors.Is(err, io.ErrUnexpectedEOF) {
								panic(err)
							}
							return err
						case <-ctx.Done():
							return ctx.Err()
						}
					},
					Decode:      func(nats.Header, []byte, any) error { return test.decode },
					MaxAttempts: attempts,
				}, func(context.Context, *worker.Job[order]) error { return test.fails })
				b.publish(t, "jobs.1", `{"n":1}`)

				for i, err := range []error{io.ErrClosedPipe, io.ErrUnexpectedEOF, nil} {
					letter := receive(t, asked, "a letter")
					if letter.Subject != "jobs.1" || string(letter.Payload) != `{"n":1}` || letter.Reason != test.reason || letter.Stream != stream {
						t.Errorf("call %d: %+v", i+1, letter)
					}

					if left, letters := b.left(t), b.letters(t); left != 1 || len(letters) != 0 {
						t.Errorf("call %d: %d jobs are left, %d letters; want 1 and none", i+1, left, len(letters))
					}
					answer <- err

					want := worker.OutcomeUnknown
					if err == nil {
						want = worker.OutcomeDead
					}

					if s := receive(t, settled, "a settlement"); s.Outcome != want {
						t.Errorf("call %d: %s, want %s", i+1, s.Outcome, want)
					}
				}

				if left, letters := b.left(t), b.letters(t); left != 0 || len(letters) != 1 {
					t.Errorf("%d jobs are left, %d letters; want none and 1", left, len(letters))
				}
			})
		})
	}
}
