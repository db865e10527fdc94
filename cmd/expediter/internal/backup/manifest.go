package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"time"
)

const (
	// format is the version of the manifest and of the files that it lists.
	format = 1

	// manifestName is the file that is written last.
	manifestName = "manifest.json"

	// maxManifest bounds the manifest, in bytes. One stream takes some 2 KiB.
	maxManifest = 1 << 20
)

// streamName matches the names that streams of this product can have. They are safe as file names.
var streamName = regexp.MustCompile(`^[A-Za-z0-9][-_A-Za-z0-9]{0,99}$`)

// manifest lists the contents of a backup.
type manifest struct {
	// Format is the version of the backup. A reader refuses a version greater than its own.
	Format int `json:"format"`
	// ID is unique. A restore marks the streams with it.
	ID string `json:"id"`
	// Began and Ended are the times of this machine.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended"`
	// Streams are in the order in which they were finished.
	Streams []Stream `json:"streams"`
}

// Stream is a stream of a backup.
type Stream struct {
	// Name is the name of the stream, and of its file without the extension.
	Name string `json:"name"`
	// Messages and Consumers are the numbers of messages and consumers in the file.
	Messages  uint64 `json:"messages"`
	Consumers int    `json:"consumers"`
	// Bytes and SHA256 are the size and the checksum of the file.
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Config and State are the stream's, as the server sent them.
	Config json.RawMessage `json:"config,omitempty"`
	State  json.RawMessage `json:"state,omitempty"`
}

func (s Stream) file() string { return s.Name + ".snapshot" }

// writeManifest completes the backup. The file gets its name only when all of it is on the disk.
func writeManifest(dir *os.Root, m manifest) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the manifest: %w", err)
	}
	const unfinished = manifestName + ".new"
	file, err := create(dir, unfinished)
	if err != nil {
		return err
	}
	_, err = file.Write(append(data, '\n'))
	if err := errors.Join(err, file.Sync(), file.Close(), syncDir(dir)); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	if err := dir.Rename(unfinished, manifestName); err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	return syncDir(dir)
}

// create makes a file that only its owner can read.
func create(dir *os.Root, name string) (*os.File, error) {
	file, err := dir.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a file of the backup: %w", err)
	}
	return file, nil
}

func syncDir(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return fmt.Errorf("write the folder of the backup: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("write the folder of the backup: %w", err)
	}
	return nil
}

// verify reads the manifest and all files that it lists, and returns a *FileError for the first file that differs
// from the file that was written.
func verify(dir *os.Root) (m manifest, err error) {
	m, err = readManifest(dir)
	if err != nil {
		return m, &FileError{File: manifestName, Err: err}
	}
	listed := map[string]bool{manifestName: true}
	for _, s := range m.Streams {
		if !streamName.MatchString(s.Name) || listed[s.file()] {
			return m, &FileError{File: manifestName, Err: fmt.Errorf("%w: stream %q", ErrCorrupt, s.Name)}
		}
		listed[s.file()] = true
	}
	found, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return m, fmt.Errorf("read the folder of the backup: %w", err)
	}
	for _, f := range found {
		if !listed[f.Name()] {
			return m, &FileError{File: f.Name(), Err: ErrForeign}
		}
	}
	for _, s := range m.Streams {
		if err := s.verify(dir); err != nil {
			return m, &FileError{File: s.file(), Err: err}
		}
	}
	return m, nil
}

func readManifest(dir *os.Root) (m manifest, err error) {
	file, err := dir.Open(manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("%w: %w", ErrIncomplete, err)
	}
	if err != nil {
		return m, err //nolint:wrapcheck // verify does
	}
	defer file.Close() //nolint:errcheck // it is only read
	data, err := io.ReadAll(io.LimitReader(file, maxManifest+1))
	if err != nil {
		return m, err //nolint:wrapcheck // verify does
	}
	// The version decides how to read the other members.
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return m, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if version.Format != format {
		return m, fmt.Errorf("%w: format %d, known is %d", ErrFormat, version.Format, format)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return m, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if m.ID == "" || len(m.Streams) == 0 {
		return m, fmt.Errorf("%w: it lists nothing", ErrCorrupt)
	}
	return m, nil
}

// verify compares the file with its entry in the manifest.
func (s Stream) verify(dir *os.Root) error {
	file, err := dir.Open(s.file())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err != nil {
		return err //nolint:wrapcheck // the caller does
	}
	defer file.Close() //nolint:errcheck // it is only read
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(file, s.Bytes+1))
	switch {
	case err != nil:
		return err //nolint:wrapcheck // the caller does
	case n < s.Bytes:
		return fmt.Errorf("%w: it has %d of %d bytes", ErrCorrupt, n, s.Bytes)
	case n > s.Bytes:
		return fmt.Errorf("%w: it has more than %d bytes", ErrCorrupt, s.Bytes)
	case hex.EncodeToString(sum.Sum(nil)) != s.SHA256:
		return fmt.Errorf("%w: the checksum is another one", ErrCorrupt)
	}
	return nil
}
