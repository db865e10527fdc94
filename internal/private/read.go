package private

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// MaxPEM bounds a file of certificates or keys, in bytes.
const MaxPEM = 4 << 20

// ReadFile returns the contents of a file, which may be a pipe. One of more bytes than most is refused.
func ReadFile(path string, most int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := Read(file, most)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// ReadFS returns the contents of a regular file in a folder: another kind, such as a pipe, might never
// end. The error of one that is refused does not name it.
func ReadFS(folder fs.FS, name string, most int64) ([]byte, error) {
	info, err := fs.Stat(folder, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	file, err := folder.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return Read(file, most)
}

// Read returns what is left in a file, and refuses more bytes than most.
func Read(file io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err == nil && int64(len(data)) > most {
		return nil, fmt.Errorf("has more than %d bytes", most)
	}
	return data, err
}
