package natsrun

import (
	"errors"
	"net"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A node that is down must find its ports free when it comes back.
func TestReservedPortsAreNobodyElses(t *testing.T) {
	t.Parallel()

	const n = portsPerNode * maxNodes

	seen := make(map[int]bool)

	for range 20 {
		b, err := reservePorts(n)
		check.OK(t, err)

		t.Cleanup(func() {
			check.Is(t, b.close(), nil)
		})

		for _, port := range b.ports {
			if seen[port] {
				t.Errorf("port %d was reserved twice", port)
			}

			seen[port] = true
		}
	}

	if len(seen) != 20*n {
		t.Errorf("%d ports, want %d", len(seen), 20*n)
	}
}

func TestPortsAreGivenBack(t *testing.T) {
	t.Parallel()

	b, err := reservePorts(1)
	check.OK(t, err)

	guard := b.guard.Addr().String()
	if _, err := listen(guard); err == nil {
		t.Errorf("%s can be had while its block is reserved", guard)
	}

	check.OK(t, b.close())

	if err := b.close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second close: got %v, want net.ErrClosed: it was open", err)
	}

	if err := (*portBlock)(nil).close(); err != nil {
		t.Errorf("ports that were never taken: %v", err)
	}
}
