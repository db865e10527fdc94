package natsrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/expediter-io/expediter/internal/private"
)

const (
	dirMode    = 0o700
	lockName   = "natsrun.lock"
	tempPrefix = "natsrun-"
)

// storeDir is a JetStream directory on which this process holds a lock. The kernel drops the lock when the process dies, in any way.
type storeDir struct {
	path string
	lock *flock.Flock    // nil for a temporary directory
	temp *private.Folder // nil for a directory that stays
}

// openStoreDir creates and locks dir, or a temporary directory when dir is "".
func openStoreDir(dir string, memory bool) (*storeDir, error) {
	if dir == "" {
		return makeStoreDir(memory)
	}
	if err := private.Open(dir); err != nil {
		return nil, fmt.Errorf("%w: %w: give a Dir on a file system that this user may write to", ErrDirUnusable, err)
	}
	sd := &storeDir{path: dir, lock: flock.New(filepath.Join(dir, lockName))}
	held, err := sd.lock.TryLock()
	if err != nil {
		return nil, errors.Join(
			fmt.Errorf("%w: lock %s: %w: give a Dir that this user may write to", ErrDirUnusable, dir, err), sd.close())
	}
	if !held {
		return nil, fmt.Errorf("%w: %s: stop the server that runs there, or give another Dir", ErrDirInUse, dir)
	}
	return sd, nil
}

// sweep removes the directories of processes that were killed: in RAM they would stay until the machine restarts. It runs once, as some
// programs start thousands of servers.
var sweep = sync.OnceFunc(func() {
	for _, parent := range []string{os.TempDir(), ramDir()} {
		if parent != "" {
			_ = private.Sweep(parent, tempPrefix) // the next process tries again
		}
	}
})

func makeStoreDir(memory bool) (*storeDir, error) {
	sweep()
	parent := ""
	if memory {
		parent = ramDir()
	}
	temp, err := private.Make(cmp.Or(parent, os.TempDir()), tempPrefix)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: give a Dir on a file system that this user may write to", ErrDirUnusable, err)
	}
	return &storeDir{path: temp.Path, temp: temp}, nil
}

// close releases the directory, and removes it when it is a temporary one.
func (sd *storeDir) close() error {
	var err error
	if sd.temp != nil {
		err = sd.temp.Remove()
	} else {
		err = sd.lock.Close()
	}
	if err != nil {
		return fmt.Errorf("natsrun: release store directory %s: %w", sd.path, err)
	}
	return nil
}

// portRetry is the time between two tries of a taken port.
const portRetry = 10 * time.Millisecond

// portTries is the number of blocks of ports that are tried.
const portTries = 100

// Cluster nodes take ports from below the range that systems use for outgoing connections, so that the port of a node
// that is down stays free.
const (
	firstPort = 20_000
	lastPort  = 32_000
	blockSize = 1 + portsPerNode*maxNodes
)

// portBlock is a range of ports that no other cluster of this machine takes, even while no node listens there. Listening on the first port
// reserves the block: the kernel frees it when this process dies.
type portBlock struct {
	guard net.Listener
	ports []int
}

// reservePorts returns a block with n free ports.
func reservePorts(n int) (*portBlock, error) {
	for range portTries {
		first := firstPort + blockSize*rand.IntN((lastPort-firstPort)/blockSize)
		guard, err := listen(address(first))
		if err != nil {
			continue
		}
		b := &portBlock{guard: guard}
		for port := first + 1; port < first+blockSize && len(b.ports) < n; port++ {
			if free(port) {
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

// free reports whether nothing listens on the port.
func free(port int) bool {
	l, err := listen(address(port))
	return err == nil && l.Close() == nil
}

func listen(addr string) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(context.Background(), "tcp", addr) //nolint:forbidigo // an address needs no resolver
}
