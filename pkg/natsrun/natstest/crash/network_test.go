package crash_test

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// The network loses the chosen direction, and only that.
func TestNetworkCutsOneDirection(t *testing.T) {
	t.Parallel()

	for scheme, network := range map[string]string{"echo://": "tcp", "": "unix"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()

			listen := "127.0.0.1:0"
			if network == "unix" {
				listen = filepath.Join(t.TempDir(), "socket")
			}

			l, err := net.Listen(network, listen)
			check.OK(t, err)

			var echo sync.WaitGroup

			t.Cleanup(echo.Wait)
			t.Cleanup(func() { _ = l.Close() })
			echo.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}

					echo.Go(func() {
						defer c.Close()

						_, _ = io.Copy(c, c) //nolint:errcheck // until it is closed
					})
				}
			})

			n := crash.NewNetwork(t, scheme+l.Addr().String())
			c, err := net.Dial(network, strings.TrimPrefix(n.URLs, scheme))
			check.OK(t, err)

			defer c.Close()

			buf := make([]byte, 1)
			for _, want := range []byte("ab") {
				check.OK(t, check.Err(c.Write([]byte{want})))

				if _, err := io.ReadFull(c, buf); err != nil || buf[0] != want {
					t.Fatalf("got %q, %v; want %q", buf, err, want)
				}
			}

			n.Cut(crash.ToClient)
			check.Is(t, check.Err(c.Write([]byte("c"))), nil)
			n.Heal()

			if n, err := c.Read(buf); n > 0 || errors.Is(err, nil) {
				t.Errorf("read %q, %v through a cut", buf[:n], err)
			}
		})
	}
}
