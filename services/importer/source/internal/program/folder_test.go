package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	check.OK(t, err)
	var out []string
	for _, entry := range entries {
		out = append(out, entry.Name())
	}
	return out
}

// A job id may hold anything: no folder is made but right below the root, and none of a job is that of another.
func TestFolderNames(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	folders, err := NewFolders(root)
	check.OK(t, err)
	seen := map[string]bool{}
	for _, id := range []string{
		"", "job-1", "job-1", "..", "../../etc", "/etc/passwd", `..\..\x`, "a b", "*", ">", "\x00", "--exec", "עברית", strings.Repeat("x", 10_000),
	} {
		folder, err := folders.New(id)
		check.OK(t, err)
		info, err := os.Stat(folder.Path)
		if err != nil || info.Mode().Perm() != 0o700 || filepath.Dir(folder.Path) != root || seen[folder.Path] {
			t.Errorf("id %.20q: folder %s, mode %v, error %v: want a new one of our own below %s", id, folder.Path, info, err, root)
		}
		seen[folder.Path] = true
		t.Cleanup(func() {
			check.Is(t, folder.Remove(), nil)
		})
	}
	check.Same(t, "folders", len(names(t, root)), len(seen))
}

// What a process left that is gone is removed at the next start; what one is at work in, and what is not ours, stays.
func TestOldFoldersAreRemoved(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	folders, err := NewFolders(root)
	check.OK(t, err)
	inUse, err := folders.New("in use")
	check.OK(t, err)
	left, err := folders.New("left")
	check.OK(t, err)
	check.OK(t, os.WriteFile(filepath.Join(left.Path, "sub.en.vtt"), []byte("WEBVTT"), 0o600))
	left.held.Close() // as the kernel does when a process ends
	check.OK(t, os.Mkdir(filepath.Join(root, "another's"), 0o700))
	check.OK(t, check.Err(NewFolders(root)))
	check.Same(t, "messages left", strings.Join(names(t, root), " "), "another's "+filepath.Base(inUse.Path))
	check.OK(t, inUse.Remove())
	check.Same(t, "messages left", strings.Join(names(t, root), " "), "another's")
}
