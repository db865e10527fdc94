package worker

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ClientConfig says where a [Client] inserts jobs and how. Stream is required, everything
// else has a default.
type ClientConfig struct {
	// Bucket is the Config.Bucket of the workers, where Progress looks. Defaults to "jobs".
	Bucket string

	// Encode turns the arguments of a job into its payload. The Policy.Decode of the
	// handler is its counterpart. Defaults to JSON; []byte is then a payload as it is.
	Encode func(args any) ([]byte, error)

	// InFlight is how many jobs InsertMany sends before it waits for answers. Defaults to
	// 256, at most 2048.
	InFlight int

	// RequestTimeout is how long one request to the server may take before its outcome
	// counts as unknown and is looked up. Defaults to 2 seconds.
	RequestTimeout time.Duration

	// SettleTimeout is how long a call goes on when answers are lost or the server is
	// away. The call's context may end it earlier. Defaults to 10 seconds.
	SettleTimeout time.Duration

	// Stream is the stream that takes the jobs. Letters, digits, "-" and "_". Required.
	Stream string
}

// maxInFlight leaves room below the limit of a JetStream context, 4,000 by default.
const maxInFlight = 2048

func (c ClientConfig) withDefaults() ClientConfig {
	c.Bucket = cmp.Or(c.Bucket, "jobs")
	c.InFlight = cmp.Or(c.InFlight, 256)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 2*time.Second)
	c.SettleTimeout = cmp.Or(c.SettleTimeout, 10*time.Second)

	if c.Encode == nil {
		c.Encode = encodeJSON
	}

	return c
}

// validate reports everything that is wrong at once. It expects defaults to be set.
func (c ClientConfig) validate() error {
	var errs []error

	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("worker: "+format, args...)) }

	if c.InFlight < 1 || c.InFlight > maxInFlight {
		bad("ClientConfig.InFlight is %d: use 1 to %d", c.InFlight, maxInFlight)
	}

	for _, d := range []struct {
		field string
		value time.Duration
	}{{"RequestTimeout", c.RequestTimeout}, {"SettleTimeout", c.SettleTimeout}} {
		if d.value < 0 {
			bad("ClientConfig.%s is %s: use a positive duration", d.field, d.value)
		}
	}

	for _, name := range []struct{ field, value string }{{"Bucket", c.Bucket}, {"Stream", c.Stream}} {
		if !safeName.MatchString(name.value) {
			bad("ClientConfig.%s is %q: use 1 to 255 letters, digits, '-' and '_'", name.field, name.value)
		}
	}

	return errors.Join(errs...)
}

// Client inserts jobs into one stream and looks after their keys. It holds nothing that
// must be closed and may be used by many goroutines.
type Client struct {
	cfg    ClientConfig
	js     jetstream.JetStream
	nc     *nats.Conn
	stream atomic.Pointer[jetstream.StreamConfig] // as last seen
}

// NewClient returns a client that publishes through js. It makes no request. Every invalid
// field of cfg is reported at once.
func NewClient(js jetstream.JetStream, cfg ClientConfig) (*Client, error) {
	cfg = cfg.withDefaults()

	err := cfg.validate()
	if js == nil {
		err = errors.Join(errors.New("worker: NewClient needs a JetStream context, got nil"), err)
	}

	if err != nil {
		return nil, err
	}

	return &Client{cfg: cfg, js: js, nc: js.Conn()}, nil
}

func encodeJSON(args any) ([]byte, error) {
	if data, ok := args.([]byte); ok {
		return data, nil
	}

	return json.Marshal(args) //nolint:wrapcheck // the caller says of what
}
