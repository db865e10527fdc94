// Package denied ends work at the first request that NATS does not let through.
//
// The server answers no such request. One on a subject to which the user may not publish is dropped, and only the connection is notified;
// one on a subject that the account does not import has no responders. Both look like a cluster that elects a leader, for which callers
// wait.
package denied

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/lazyregexp"
)

const (
	// maxSubjects bounds the subjects that a Watch remembers.
	maxSubjects = 10_000

	// keep is the time for which a Watch remembers that a request was answered or denied. It outlasts an election.
	keep = time.Minute

	// denies is the time in which a server denies a request. A program that got it may never answer.
	denies = time.Second
)

// Error is the cause of a context that ended at a request.
type Error struct {
	// Cause is [nats.ErrPermissionViolation] or [nats.ErrNoResponders].
	Cause error

	// Subject is the subject of the request.
	Subject string
}

// Error implements error.
func (e *Error) Error() string {
	if errors.Is(e.Cause, nats.ErrNoResponders) {
		return fmt.Sprintf("nothing answers to %s: the account does not import it, or no server has the stream", e.Subject)
	}
	return "the user may not publish to " + e.Subject
}

// Unwrap returns Cause.
func (e *Error) Unwrap() error { return e.Cause }

// Watch watches the requests over one connection, whose errors Handle gets.
type Watch struct {
	// Conn is the connection, to be set before its first request. Required.
	Conn *nats.Conn

	report func(*Error)

	mu       sync.Mutex
	alive    time.Time // of the last answer of JetStream
	answered map[string]time.Time
	denied   map[string]time.Time
	reported map[string]bool
	works    map[*scope]bool
}

// New returns a Watch. It calls report at the first denial of each subject, other than those that May finds.
func New(report func(*Error)) *Watch {
	return &Watch{
		report: report, answered: map[string]time.Time{}, denied: map[string]time.Time{}, reported: map[string]bool{}, works: map[*scope]bool{},
	}
}

// scope is the requests of one context.
type scope struct {
	cancel context.CancelCauseFunc
	probe  bool            // it is a question of May
	last   string          // the subject of the last request of JetStream's client, until its answer
	sent   map[string]bool // subjects
	watch  *Watch
}

type key struct{}

// Begin returns a context that ends, with an [*Error] as its cause, when one of its requests is denied. The caller has to call stop.
func (w *Watch) Begin(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	work := &scope{cancel: cancel, sent: map[string]bool{}, watch: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.works[work] = true
	return context.WithValue(ctx, key{}, work), func() {
		cancel(nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.works, work)
	}
}

var violation = lazyregexp.New(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// Subject returns the subject of a violation of permissions, and reports whether it was a publish.
func Subject(err error) (subject string, publish, ok bool) {
	if m := violation.FindStringSubmatch(fmt.Sprint(err)); m != nil && errors.Is(err, nats.ErrPermissionViolation) {
		return m[2], m[1] == "Publish", true
	}
	return "", false, false
}

// Handle gets an error of the connection, and reports whether it was about a denied request.
func (w *Watch) Handle(err error) bool {
	subject, publish, ok := Subject(err)
	if !ok || !publish {
		return false
	}
	w.deny(&Error{Cause: err, Subject: subject}, func(work *scope) bool { return work.sent[subject] })
	return true
}

// deny ends each work for which is returns true.
func (w *Watch) deny(err *Error, is func(*scope) bool) {
	w.mu.Lock()
	if len(w.denied) < maxSubjects {
		w.denied[err.Subject] = time.Now()
	}
	probes, others := 0, 0
	for work := range w.works {
		if is(work) {
			work.cancel(err)
			others++
			if work.probe {
				probes++
			}
		}
	}
	report := !w.reported[err.Subject] && (probes == 0 || probes < others) && len(w.reported) < maxSubjects
	if report {
		w.reported[err.Subject] = true
	}
	w.mu.Unlock()
	if report {
		w.report(err)
	}
}

// May reports whether a request on a subject is let through. It asks, unless an answer or a denial came less than a minute ago. An error
// that may pass is no denial.
func (w *Watch) May(ctx context.Context, subject string) bool {
	ctx, stop := w.Begin(ctx)
	defer stop()
	w.mu.Lock()
	answered, denied := time.Since(w.answered[subject]) < keep, time.Since(w.denied[subject]) < keep
	w.mu.Unlock()
	if answered || denied {
		return answered
	}
	ctx.Value(key{}).(*scope).probe = true //nolint:forcetypeassert // of Begin; set before the server can deny anything
	Sent(ctx, subject)
	short, cancel := context.WithTimeout(ctx, denies)
	defer cancel()
	_, err := w.Conn.RequestWithContext(short, subject, []byte("{}"))
	Answered(ctx, subject, err)
	if _, ok := errors.AsType[*Error](context.Cause(ctx)); ok {
		return false
	}
	if !strings.Contains(subject, ".API.") && !errors.Is(err, nats.ErrNoResponders) { // a program got it, and may be frozen
		w.mu.Lock()
		defer w.mu.Unlock()
		w.answered[subject] = time.Now()
	}
	return true
}

// Sent notes that a request of ctx is about to be sent. Like Answered and Failed it does nothing for a context without a Watch.
func Sent(ctx context.Context, subject string) {
	work, _ := ctx.Value(key{}).(*scope)
	if work == nil {
		return
	}
	work.watch.mu.Lock()
	defer work.watch.mu.Unlock()
	work.sent[subject] = true
}

// Answered notes the outcome of a request of ctx. A question to JetStream that has no responders, and had no answer for a minute, is
// denied if the servers answer other questions. A message for a stream has no responders in an election, too.
func Answered(ctx context.Context, subject string, err error) {
	work, _ := ctx.Value(key{}).(*scope)
	if work == nil || !strings.Contains(subject, ".API.") || strings.Contains(subject, ".API.$") {
		return
	}
	w := work.watch
	w.mu.Lock()
	before := time.Since(w.answered[subject]) < keep
	if err == nil && len(w.answered) < maxSubjects {
		w.alive, w.answered[subject] = time.Now(), time.Now()
		delete(w.denied, subject)
	}
	w.mu.Unlock()
	if !before && errors.Is(err, nats.ErrNoResponders) && w.isUp() {
		w.deny(&Error{Cause: nats.ErrNoResponders, Subject: subject}, func(other *scope) bool { return other == work })
	}
}

// isUp reports whether JetStream answers questions.
func (w *Watch) isUp() bool {
	w.mu.Lock()
	up := time.Since(w.alive) < keep
	w.mu.Unlock()
	if up {
		return true
	}
	_, err := w.Conn.Request(jetstream.DefaultAPIPrefix+"INFO", nil, time.Second)
	return err == nil // an answer that is an error is one, too
}

func traced(ctx context.Context, subject, last string) {
	Sent(ctx, subject)
	if work, _ := ctx.Value(key{}).(*scope); work != nil {
		work.watch.mu.Lock()
		defer work.watch.mu.Unlock()
		work.last = last
	}
}

// Failed notes the error of a request of a context of [JetStream].
func Failed(ctx context.Context, err error) {
	work, _ := ctx.Value(key{}).(*scope)
	if work == nil || err == nil {
		return
	}
	work.watch.mu.Lock()
	last := work.last
	work.watch.mu.Unlock()
	Answered(ctx, last, err)
}

// JetStream returns a JetStream context like js, whose requests are those of ctx.
func JetStream(ctx context.Context, js jetstream.JetStream) (jetstream.JetStream, error) {
	options := js.Options()
	trace := jetstream.WithClientTrace(&jetstream.ClientTrace{
		RequestSent:      func(subject string, _ []byte) { traced(ctx, subject, subject) },
		ResponseReceived: func(subject string, _ []byte, _ nats.Header) { traced(ctx, subject, ""); Answered(ctx, subject, nil) },
	})
	timeout := jetstream.WithDefaultTimeout(options.DefaultTimeout)
	switch {
	case options.Domain != "":
		return jetstream.NewWithDomain(js.Conn(), options.Domain, timeout, trace)
	case options.APIPrefix != "":
		return jetstream.NewWithAPIPrefix(js.Conn(), options.APIPrefix, timeout, trace)
	}
	return jetstream.New(js.Conn(), timeout, trace)
}
