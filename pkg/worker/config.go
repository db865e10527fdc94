package worker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/internal/subject"
)

// Config configures a [Worker]. Stream and Consumer are required, every other field has a default.
type Config struct {
	// AckWait is how long the server waits for a heartbeat before it gives a job to another worker. The worker sends one for
	// every running job each AckWait/3, so this is not a limit on how long a job may run: it is how soon the job of a killed
	// worker runs again (between 2/3 and 1 AckWait after the kill). Defaults to 5 seconds, at least 100 ms, at most 24 hours.
	AckWait time.Duration

	// AutoCreate makes Run create or update the consumers, and create the bucket and the dead letter stream (named DEAD) when
	// they are missing. It is for laptops, tests and embedded servers; elsewhere an operator declares them and Run only checks.
	// The job stream itself is never created here. Defaults to false.
	AutoCreate bool

	// Bucket is the key-value bucket that holds the counts of uncounted deliveries. Its stream must allow per-message TTLs.
	// Defaults to "jobs".
	Bucket string

	// Concurrency is how many handlers run at once in this worker, over all its patterns. Defaults to 100.
	Concurrency int

	// Consumer is the durable name that all workers of this kind share. Handlers with a Policy.Priority have consumers of their
	// own, whose names begin with it. Letters, digits, "-" and "_". Required.
	Consumer string

	// DeadSubject is the first part of the subject of dead letters, which are published to
	// <DeadSubject>.<stream>.<original subject>. Defaults to "dead".
	DeadSubject string

	// HardStop is how long a stopping worker waits for handlers after it cancelled their contexts. Jobs that still run then are
	// handed back to the server, so that another worker starts them at once, and named in the error of Run. Defaults to
	// 5 seconds; -1 does not wait.
	HardStop time.Duration

	// Hooks are called when jobs start and end. Defaults to none.
	Hooks Hooks

	// ID names this worker in logs and dead letters. Defaults to host name, process id and a random part.
	ID string

	// KeepConsumers has AutoCreate leave consumers that are there as they are: one with other settings is a *DriftError. Defaults
	// to false.
	KeepConsumers bool

	// LimitBucket is the key-value bucket that holds the permits of limits, see Policy.Limits. All workers that share limits
	// have the same. Its stream must allow per-message TTLs and keep one message per subject. It may be in memory, or have
	// fewer replicas, if it is acceptable that more jobs run for a while after a crash of the server. Defaults to Bucket.
	LimitBucket string

	// Logger receives the events, see [EventReady] and the other names. Defaults to slog.Default().
	Logger *slog.Logger

	// MaxWaiting is how many jobs may wait in this worker for a limit, or for the ordered jobs before them, beside those that
	// run. The worker gives further jobs back to the server, with a delay. One key of a limit has at most half of MaxWaiting,
	// and less when jobs of other keys wait as well. Each waiting job costs its memory and its heartbeats. Defaults to ten times Concurrency.
	MaxWaiting int

	// Middleware runs around every handler, the first one outermost. Defaults to none.
	Middleware []Middleware

	// RequestTimeout is how long one request to the server may take before its outcome counts as unknown. Defaults to
	// 2 seconds.
	RequestTimeout time.Duration

	// SettleTimeout is how long the worker tries to record the outcome of a finished job (to acknowledge it, to publish its
	// dead letter) while the server is away. The job keeps its slot and its heartbeat meanwhile. Then the worker leaves the
	// job to be delivered again. Defaults to 30 seconds.
	SettleTimeout time.Duration

	// SoftStop is how long a stopping worker lets handlers finish before it cancels their contexts. It counts from the end of
	// the last pull, up to a second after Run's context has ended. Defaults to 10 seconds; -1 cancels at once.
	SoftStop time.Duration

	// StepBucket is the key-value bucket that holds the results of the steps of jobs, see package step. Its stream must
	// allow per-message TTLs and keep one message per subject. Give steps a bucket of their own when results are large or
	// many. Defaults to Bucket.
	StepBucket string

	// StepTTL is how long the steps of a job are remembered after the last of them, or after the last attempt that used them. A
	// job that is put off for longer, or replayed from the dead letters later, starts over. In whole seconds, at least one
	// minute. Defaults to 7 days.
	StepTTL time.Duration

	// Stream is the stream that holds the jobs. Letters, digits, "-" and "_". Required.
	Stream string

	// StuckAfter is how long a handler may ignore its ended context before it is reported as stuck (once, by log and hook). It
	// keeps its slot and its heartbeat, since starting the job elsewhere would run it twice. Defaults to 10 seconds.
	StuckAfter time.Duration

	// Version is that of the program, for those who look at its workers, see package inspect. Defaults to the version of the main
	// module that the go command stamped into the program.
	Version string
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
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 10*c.Concurrency)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 2*time.Second)
	c.SettleTimeout = cmp.Or(c.SettleTimeout, 30*time.Second)
	c.SoftStop = cmp.Or(c.SoftStop, 10*time.Second)
	c.StepBucket = cmp.Or(c.StepBucket, c.Bucket)
	c.StepTTL = cmp.Or(c.StepTTL, 7*24*time.Hour)
	c.StuckAfter = cmp.Or(c.StuckAfter, 10*time.Second)
	if info, ok := debug.ReadBuildInfo(); ok {
		c.Version = cmp.Or(c.Version, info.Main.Version)
	}
	if c.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		c.ID = fmt.Sprintf("%s-%d-%s", host, os.Getpid(), nuid.Next()[16:])
	}
	return c
}

// validate reports all mistakes at once. It expects defaults to be set.
func (c Config) validate() error {
	var m mistakes
	m.name("Config.Bucket", c.Bucket)
	m.name("Config.Consumer", c.Consumer)
	m.name("Config.LimitBucket", c.LimitBucket)
	m.name("Config.StepBucket", c.StepBucket)
	m.name("Config.Stream", c.Stream)
	if err := subject.CheckLiteral(c.DeadSubject); err != nil {
		m.addf("Config.DeadSubject is %q: not a literal subject: %w", c.DeadSubject, err)
	}
	if c.AckWait < 100*time.Millisecond || c.AckWait > 24*time.Hour {
		m.addf("Config.AckWait is %s: use at least 100ms, at most 24h", c.AckWait)
	}
	if c.Concurrency < 1 {
		m.addf("Config.Concurrency is %d: use at least 1", c.Concurrency)
	}
	if c.MaxWaiting < 1 {
		m.addf("Config.MaxWaiting is %d: use at least 1", c.MaxWaiting)
	}
	if c.StepTTL < time.Minute || c.StepTTL%time.Second != 0 {
		m.addf("Config.StepTTL is %s: use whole seconds, at least 1m", c.StepTTL)
	}
	m.positive("Config.RequestTimeout", c.RequestTimeout)
	m.positive("Config.SettleTimeout", c.SettleTimeout)
	m.positive("Config.StuckAfter", c.StuckAfter)
	m.positiveOrNone("Config.HardStop", c.HardStop)
	m.positiveOrNone("Config.SoftStop", c.SoftStop)
	return m.err()
}

// mistakes collects what is wrong with a configuration, to report all of it at once.
type mistakes []error

func (m *mistakes) addf(format string, args ...any) {
	*m = append(*m, fmt.Errorf("worker: "+format, args...))
}

func (m *mistakes) name(field, value string) {
	if !safeName.MatchString(value) {
		m.addf("%s is %q: use 1 to 255 letters, digits, '-' and '_'", field, value)
	}
}

func (m *mistakes) positive(field string, d time.Duration) {
	if d < 0 {
		m.addf("%s is %s: use a positive duration", field, d)
	}
}

func (m *mistakes) positiveOrNone(field string, d time.Duration) {
	if d < 0 && d != -1 {
		m.addf("%s is %s: use a positive duration, or -1 for no wait", field, d)
	}
}

func (m mistakes) err() error { return errors.Join(m...) }
