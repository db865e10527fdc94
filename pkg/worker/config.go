package worker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"

	"github.com/nats-io/nuid"
)

// Config says which consumer a [Worker] works for and how. Stream and Consumer are
// required, everything else has a default.
type Config struct {
	// AckWait is how long the server waits for a sign of life before it gives a job to
	// another worker. The worker sends one for every running job each AckWait/3, so this
	// is not a limit on how long a job may run: it is how soon the job of a killed worker
	// runs again (between 2/3 and 1 AckWait after the kill). Defaults to 5 seconds, at
	// least 100 ms, at most 24 hours.
	AckWait time.Duration

	// AutoCreate makes Run create or update the consumers, and create the bucket and the
	// dead letter stream (named DEAD) when they are missing. It is for laptops, tests and
	// embedded servers; elsewhere an operator declares them and Run only checks. The job
	// stream itself is never created here. Defaults to false.
	AutoCreate bool

	// Bucket is the key-value bucket that remembers which deliveries used no attempt. Its
	// stream must allow per-message TTLs. Defaults to "jobs".
	Bucket string

	// Concurrency is how many handlers run at once in this worker, over all its patterns.
	// Defaults to 100.
	Concurrency int

	// Consumer is the durable name that all workers of this kind share. Handlers with a
	// Policy.Priority have consumers of their own, whose names begin with it. Letters,
	// digits, "-" and "_". Required.
	Consumer string

	// DeadSubject is the first part of the subject of dead letters, which are published to
	// <DeadSubject>.<stream>.<original subject>. Defaults to "dead".
	DeadSubject string

	// HardStop is how long a stopping worker waits for handlers after it cancelled their
	// contexts. What still runs then is handed back to the server, so that another worker
	// starts it at once, and named in the error of Run. Defaults to 5 seconds; -1 does not
	// wait.
	HardStop time.Duration

	// Hooks are called as jobs pass. Defaults to none.
	Hooks Hooks

	// ID names this worker in logs and dead letters. Defaults to host name, process id and
	// a random part.
	ID string

	// LimitBucket is the key-value bucket in which the workers that share limits count, see
	// Policy.Limits. Its stream must allow per-message TTLs and keep one message per subject;
	// it may be in memory, or in few replicas, when a crash of the server may let more jobs
	// run for a while. Defaults to Bucket.
	LimitBucket string

	// Logger receives the events of event.go. Defaults to slog.Default().
	Logger *slog.Logger

	// MaxWaiting is how many jobs may wait here for a limit, beside those that run. Others are
	// given back to the server until there may be room. A key has at most half of it, less
	// when others wait as well. Each costs its memory and a heartbeat. Defaults to ten times
	// Concurrency.
	MaxWaiting int

	// Middleware runs around every handler, the first one outermost. Defaults to none.
	Middleware []Middleware

	// RequestTimeout is how long one request to the server may take before its outcome
	// counts as unknown. Defaults to 2 seconds.
	RequestTimeout time.Duration

	// SettleTimeout is how long a finished job tries to record its outcome (acknowledge,
	// publish the dead letter) while the server is away. It keeps its slot and its
	// heartbeat meanwhile. After it the job is left to be delivered again. Defaults to 30
	// seconds.
	SettleTimeout time.Duration

	// SoftStop is how long a stopping worker lets handlers finish before it cancels their
	// contexts. It counts from the end of the last pull, up to a second after Run's context
	// has ended. Defaults to 10 seconds; -1 cancels at once.
	SoftStop time.Duration

	// StepBucket is the key-value bucket that remembers what the steps of a job returned, see
	// package step. Its stream must allow per-message TTLs and keep one message per subject.
	// Give it one of its own when results are large or many. Defaults to Bucket.
	StepBucket string

	// StepTTL is how long the steps of a job are remembered after the last of them, or after
	// the last attempt that used them. A job that is put off for longer, or replayed from
	// the dead letters later, starts over. In whole seconds, at least one minute. Defaults
	// to 7 days.
	StepTTL time.Duration

	// Stream is the stream that holds the jobs. Letters, digits, "-" and "_". Required.
	Stream string

	// StuckAfter is how long a handler may ignore its ended context before it is reported
	// as stuck (once, by log and hook). It keeps its slot and its heartbeat, since starting
	// the job elsewhere would run it twice. Defaults to 10 seconds.
	StuckAfter time.Duration
}

// maxName is how many characters safeName allows.
const maxName = 255

var safeName = regexp.MustCompile(`^[-_A-Za-z0-9]{1,255}$`)

// withDefaults returns a copy in which every zero value is replaced.
func (c Config) withDefaults() Config {
	c.AckWait = cmp.Or(c.AckWait, 5*time.Second)
	c.Bucket = cmp.Or(c.Bucket, "jobs")
	c.Concurrency = cmp.Or(c.Concurrency, 100)
	c.DeadSubject = cmp.Or(c.DeadSubject, "dead")
	c.HardStop = cmp.Or(c.HardStop, 5*time.Second)
	c.LimitBucket = cmp.Or(c.LimitBucket, c.Bucket)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 10*c.Concurrency)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 2*time.Second)
	c.SettleTimeout = cmp.Or(c.SettleTimeout, 30*time.Second)
	c.SoftStop = cmp.Or(c.SoftStop, 10*time.Second)
	c.StepBucket = cmp.Or(c.StepBucket, c.Bucket)
	c.StepTTL = cmp.Or(c.StepTTL, 7*24*time.Hour)
	c.StuckAfter = cmp.Or(c.StuckAfter, 10*time.Second)

	if c.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}

		c.ID = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), nuid.Next()[16:])
	}

	if c.Logger == nil {
		c.Logger = slog.Default()
	}

	return c
}

// validate reports everything that is wrong at once. It expects defaults to be set.
func (c Config) validate() error {
	var errs []error

	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("worker: "+format, args...)) }

	for _, name := range []struct{ field, value string }{
		{"Bucket", c.Bucket},
		{"Consumer", c.Consumer},
		{"LimitBucket", c.LimitBucket},
		{"StepBucket", c.StepBucket},
		{"Stream", c.Stream},
	} {
		if !safeName.MatchString(name.value) {
			bad("Config.%s is %q: use 1 to 255 letters, digits, '-' and '_'", name.field, name.value)
		}
	}

	if err := subjectPrefix(c.DeadSubject); err != nil {
		bad("Config.DeadSubject is %q: %w", c.DeadSubject, err)
	}

	if c.AckWait < 100*time.Millisecond || c.AckWait > 24*time.Hour {
		bad("Config.AckWait is %s: use at least 100ms, at most 24h", c.AckWait)
	}

	if c.Concurrency < 1 {
		bad("Config.Concurrency is %d: use at least 1", c.Concurrency)
	}

	if c.MaxWaiting < 1 {
		bad("Config.MaxWaiting is %d: use at least 1", c.MaxWaiting)
	}

	if c.StepTTL < time.Minute || c.StepTTL%time.Second != 0 {
		bad("Config.StepTTL is %s: use whole seconds, at least 1m", c.StepTTL)
	}

	for _, d := range []struct {
		field string
		value time.Duration
	}{{"RequestTimeout", c.RequestTimeout}, {"SettleTimeout", c.SettleTimeout}, {"StuckAfter", c.StuckAfter}} {
		if d.value < 0 {
			bad("Config.%s is %s: use a positive duration", d.field, d.value)
		}
	}

	for _, d := range []struct {
		field string
		value time.Duration
	}{{"HardStop", c.HardStop}, {"SoftStop", c.SoftStop}} {
		if d.value < 0 && d.value != -1 {
			bad("Config.%s is %s: use a positive duration, or -1 for no wait", d.field, d.value)
		}
	}

	return errors.Join(errs...)
}
