package private_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// another gives a path to another user, which only root can do: others test what they can.
func another(t *testing.T, path string) bool {
	t.Helper()
	err := os.Lchown(path, 1234, 1234)
	check.That(t, err == nil || os.Geteuid() != 0, "give %s away: %v", path, err)
	return err == nil
}

// shared makes a folder into which everybody may get and write.
func shared(t *testing.T, path string, mode os.FileMode) string {
	t.Helper()
	check.OK(t, os.MkdirAll(path, 0o755))
	check.OK(t, os.Chmod(path, mode))
	return path
}

// open makes a folder that everybody can reach, as /tmp.
func open(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	check.OK(t, os.Chmod(filepath.Dir(dir), 0o755))
	for at := filepath.Dir(dir); at != filepath.Dir(at); at = filepath.Dir(at) {
		if check.Must(os.Stat(at))(t).Mode().Perm()&0o001 == 0 {
			t.Skipf("nobody else gets through %s", at)
		}
	}
	return shared(t, dir, 0o777|os.ModeSticky)
}

// Whoever has made a predictable path before does not get the files that are written there, and nothing is written where a link of
// another leads.
func TestFoldersOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mode   os.FileMode // of a folder that is there
		linked bool        // whether the path is a link to it
		given  string      // what is another's: the folder, or the link
		below  string      // what is opened in it
		want   error
	}{
		"missing":                {},
		"ours":                   {mode: 0o755},
		"of our group":           {mode: 0o775},
		"everybody's":            {mode: 0o777, want: private.ErrShared},
		"everybody's sticky":     {mode: 0o777 | os.ModeSticky, want: private.ErrShared},
		"another's":              {mode: 0o755, given: "folder", want: private.ErrShared},
		"below another's":        {mode: 0o755, given: "folder", below: "data", want: private.ErrShared},
		"another's link to ours": {mode: 0o755, linked: true, given: "link", want: private.ErrShared},
		"our link to another's":  {mode: 0o755, linked: true, given: "folder", want: private.ErrShared},
		"a link to nothing":      {linked: true, want: os.ErrExist},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(open(t), "data")
			at := map[string]string{"": t.TempDir(), "folder": dir, "link": dir}
			if test.linked {
				at["folder"] = filepath.Join(t.TempDir(), "folder")
				check.OK(t, os.Symlink(at["folder"], dir))
			}
			if test.mode != 0 {
				shared(t, at["folder"], test.mode)
			}
			if !another(t, at[test.given]) && test.given != "" {
				t.Skip("only root can give files to another user")
			}
			check.ErrorIs(t, private.Open(filepath.Join(dir, test.below)), test.want)
		})
	}
	alone := shared(t, t.TempDir(), 0o777) // nobody gets there, as with umask 000
	check.OK(t, os.Chmod(filepath.Dir(alone), 0o700))
	check.OK(t, private.Open(alone))
}

// Of two users, each has separate folders in a common one, unless there are no rules there.
func TestFoldersInACommonFolder(t *testing.T) {
	t.Parallel()
	root := open(t)
	folder := check.Must(private.Make(root, "ours-"))(t)
	info := check.Must(os.Stat(folder.Path))(t)
	check.Equal(t, info.Mode().Perm(), 0o700, "mode")
	check.OK(t, folder.Remove())
	shared(t, root, 0o777)
	check.ErrorIs(t, check.Err(private.Make(root, "ours-")), private.ErrShared)
	shared(t, root, 0o777|os.ModeSticky)
	if another(t, root) {
		check.ErrorIs(t, check.Err(private.Make(root, "ours-")), private.ErrShared)
	}
}

// A process that was killed leaves a folder, which the next one of the same user removes. All else stays, and a trap is not stepped
// into.
func TestSweep(t *testing.T) {
	testbed.Main("left", func(ctx context.Context, root string) error {
		_, err := private.Make(root, "ours-")
		fmt.Println("made") //nolint:forbidigo // its parent reads it
		<-ctx.Done()
		return err
	})
	t.Parallel()
	root := open(t)
	left := check.Must(testbed.Start(t.Output(), "left", root, "-test.run=^TestSweep$"))(t)
	check.OK(t, check.Err(left.Line(t.Context())))
	held := check.Must(private.Make(root, "ours-"))(t)
	want := []string{"other", "ours-link", filepath.Base(held.Path)}
	check.OK(t, os.Mkdir(filepath.Join(root, "other"), 0o700))
	check.OK(t, os.Symlink(t.TempDir(), filepath.Join(root, "ours-link")))
	if trap := shared(t, filepath.Join(root, "ours-another"), 0o777); another(t, trap) {
		want = append(want, "ours-another")
	}
	check.OK(t, private.Sweep(root, "ours-"))
	check.Equal(t, len(names(t, root)), len(want)+1, "folders, with that of a living process")
	check.OK(t, left.Kill())
	check.OK(t, private.Sweep(root, "ours-"))
	slices.Sort(want)
	check.Equal(t, names(t, root), want)
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, entry := range check.Must(os.ReadDir(dir))(t) {
		names = append(names, entry.Name())
	}
	return names
}

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
