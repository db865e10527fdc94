// Package limited reads files that an operator names, and refuses those that were not meant.
package limited

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ReadFile returns the contents of a file, which may be a pipe. One of more bytes than most is refused.
func ReadFile(path string, most int64) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return nil, err
	}
	return read(file, path, most)
}

// ReadFS returns the contents of a regular file in a folder: another kind, such as a pipe, might never end.
func ReadFS(folder fs.FS, name string, most int64) ([]byte, error) {
	info, err := fs.Stat(folder, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	file, err := folder.Open(name)
	if err != nil {
		return nil, err
	}
	return read(file, name, most)
}

func read(file io.ReadCloser, name string, most int64) ([]byte, error) {
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(data)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return data, err
}
