package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/worker"
)

// Action is a change that a command and a page make alike.
type Action struct {
	// Name and Target describe it in a record of the audit, without secrets.
	Name, Target string

	// Plan completes "Would …" with sentences, for an action that asks before it acts.
	Plan string

	// Do acts, and returns the number of things that it changed, and a sentence about them. The error is a [GoneError] if there is nothing to
	// change.
	Do func(context.Context) (n int, done string, err error)
}

// GoneError is the error of an action on a thing that is not there, or not any more, in words for a person.
type GoneError string

// Error implements error.
func (e GoneError) Error() string { return string(e) }

// PartError is the error of an action that did not come to its end. Did says what was done.
type PartError struct {
	Did string
	Err error
}

// Error implements error.
func (e *PartError) Error() string { return e.Did + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *PartError) Unwrap() error { return e.Err }

// Counted writes a number with its noun.
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// once is the Do of an action on one thing. done is called after it.
func once(act func(context.Context) error, done func() string) func(context.Context) (int, string, error) {
	return func(ctx context.Context) (int, string, error) {
		if err := act(ctx); err != nil {
			return 0, "", err
		}
		return 1, done(), nil
	}
}

// Stamp writes a time in UTC to the second, "" for none.
func Stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// PauseHandlers pauses the handlers of a stream whose jobs match a pattern.
func PauseHandlers(client *worker.Client, stream string, p worker.Pause) Action {
	until := "it is resumed"
	if !p.Until.IsZero() {
		until = Stamp(p.Until)
	}
	act := func(ctx context.Context) error {
		err := client.Pause(ctx, p)
		if untaken, ok := errors.AsType[*worker.UntakenError](err); ok {
			err = GoneError(fmt.Sprintf("no worker takes such jobs, so nothing was paused: %v", untaken))
		}
		return err
	}
	return Action{Name: "pause", Target: handlers(stream, p.Pattern), Do: once(act, func() string {
		return fmt.Sprintf("%s is paused until %s. Workers follow within seconds; running jobs go on.", p.Pattern, until)
	})}
}

// ResumeHandlers ends the pause of a pattern.
func ResumeHandlers(client *worker.Client, stream, pattern string) Action {
	act := func(ctx context.Context) error {
		was, err := client.Resume(ctx, pattern)
		if err == nil && !was {
			err = GoneError(fmt.Sprintf("%q is not paused any more", pattern))
		}
		return err
	}
	return Action{Name: "resume", Target: handlers(stream, pattern), Do: once(act, func() string { return pattern + " is resumed." })}
}

func handlers(stream, pattern string) string { return fmt.Sprintf("handler %q of %s", pattern, stream) }

// DrainWorker makes a worker take no more jobs, or with resume take jobs again. It sets w to what the worker answers.
func DrainWorker(js jetstream.JetStream, w *inspect.Info, resume bool) Action {
	name, effect, tell := "drain", "takes no more jobs and finishes those that run", inspect.Drain
	if resume {
		name, effect, tell = "resume", "takes jobs again within seconds", inspect.Resume
	}
	act := func(ctx context.Context) error {
		info, err := tell(ctx, js, w.Instance)
		if errors.Is(err, inspect.ErrNoWorker) {
			return GoneError(w.Name() + " does not answer: it has ended, or its version cannot be drained")
		}
		if err == nil {
			*w = info
		}
		return err
	}
	return Action{Name: name, Target: w.Name(), Do: once(act, func() string {
		return fmt.Sprintf("%s %s: %d running, %d delivered.", w.ID, effect, w.Running, w.Waiting)
	})}
}

// Unschedule ends the schedule that inserts jobs on a subject. The error is a [GoneError] if there is none.
func Unschedule(ctx context.Context, client *worker.Client, stream, subject string) (Action, error) {
	all, err := client.Schedules(ctx)
	if err != nil {
		return Action{}, err
	}
	for _, s := range all {
		if s.Subject != subject {
			continue
		}
		next, _ := s.Next(time.Now()) // none for a schedule of another program
		return Action{
			Name: "unschedule", Target: fmt.Sprintf("schedule %q of %s", subject, stream),
			Plan: fmt.Sprintf("end the schedule of %s, whose next run is due %s.", subject, Stamp(next)),
			Do: once(func(ctx context.Context) error { return client.Unschedule(ctx, subject) }, func() string {
				return "Ended the schedule of " + subject + ". The jobs that it has inserted stay."
			}),
		}, nil
	}
	return Action{}, GoneError(fmt.Sprintf("no schedule inserts jobs on %q", subject))
}

// StealLock takes a lock from its holder, for the next in the queue. With a token, the holder must be the one with that token. The error is
// a [Gone] if there is no such holder.
func StealLock(ctx context.Context, locks *kvlock.Locker, name, token, command string) (Action, error) {
	lock, err := locks.Inspect(ctx, name)
	switch {
	case err != nil:
		return Action{}, err
	case !lock.Held:
		return Action{}, GoneError(fmt.Sprintf("the lock %q is free", name))
	case token != "" && token != lock.Token.String():
		return Action{}, GoneError(fmt.Sprintf("the lock %q has another holder by now", name))
	}
	act := func(ctx context.Context) error {
		now, err := locks.Inspect(ctx, name)
		if err == nil && now.Token != lock.Token { // since the action was planned
			err = GoneError(fmt.Sprintf("the lock %q has another holder by now", name))
		}
		if err != nil {
			return err
		}
		lease, err := locks.Steal(ctx, name, kvlock.AcquireOptions{Metadata: map[string]string{"command": command}})
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
	return Action{
		Name: "steal", Target: fmt.Sprintf("lock %s of %q", name, lock.Holder),
		Plan: fmt.Sprintf("take %s from %s, which holds it since %s.", name, lock.Holder, Stamp(lock.Since)),
		Do: once(act, func() string {
			return fmt.Sprintf("Took the lock %s from %s. The next in the queue has it now.", name, lock.Holder)
		}),
	}, nil
}
