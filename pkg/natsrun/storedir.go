package natsrun

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

const (
	dirMode    = 0o700
	lockName   = "natsrun.lock"
	tempPrefix = "natsrun-"

	// abandonedAfter is how old a directory without a lock has to be to count as abandoned: a new one is locked at
	// once.
	abandonedAfter = time.Minute
)

// storeDir is a JetStream directory that this process holds a lock on. The kernel drops the lock when the process dies,
// in any way.
type storeDir struct {
	lock *flock.Flock
	path string
	temp bool
}

// openStoreDir creates and locks dir, or a temporary directory when dir is "".
func openStoreDir(dir string, memory bool) (*storeDir, error) {
	sd := &storeDir{path: dir, temp: dir == ""}

	if err := sd.create(memory); err != nil {
		return nil, fmt.Errorf("%w: %w: give a Dir on a file system that this user may write to", ErrDirUnusable, err)
	}

	sd.lock = flock.New(filepath.Join(sd.path, lockName))

	held, err := sd.lock.TryLock()
	if err != nil {
		return nil, errors.Join(
			fmt.Errorf("%w: lock %s: %w: give a Dir that this user may write to", ErrDirUnusable, sd.path, err), sd.close())
	}

	if !held {
		return nil, fmt.Errorf("%w: %s: stop the server that runs there, or give another Dir", ErrDirInUse, sd.path)
	}
	return sd, nil
}

func (sd *storeDir) create(memory bool) error {
	if !sd.temp {
		if err := os.MkdirAll(sd.path, dirMode); err != nil {
			return fmt.Errorf("create: %w", err)
		}
		return nil
	}

	parent := ""
	if memory {
		parent = ramDir()
	}

	if parent != "" {
		removeAbandoned(parent)
	}

	path, err := os.MkdirTemp(parent, tempPrefix)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}

	sd.path = path
	return nil
}

// removeAbandoned removes the directories of processes that were killed: in RAM
// they would stay until the machine restarts.
func removeAbandoned(parent string) {
	paths, err := filepath.Glob(filepath.Join(parent, tempPrefix+"*"))
	if err != nil {
		return // the pattern is right
	}

	for _, path := range paths {
		info, err := os.Lstat(path) // a link is not ours
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < abandonedAfter {
			continue
		}

		lock := flock.New(filepath.Join(path, lockName))
		if held, err := lock.TryLock(); err != nil || !held {
			continue // in use, or another user's
		}

		_ = (&storeDir{lock: lock, path: path, temp: true}).close() //nolint:errcheck // the next one tries again
	}
}

// close releases the directory, and removes it when it is a temporary one.
func (sd *storeDir) close() error {
	err := sd.lock.Close()

	if sd.temp {
		err = errors.Join(err, os.RemoveAll(sd.path))
	}

	if err != nil {
		return fmt.Errorf("natsrun: release store directory %s: %w", sd.path, err)
	}
	return nil
}
