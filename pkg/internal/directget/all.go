package directget

import (
	"context"
	"errors"
	"time"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
)

const (
	// batchBytes is the size at which the server ends an answer: it bounds the bytes under way to a client that reads
	// slowly.
	batchBytes = 4 << 20

	// batchMessages only makes the server send more than one message.
	batchMessages = 1 << 20

	// leaderTimeout is the time after which a leader that does not answer is asked again.
	leaderTimeout = time.Second
)

// All returns the data of the messages of subject in stream, in their order. size is the expected number of bytes:
// fewer or more mean that the messages are not the expected ones. Any replica may answer, so the end may be missing.
// One round trip for each 4 MB.
func (g *Getter) All(ctx context.Context, stream, subject string, size int) ([]byte, error) {
	data := make([]byte, 0, size)
	req := request{NextBy: subject, Batch: batchMessages, MaxBytes: batchBytes, Sequence: 1}
	for {
		c, err := g.ask(ctx, stream, req, idleTimeout)
		if errors.Is(err, errGone) { // it has no messages
			return data, nil
		}
		if err != nil {
			return nil, err
		}
		for _, m := range c.messages {
			data = append(data, m.Data...)
			req.Sequence = m.Sequence + 1
		}
		if !c.more || len(c.messages) == 0 || len(data) > size {
			return data, nil
		}
	}
}

// AllLeader is All with answers of the stream's leader. It asks for each message, and again until ctx ends while no
// server answers. A missing stream has no messages. One round trip for each message.
func (g *Getter) AllLeader(ctx context.Context, stream, subject string, size int) ([]byte, error) {
	data := make([]byte, 0, size)
	query := jsapi.Query{NextBySubject: subject, Sequence: 1}
	for wait := minWait; ; {
		m, ok, err := g.api.Get(ctx, stream, query)
		switch {
		case err == nil && ok:
			wait = minWait
			data = append(data, m.Data...)
			query.Sequence = m.Sequence + 1
			if len(data) > size {
				return data, nil
			}
		case err == nil, jsapi.IsNoStream(err):
			return data, nil
		case !isTransient(err) && !errors.Is(err, context.DeadlineExceeded) || !backoff.Pause(ctx, wait):
			return nil, err
		default:
			wait = min(2*wait, maxWait)
		}
	}
}
