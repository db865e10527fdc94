package natsrun

import (
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

	check.Same(t, "ports", len(seen), 20*n)
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

	check.Is(t, b.close(), net.ErrClosed)

	if err := (*portBlock)(nil).close(); err != nil {
		t.Errorf("ports that were never taken: %v", err)
	}
}
