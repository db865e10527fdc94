package natsrun

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// portRetry is how often a taken port is looked at again.
const portRetry = 10 * time.Millisecond

// portTries is how many random ports are tried for each that is needed.
const portTries = 50

// Cluster nodes take ports from below the range that systems lend to outgoing
// connections, so that a node that is down finds its port free when it is back.
const (
	firstPort = 20_000
	lastPort  = 32_000
)

// freePorts returns n different ports that nothing listens on at the moment.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)

	for range portTries * n {
		if len(ports) == n {
			return ports, nil
		}

		port := firstPort + rand.IntN(lastPort-firstPort) //nolint:gosec // spreads, protects nothing
		if !slices.Contains(ports, port) && probe(port) == nil {
			ports = append(ports, port)
		}
	}

	if len(ports) == n {
		return ports, nil
	}

	return nil, fmt.Errorf("%w: found %d of %d free ports between %d and %d", ErrPortInUse, len(ports), n, firstPort, lastPort)
}

// address returns a port of this machine as "host:port".
func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// probe returns at once, ErrPortInUse if the port is taken.
func probe(port int) error {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // waits for nothing
	cancel()

	return awaitPort(ctx, loopback, port)
}

// awaitPort returns when the port can be listened on. The server itself would
// report a taken port late and only in its log. A ctx that has already ended
// means: look once.
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

		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w: stop what listens there, or set Port 0 for a free one", ErrPortInUse, err)
		case <-time.After(portRetry):
		}
	}
}

func probePort(addr string) error {
	var lc net.ListenConfig

	l, err := lc.Listen(context.Background(), "tcp", addr) //nolint:forbidigo // an address needs no resolver
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}

	if err := l.Close(); err != nil {
		return fmt.Errorf("probe: %w", err)
	}

	return nil
}
