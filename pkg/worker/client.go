package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

// ClientConfig configures a [Client]. Stream is required, every other field has a default.
type ClientConfig struct {
	// AllowUntaken stores jobs that no consumer of the stream takes, for workers that are still to come. Defaults to false: an insert then
	// returns an [*UntakenError], unless the stream has no consumer at all, or the client may not list consumers. While workers start, the
	// error is returned 5 seconds after the last of their consumers was made.
	AllowUntaken bool

	// Bucket is the Config.Bucket of the workers, which has their records of jobs, and the pauses. Defaults to "jobs".
	Bucket string

	// DeadStream is the stream of dead letters, in which Jobs and Job look. Defaults to "DEAD".
	DeadStream string

	// DeadSubject is the Config.DeadSubject of the workers. Defaults to "dead".
	DeadSubject string

	// Encode turns the arguments of a job into its payload. The Policy.Decode of the handler is its counterpart. Defaults to JSON; a []byte
	// is then the payload itself. README.md has a table of types.
	Encode func(args any) ([]byte, error)

	// RequestTimeout is the time after which the outcome of a request to the server counts as unknown and is looked up. Defaults to 2
	// seconds.
	RequestTimeout time.Duration

	// SettleTimeout bounds the time of a call when answers are lost or the server is away. The call's context may end it earlier. Defaults to
	// 10 seconds.
	SettleTimeout time.Duration

	// Stream is the stream that takes the jobs. Letters, digits, "-" and "_". Required.
	Stream string
}

func (c ClientConfig) withDefaults() ClientConfig {
	c.Bucket = cmp.Or(c.Bucket, "jobs")
	c.DeadStream = cmp.Or(c.DeadStream, "DEAD")
	c.DeadSubject = cmp.Or(c.DeadSubject, "dead")
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 2*time.Second)
	c.SettleTimeout = cmp.Or(c.SettleTimeout, 10*time.Second)
	if c.Encode == nil {
		c.Encode = jobmsg.Encode
	}
	return c
}

// validate returns an error that names all mistakes. Defaults must be set before.
func (c ClientConfig) validate() error {
	return errors.Join(
		checkPositive("ClientConfig.RequestTimeout", c.RequestTimeout),
		checkPositive("ClientConfig.SettleTimeout", c.SettleTimeout),
		checkSubject("ClientConfig.DeadSubject", c.DeadSubject),
		checkName("ClientConfig.Bucket", c.Bucket),
		checkName("ClientConfig.DeadStream", c.DeadStream),
		checkName("ClientConfig.Stream", c.Stream))
}

// Client inserts jobs into one stream, lists and cancels them, and pauses their handlers. It needs no closing, and is safe for concurrent
// use.
type Client struct {
	api    jsapi.Client
	cfg    ClientConfig
	js     jetstream.JetStream
	nc     *nats.Conn
	stream atomic.Pointer[jetstream.StreamConfig] // as last seen
	takers atomic.Pointer[jobmsg.Takers]          // as last seen
}

// NewClient returns a client that publishes through js. It makes no request. The error names every invalid field of cfg.
func NewClient(js jetstream.JetStream, cfg ClientConfig) (*Client, error) {
	cfg = cfg.withDefaults()
	err := cfg.validate()
	if js == nil {
		err = errors.Join(errors.New("worker: NewClient needs a JetStream context, got nil"), err)
	}
	if err != nil {
		return nil, err
	}
	return &Client{api: jsapi.New(js, cfg.RequestTimeout), cfg: cfg, js: js, nc: js.Conn()}, nil
}

// firstPause is the first wait between two tries of a write.
const firstPause = 2 * time.Millisecond

var (
	errBusy  = errors.New("worker: another write of the key is under way")
	errFreed = errors.New("worker: the key has become free")
)

// Receipt is the result of an insert.
type Receipt struct {
	// Duplicate reports whether the job was not inserted, because another job holds the key.
	Duplicate bool

	// ID is the ID of the inserted job, or of the job that holds the key.
	ID string

	// Sequence is the sequence of the job, its schedule or its record in the stream.
	Sequence uint64

	// State is the state of the job. It is empty for a duplicate that is not unique, or that is Unique.Unrecorded: the server answers only
	// that there was a job with its ID, or that there is one of its subject. For an Unrecorded duplicate, ID, Sequence and Stream are empty
	// as well.
	State State

	// Stream is the stream of Sequence.
	Stream string

	// Subject is the subject of the job.
	Subject string
}

// Insert stores one job and returns when the server has confirmed it: one round trip, as a rule, and another for the first
// of the client. A job that no consumer takes is not stored, see ClientConfig.AllowUntaken. A unique job whose key is taken is not an
// error, see Receipt. It costs another round trip, unless the job is Unique.Unrecorded.
//
// An insert whose answer is lost is repeated, until the context or ClientConfig.SettleTimeout ends, without storing the job
// twice: the server refuses a unique job while another job of its key exists, and after that refuses its message ID, for the stream's
// duplicate window. The error is an [*InsertError]. When its Unknown is true, the job may have been stored or not, and inserting it again,
// with the same ID or key, is safe.
func (c *Client) Insert(ctx context.Context, job NewJob) (Receipt, error) {
	p, err := c.plan(job)
	if err != nil {
		return Receipt{}, &InsertError{Cause: err, ID: job.ID, Subject: job.Subject}
	}
	receipt, err := c.insert(ctx, p)
	if err != nil {
		return Receipt{}, &InsertError{Cause: err, ID: p.id, Subject: p.key.Job(), Unknown: p.unknown}
	}
	return receipt, nil
}

func (c *Client) insert(ctx context.Context, p *plan) (Receipt, error) {
	if err := c.ensureStream(ctx, p); err != nil {
		return Receipt{}, err
	}
	receipt, err := c.publish(ctx, p)
	if err == nil {
		return receipt, nil
	}
	return c.settle(ctx, p, err)
}

// send publishes a message once.
func (c *Client) send(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	return c.js.PublishMsg(ctx, msg)
}

// publish publishes a job once.
func (c *Client) publish(ctx context.Context, p *plan) (Receipt, error) {
	ack, err := c.send(ctx, c.message(p))
	if err != nil {
		return Receipt{}, err
	}
	return p.receipt(ack), nil
}

// settle finds out the outcome of a publication that failed, and repeats the publication if the job was not stored.
func (c *Client) settle(ctx context.Context, p *plan, err error) (Receipt, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastWait) {
		var receipt Receipt
		switch {
		case p.unique && jsapi.IsRefused(err):
			receipt, err = c.resolveConflict(ctx, p)
		case p.unrecorded && jsapi.IsRefused(err) && !jsapi.IsInDoubt(err):
			receipt, err = c.resolveTaken(ctx, p)
		case errors.Is(err, jetstream.ErrNoStreamResponse):
			if lack := c.checkStream(ctx, p); isFinal(lack) {
				return Receipt{}, lack
			}
		default:
			p.unknown = p.unknown || isPassing(err) || errors.Is(err, nats.ErrConnectionClosed)
		}
		if err == nil {
			return receipt, nil
		}
		if !errors.Is(err, errFreed) && (!isPassing(err) || !retry.Sleep(ctx, pause)) {
			return Receipt{}, err
		}
		if receipt, err = c.publish(ctx, p); err == nil {
			return receipt, nil
		}
	}
}

// isPassing reports whether a failed write may succeed when it is repeated.
func isPassing(err error) bool {
	return errors.Is(err, errBusy) || jsapi.IsRefused(err) || jsapi.IsUnknown(err) && !jsapi.IsFull(err)
}

// last reads the last message on a subject. The subject may have wildcards.
func (c *Client) last(ctx context.Context, subject string) (jsapi.Message, bool, error) {
	msg, found, err := c.api.Get(ctx, c.cfg.Stream, jsapi.Query{LastBySubject: subject})
	if err != nil {
		return jsapi.Message{}, false, fmt.Errorf("worker: last message on %s: %w", subject, err)
	}
	return msg, found, nil
}

// remove deletes a message, if it exists.
func (c *Client) remove(ctx context.Context, sequence uint64) error {
	if _, err := c.api.Delete(ctx, c.cfg.Stream, sequence); err != nil {
		return fmt.Errorf("worker: delete message %d of %s: %w", sequence, c.cfg.Stream, err)
	}
	return nil
}
