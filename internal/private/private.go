// Package private has folders that no other user of the machine may change, even where others have made every predictable path
// before.
package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrShared is returned for a folder in which another user could put, exchange or read files.
var ErrShared = errors.New("another user may change what is in it")

// Open makes a folder for this user alone, unless it is there. It refuses one in which others may put files: the error matches
// [ErrShared].
func Open(dir string) error {
	if err := owned(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return check(dir, 0)
}

// Folder is a temporary folder of this process alone.
type Folder struct {
	// Path is the path of the folder.
	Path string

	held *os.File
}

// Make makes a temporary folder below root, whose name begins with the prefix. It refuses a root where others could exchange the
// folder: the error matches [ErrShared].
func Make(root, prefix string) (*Folder, error) {
	if err := check(root, fs.ModeSticky); err != nil {
		return nil, err
	}
	for {
		dir, err := os.MkdirTemp(root, prefix+"*")
		if err != nil {
			return nil, fmt.Errorf("make a temporary folder: %w", err)
		}
		held, err := hold(dir)
		if err == nil {
			return &Folder{Path: dir, held: held}, nil
		}
		// A sweep of another process took it between the two calls.
		if !errors.Is(err, errHeld) && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
}

// Remove removes the folder and all in it.
func (f *Folder) Remove() error {
	return errors.Join(os.RemoveAll(f.Path), f.held.Close())
}

// Sweep removes the folders that dead processes of this user have made below root with the prefix. Those of living processes and of other
// users stay, whatever is in them.
func Sweep(root, prefix string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("look for old temporary folders: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		info, err := entry.Info()
		if err != nil || !info.IsDir() || !isOurs(info) {
			continue
		}
		dir := filepath.Join(root, entry.Name())
		held, err := hold(dir)
		if err != nil {
			continue // a process uses it
		}
		errs = append(errs, (&Folder{Path: dir, held: held}).Remove())
	}
	return errors.Join(errs...)
}

// check refuses a folder that another user may change. A folder with the mode may be written by everybody, if it is sticky: nobody but the
// owner of an entry exchanges it then.
func check(dir string, unless fs.FileMode) error {
	target, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for _, path := range []string{dir, target} {
		if err := owned(path); err != nil {
			return err
		}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o002 == 0 || info.Mode()&unless != 0 {
		return nil
	}
	for at := target; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return nil // nobody else gets there
		}
		if at == filepath.Dir(at) {
			return fmt.Errorf("%s: %w, as everybody may write there: use a folder of your own", dir, ErrShared)
		}
	}
}

// owned refuses a path through a folder or link of another user, who may make it lead elsewhere at any time. What is not there is
// nobody's.
func owned(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	for at := path; ; at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && !isOurs(info) && !isSystems(info) {
			return fmt.Errorf("%s: %w, as %s belongs to that user: use a folder of your own", path, ErrShared, at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}
