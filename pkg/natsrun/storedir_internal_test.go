package natsrun

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestDirectoriesOfKilledProcessesAreRemoved(t *testing.T) {
	t.Parallel()

	parent := t.TempDir()
	long := time.Now().Add(-2 * abandonedAfter)

	for _, name := range []string{"natsrun-abandoned", "natsrun-new", "natsrun-used", "other"} {
		path := filepath.Join(parent, name)
		check.OK(t, os.Mkdir(path, dirMode))

		lock := flock.New(filepath.Join(path, lockName))
		check.OK(t, check.Err(lock.TryLock()))

		if name != "natsrun-used" {
			check.OK(t, lock.Close())
		}

		t.Cleanup(func() { _ = lock.Close() })

		if name != "natsrun-new" {
			check.OK(t, os.Chtimes(path, long, long))
		}
	}

	removeAbandoned(parent)

	entries, err := os.ReadDir(parent)
	check.OK(t, err)

	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}

	if want := []string{"natsrun-new", "natsrun-used", "other"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
}
