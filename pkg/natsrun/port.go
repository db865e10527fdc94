package natsrun

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/expediter-io/expediter/pkg/pause"
)

// portRetry is the time between two looks at a taken port.
const portRetry = 10 * time.Millisecond

// portTries is how many blocks of ports are tried.
const portTries = 100

// Cluster nodes take ports from below the range that systems use for outgoing connections, so that the port of a node
// that is down stays free.
const (
	firstPort = 20_000
	lastPort  = 32_000
	blockSize = 1 + portsPerNode*maxNodes
)

// portBlock is a range of ports that no other cluster of this machine takes, also while no node listens there.
// Listening on the first port reserves the block: the kernel frees it when this process dies.
type portBlock struct {
	guard net.Listener
	ports []int
}

// reservePorts returns a block with n free ports.
func reservePorts(n int) (*portBlock, error) {
	for range portTries {
		first := firstPort + blockSize*rand.IntN((lastPort-firstPort)/blockSize) //nolint:gosec // spreads, protects nothing

		guard, err := listen(address(first))
		if err != nil {
			continue
		}

		b := &portBlock{guard: guard}

		for port := first + 1; port < first+blockSize && len(b.ports) < n; port++ {
			if probe(port) == nil {
				b.ports = append(b.ports, port)
			}
		}

		if len(b.ports) == n {
			return b, nil
		}

		if err := b.close(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: found no row of %d free ports between %d and %d", ErrPortInUse, n, firstPort, lastPort)
}

// close releases the ports; a nil block has none.
func (b *portBlock) close() error {
	if b == nil {
		return nil
	}

	if err := b.guard.Close(); err != nil {
		return fmt.Errorf("natsrun: give ports back: %w", err)
	}
	return nil
}

// address returns a port of this machine as "host:port".
func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// probe returns at once, ErrPortInUse if the port is taken.
func probe(port int) error {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // waits for nothing
	cancel()
	return awaitPort(ctx, loopback, port)
}

// awaitPort returns when the port can be listened on. The server itself would report a taken port late and only in its
// log. If ctx has already ended it looks once.
func awaitPort(ctx context.Context, host string, port int) error {
	if port <= 0 {
		return nil
	}

	addr := net.JoinHostPort(host, strconv.Itoa(port))

	for {
		err := probePort(addr)
		if err == nil {
			return nil
		}

		if !errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("natsrun: listen on %s: %w", addr, err)
		}

		if !pause.For(ctx, portRetry) {
			return fmt.Errorf("%w: %w: stop what listens there, or set Port 0 for a free one", ErrPortInUse, err)
		}
	}
}

func probePort(addr string) error {
	l, err := listen(addr)
	if err != nil {
		return err
	}

	if err := l.Close(); err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	return nil
}

func listen(addr string) (net.Listener, error) {
	var lc net.ListenConfig

	l, err := lc.Listen(context.Background(), "tcp", addr) //nolint:forbidigo // an address needs no resolver
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	return l, nil
}
