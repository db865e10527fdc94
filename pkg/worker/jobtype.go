package worker

import (
	"fmt"
	"time"
)

// Type is what those who insert jobs of one type and those who handle them share, so that
// they cannot disagree: where the jobs go, what makes one unique, and the policy.
//
//	var Mails = worker.Type[Mail]{
//		Key:     func(m Mail) string { return m.To },
//		Keep:    24 * time.Hour,
//		Policy:  worker.Policy{MaxAttempts: 5},
//		Subject: "jobs.mail",
//	}
//
//	receipt, err := client.Insert(ctx, Mails.New(Mail{To: "ada@example.org"}))
//	...
//	err = Mails.Handle(w, func(ctx context.Context, job *worker.Job[Mail]) error { ... })
type Type[T any] struct {
	// HoldDead, see Unique.HoldDead. Defaults to false.
	HoldDead bool

	// Keep, see Unique.Keep. Defaults to not at all.
	Keep time.Duration

	// Key makes the jobs unique by what it returns, see Unique.Key, "" being a key of no
	// text. Defaults to none: the jobs are not unique.
	Key func(args T) string

	// Policy is the policy of the handler. Its Decode has to read what the client's Encode
	// writes, JSON if nothing is said.
	Policy Policy

	// Subject is where the jobs go: to this very subject, or with Key, to this and one
	// token more. Required.
	Subject string
}

// noKey stands for a key of no text, which no token can be. It is no token that encoding
// another key makes.
const noKey = "="

// New returns a job of this type, to be inserted as it is or with a time, an ID or headers.
func (t Type[T]) New(args T) NewJob {
	job := NewJob{Args: args, Subject: t.Subject}
	if t.Key == nil {
		return job
	}

	job.Unique = &Unique{HoldDead: t.HoldDead, Keep: t.Keep, Key: t.Key(args)}
	if job.Unique.Key == "" {
		job.Subject += "." + noKey
	}

	return job
}

// Handle registers the handler of all jobs of this type. See the function Handle.
func (t Type[T]) Handle(w *Worker, handler Handler[T]) error {
	if err := subjectPrefix(t.Subject); err != nil {
		return fmt.Errorf("worker: Type.Subject is %q: %w", t.Subject, err)
	}

	return Handle(w, t.Pattern(), t.Policy, handler)
}

// Pattern is the subject filter that covers all jobs of this type.
func (t Type[T]) Pattern() string {
	if t.Key == nil {
		return t.Subject
	}

	return t.Subject + ".*"
}
