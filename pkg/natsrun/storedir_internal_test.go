package natsrun

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

func TestDirectoriesOfKilledProcessesAreRemoved(t *testing.T) {
	t.Parallel()

	parent := t.TempDir()
	long := time.Now().Add(-2 * abandonedAfter)

	for _, name := range []string{"natsrun-abandoned", "natsrun-new", "natsrun-used", "other"} {
		path := filepath.Join(parent, name)
		if err := os.Mkdir(path, dirMode); err != nil {
			t.Fatal(err)
		}

		lock := flock.New(filepath.Join(path, lockName))
		if _, err := lock.TryLock(); err != nil {
			t.Fatal(err)
		}

		if name != "natsrun-used" {
			if err := lock.Close(); err != nil {
				t.Fatal(err)
			}
		}

		t.Cleanup(func() { _ = lock.Close() })

		if name != "natsrun-new" {
			if err := os.Chtimes(path, long, long); err != nil {
				t.Fatal(err)
			}
		}
	}

	removeAbandoned(parent)

	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}

	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}

	if want := []string{"natsrun-new", "natsrun-used", "other"}; !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
}
