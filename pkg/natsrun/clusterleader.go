package natsrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const stepDownAPI = "$JS.API.STREAM.LEADER.STEPDOWN."

// StreamLeader returns the node that reports itself as the stream's leader (in any account; a bucket's stream is
// "KV_<bucket>"). During an election it waits for the result, until ctx ends, or for ReadyTimeout if ctx has no
// deadline. After that, or when there is no such stream, it returns ErrNoLeader.
func (c *Cluster) StreamLeader(ctx context.Context, stream string) (*Node, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	return c.otherLeader(ctx, stream, nil)
}

// StepDown makes the stream's leader hand over to another node and returns when the new one leads. It fails for a
// stream with one replica.
func (c *Cluster) StepDown(ctx context.Context, stream string) error {
	ctx, cancel := c.bounded(ctx)
	defer cancel()

	before, err := c.StreamLeader(ctx, stream)
	if err != nil {
		return err
	}

	var refused error

	// An election swallows requests, and the node that is asked to take over may not do so: then the old one leads
	// again.
	err = c.pollPatiently(ctx, func(ctx context.Context) error {
		if refused = c.requestStepDown(ctx, stream); final(refused) {
			return nil
		}

		// A request without an answer may have been carried out.
		_, err := c.otherLeader(ctx, stream, before)
		return errors.Join(refused, err)
	})
	if final(refused) {
		return refused
	}
	return err
}

// final reports whether asking again gets the same refusal.
func final(err error) bool {
	var api *server.ApiError
	return errors.As(err, &api) && api.Code != http.StatusServiceUnavailable
}

// otherLeader waits for a leader that is not this node. Each node is asked on its own, so that a paused one does not
// delay the others.
func (c *Cluster) otherLeader(ctx context.Context, stream string, not *Node) (*Node, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var leader atomic.Pointer[Node]

	err := c.each(func(n *Node) error {
		return c.poll(ctx, func(ctx context.Context) error {
			info, err := nodeInfo(ctx, n)
			if err != nil {
				return err
			}

			if n == not || !leads(info, n.Name, stream) {
				return fmt.Errorf("node %s does not lead it", n.Name)
			}

			leader.CompareAndSwap(nil, n)
			cancel()
			return nil
		})
	})

	if n := leader.Load(); n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("%w: %s: create it first: %w", ErrNoLeader, stream, err)
}

// requestStepDown asks the leader once, for half of the time that ctx leaves.
func (c *Cluster) requestStepDown(ctx context.Context, stream string) error {
	ctx, cancel := context.WithTimeout(ctx, timeLeft(ctx)/2)
	defer cancel()
	return c.withClient(ctx, func(nc *nats.Conn) error {
		msg, err := nc.RequestWithContext(ctx, stepDownAPI+stream, nil)
		if err != nil {
			return fmt.Errorf("natsrun: step down leader of %s: %w", stream, err)
		}

		var resp server.JSApiStreamLeaderStepDownResponse
		if err := json.Unmarshal(msg.Data, &resp); err != nil {
			return fmt.Errorf("natsrun: step down leader of %s: %w", stream, err)
		}

		if resp.Error != nil {
			return fmt.Errorf("natsrun: step down leader of %s: %w", stream, resp.Error)
		}
		return nil
	})
}

// leads reports whether the node leads the stream by its own answer.
func leads(info *server.JSInfo, node, stream string) bool {
	d := details(info)[stream]
	return d != nil && d.Cluster != nil && d.Cluster.Leader == node
}
