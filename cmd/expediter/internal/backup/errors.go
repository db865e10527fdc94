package backup

import (
	"errors"
	"fmt"
)

var (
	// ErrIncomplete is returned for a folder without a manifest: the backup was cut off, or the folder holds none.
	ErrIncomplete = errors.New("the backup was not finished, or there is none")

	// ErrCorrupt is returned for a file that is not as it was written.
	ErrCorrupt = errors.New("it is not as the backup wrote it")

	// ErrForeign is returned for a file that is no part of the backup.
	ErrForeign = errors.New("it is no part of the backup")

	// ErrFormat is returned for a backup of a version that is not known.
	ErrFormat = errors.New("the format is not known: use the version of expediter that wrote it, or a later one")

	// ErrNotEmpty is returned when the folder for a backup holds files.
	ErrNotEmpty = errors.New("the folder is not empty")

	// ErrExists is returned when the server has a stream that is to be restored.
	ErrExists = errors.New("the stream exists: restore onto a server without it, or delete it")

	// ErrBusy is returned when a stream is written to faster than it is read.
	ErrBusy = errors.New("it is written to faster than it is read: stop what writes to it")
)

// FileError names the file of a backup that cannot be used.
type FileError struct {
	// Err is why.
	Err error
	// File is its name within the folder.
	File string
}

// Error implements error.
func (e *FileError) Error() string { return fmt.Sprintf("backup: file %q: %v", e.File, e.Err) }

// Unwrap returns Err.
func (e *FileError) Unwrap() error { return e.Err }
