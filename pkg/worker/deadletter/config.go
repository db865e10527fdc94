package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/internal/validate"
)

// Config configures a [Store]. The zero value is ready to use.
type Config struct {
	// DeadSubject is the first part of the subjects of dead letters, see
	// worker.Config.DeadSubject. Defaults to "dead".
	DeadSubject string

	// RequestTimeout is the time after which the outcome of a request to the server counts as unknown. The request is then repeated if that
	// is safe. Defaults to 5 seconds.
	RequestTimeout time.Duration

	// Stream is the dead letter stream. Defaults to "DEAD".
	Stream string
}

// patience is the time for which a question is repeated: longer than an election takes.
const patience = 15 * time.Second

// maxName is the longest name of a stream, in bytes.
const maxName = 255

func (c Config) withDefaults() Config {
	c.DeadSubject = cmp.Or(c.DeadSubject, "dead")
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 5*time.Second)
	c.Stream = cmp.Or(c.Stream, "DEAD")
	return c
}

func (c Config) validate() error {
	bad := subject.CheckLiteral(c.DeadSubject)
	return errors.Join(
		validate.If(bad != nil, "deadletter: Config.DeadSubject is %q: not a literal subject: %w", c.DeadSubject, bad),
		validate.If(c.RequestTimeout < 0, "deadletter: Config.RequestTimeout is %s: use a positive duration", c.RequestTimeout),
		validate.If(!subject.IsName(c.Stream, maxName),
			"deadletter: Config.Stream is %q: use 1 to 255 letters, digits, '-' and '_'", c.Stream))
}

// Store is a dead letter stream. It is safe for concurrent use and needs no closing. While the servers are not ready, as during an
// election, it repeats its requests for up to 15 seconds.
type Store struct {
	api     jsapi.Client
	cfg     Config
	js      jetstream.JetStream
	targets targets
}

// Open returns the store of a dead letter stream, which has AllowDirect. The error wraps [ErrNoStream] when the stream does not
// exist. One round trip.
func Open(ctx context.Context, js jetstream.JetStream, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	err := cfg.validate()
	if js == nil {
		err = errors.Join(errors.New("deadletter: Open needs a JetStream context, got nil"), err)
	}
	if err != nil {
		return nil, err
	}
	s := &Store{api: jsapi.New(js, cfg.RequestTimeout), cfg: cfg, js: js}
	info, err := s.info(ctx, cfg.Stream)
	if err == nil && !info.Config.AllowDirect {
		const text = "deadletter: stream %s has no AllowDirect, and cannot be listed without: nats stream edit %[1]s --allow-direct"
		err = fmt.Errorf(text, cfg.Stream)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// get reads a message from the stream's leader, because the answer of a replica may be outdated. It returns nil when there
// is none. One round trip.
func (s *Store) get(ctx context.Context, stream string, q jsapi.Query) (*jsapi.Message, error) {
	var found jsapi.Message
	var ok bool
	err := jsapi.Retry(ctx, patience, func(context.Context) (err error) {
		found, ok, err = s.api.Get(ctx, stream, q)
		return err
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("deadletter: read from stream %s: %w", stream, err)
	case !ok:
		return nil, nil
	default:
		return &found, nil
	}
}

// remove removes a message of a stream, and reports whether it existed. It also returns true when one of several tries may have removed it.
func (s *Store) remove(ctx context.Context, stream string, sequence uint64) (removed bool, err error) {
	doubted := false
	err = jsapi.Retry(ctx, patience, func(context.Context) error {
		existed, err := s.api.Delete(ctx, stream, sequence)
		removed, doubted = existed || doubted, doubted || err != nil
		return err
	})
	if err != nil {
		return false, fmt.Errorf("deadletter: remove message %d from stream %s: %w", sequence, stream, err)
	}
	return removed, nil
}

func (s *Store) info(ctx context.Context, stream string) (jetstream.StreamInfo, error) {
	var info jetstream.StreamInfo
	err := s.ask(ctx, "STREAM.INFO."+stream, nil, &info)
	switch {
	case jsapi.IsNoStream(err):
		return info, fmt.Errorf("%w: %s", ErrNoStream, stream)
	case err != nil:
		return info, fmt.Errorf("deadletter: look up stream %s: %w", stream, err)
	}
	return info, nil
}

// ask asks a question, and repeats it while the servers are not ready. RequestTimeout bounds each request.
func (s *Store) ask(ctx context.Context, method string, question, answer any) error {
	return jsapi.Retry(ctx, patience, func(context.Context) error { return s.api.Ask(ctx, method, question, answer) })
}

// unheard returns the error of a message that was sent to a stream. No stream responds while the stream has no leader, or if no stream
// takes the subject: the latter is [ErrNoStream].
func (s *Store) unheard(ctx context.Context, err error, stream, to string) error {
	if !errors.Is(err, jetstream.ErrNoStreamResponse) {
		return err
	}
	info, failed := s.info(ctx, stream)
	if failed != nil {
		return failed
	}
	return cmp.Or(checkTakes(info.Config, to), err)
}

// checkTakes returns an error when a stream does not take a subject.
func checkTakes(cfg jetstream.StreamConfig, to string) error {
	if slices.ContainsFunc(cfg.Subjects, func(pattern string) bool { return subject.Matches(pattern, to) }) {
		return nil
	}
	return fmt.Errorf("%w: stream %s does not take %.256q: give it the subject again, or discard the letter", ErrNoStream, cfg.Name, to)
}

var (
	// ErrGone is the error of a stranded message that cannot be replayed because it is no longer in its stream: it was
	// acknowledged late, removed or dropped.
	ErrGone = errors.New("deadletter: the job's message is gone")

	// ErrNoStream is returned when a stream does not exist, or does not take the subject of a job.
	ErrNoStream = errors.New("deadletter: no such stream")

	// ErrNotFound is returned when no dead letter has the sequence.
	ErrNotFound = errors.New("deadletter: no such dead letter")

	// ErrSkip is returned by ReplayOptions.Edit for a letter that is to stay. Wrap it to add the reason.
	ErrSkip = errors.New("deadletter: skipped")

	// ErrUnreadable is the error of a message that cannot be replayed because it is not a dead letter: it is another
	// program's, or damaged.
	ErrUnreadable = errors.New("deadletter: not a dead letter")

	// ErrUnsettled is the error of a letter that is not replayed because an earlier replay was interrupted and may have published the job,
	// see the package comment.
	ErrUnsettled = errors.New("deadletter: an earlier replay was interrupted and may have published the job")
)

// TakenError is the error of a letter that is not replayed because another job has the key of its job by now, or has its subject, in a
// stream that takes one message for each subject.
type TakenError struct {
	// Sequence is the position of that other job, or of its record, in the job's stream.
	Sequence uint64

	// Subject is the subject of that message. Its first token shows whether it is a job, a schedule or a record.
	Subject string
}

// Error implements error.
func (e *TakenError) Error() string {
	return fmt.Sprintf("deadletter: another job is in its place by now (%s, sequence %d): "+
		"discard the letter, or cancel that job and replay it", e.Subject, e.Sequence)
}
