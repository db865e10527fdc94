package private_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A file is read up to its bound and refused above it, and what might never end is not read in a folder at all.
func TestFilesEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, size := range map[string]int{"some": 10, "more": 11} {
		check.OK(t, os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("x"), size), 0o600))
	}
	check.OK(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	check.OK(t, os.Symlink("some", filepath.Join(dir, "link")))
	check.OK(t, os.Symlink(os.DevNull, filepath.Join(dir, "device")))
	for name, want := range map[string]string{
		"some": "", "link": "", "more": "has more than 10 bytes", "folder": "is no regular file", "device": "is no regular file", "none": "no such file",
	} {
		data, err := private.ReadFS(os.DirFS(dir), name, 10)
		if want == "" {
			check.That(t, err == nil && len(data) == 10, "%s: %q, %v", name, data, err)
		} else {
			check.ErrorContains(t, err, want)
		}
	}
	data, err := private.ReadFile(filepath.Join(dir, "some"), 10)
	check.That(t, err == nil && len(data) == 10, "%q, %v", data, err)
	for _, path := range []string{"/dev/zero", filepath.Join(dir, "more")} {
		check.ErrorContains(t, check.Err(private.ReadFile(path, 10)), path+": has more than 10 bytes")
	}
}
