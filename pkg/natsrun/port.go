package natsrun

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"
)

// portRetry is how often a taken port is looked at again.
const portRetry = 10 * time.Millisecond

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

	l, err := lc.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}

	return l.Close()
}
