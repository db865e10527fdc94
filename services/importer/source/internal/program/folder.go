package program

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// prefix begins the names of all folders, so that nothing else is ever removed.
const prefix = "job-"

// Folders makes temporary folders under one folder, and removes those that a process has left that did not end well.
type Folders struct{ root string }

// NewFolders makes the root where it is missing and removes the folders under it that no process holds.
func NewFolders(root string) (*Folders, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("program: make the folder for temporary files: %w", err)
	}
	f := &Folders{root: root}
	if err := f.sweep(); err != nil {
		return nil, err
	}
	return f, nil
}

// sweep removes the folders that belong to no living process.
func (f *Folders) sweep() error {
	entries, err := os.ReadDir(f.root)
	if err != nil {
		return fmt.Errorf("program: look for old temporary folders: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		dir := filepath.Join(f.root, entry.Name())
		held, err := hold(dir)
		if err != nil {
			continue // a process works in it
		}
		errs = append(errs, os.RemoveAll(dir), held.Close())
	}
	return errors.Join(errs...)
}

// Folder is a temporary folder.
type Folder struct {
	// Path is where it is.
	Path string
	held *os.File
}

// New makes an empty folder. Its name is made of a hash of the job id, which may hold anything, and a random number.
func (f *Folders) New(jobID string) (*Folder, error) {
	sum := sha256.Sum256([]byte(jobID))
	for {
		dir, err := os.MkdirTemp(f.root, prefix+hex.EncodeToString(sum[:8])+"-*")
		if err != nil {
			return nil, fmt.Errorf("program: make a temporary folder: %w", err)
		}
		held, err := hold(dir)
		if err == nil {
			return &Folder{Path: dir, held: held}, nil
		}
		// Another process swept it away before it was held.
		if _, statErr := os.Stat(dir); !errors.Is(statErr, os.ErrNotExist) && !errors.Is(err, errHeld) {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
}

// Remove removes the folder and all in it.
func (f *Folder) Remove() error {
	err := os.RemoveAll(f.Path)
	return errors.Join(err, f.held.Close())
}
