// Package backup writes the streams and buckets of one account to a folder, and restores them from the folder.
//
// The server makes the snapshot of a stream, with its consumers. When a stream is written to during its snapshot, the
// snapshot lacks the new messages, and for each key that was replaced also the replaced message. So the messages after the
// snapshot are read until there are no more, and appended: the file holds each message that the stream had when its backup
// ended.
//
// Streams are not backed up at one instant. First come the snapshots of the streams with work, with the acknowledgements of
// their consumers; then the buckets and dead letters, in full; at the end the messages after the first snapshots. So all work
// that counts as done has its outcome in a bucket, and each job, plan or row that is queued by a bucket's record is in its
// stream. After a restore, a worker may get a job that is already done, and finds its outcome.
package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Config configures a backup or a restore.
type Config struct {
	// Account is the account whose streams JS reaches under a prefix. Defaults to the user's own.
	Account string
	// Dir is the folder of the backup. Required.
	Dir string
	// JS reaches the streams. Required.
	JS jetstream.JetStream
	// Replicas is the number of servers that keep each restored stream. Defaults to 0: as many as at the time of the
	// backup.
	Replicas int
	// Services are the services whose streams and buckets are backed up or restored, see contracts.Services. Required.
	Services []string
	// Timeout bounds the wait for each answer of the server. Defaults to 5 seconds.
	Timeout time.Duration

	// reached is called between the snapshot of a stream and the messages after it, and before each chunk of a restore. Tests
	// set it.
	reached func(stream string)
}

func (c Config) validate() (Config, error) {
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	if c.reached == nil {
		c.reached = func(string) {}
	}
	if c.Dir == "" || c.JS == nil || len(c.Services) == 0 || c.Timeout < 0 || c.Replicas < 0 {
		return c, errors.New("backup: Dir, JS and Services are required, Timeout and Replicas are not negative")
	}
	return c, nil
}

// names returns the names of the streams of the services: the streams with work, and the buckets and the dead letters
// with the outcomes of the work. A record comes before the records that it refers to.
func names(services []string, partitions map[string]int) (work, outcomes []string) {
	options := contracts.AssetOptions{Partitions: partitions, Services: services}
	for _, config := range contracts.Streams(options) {
		if config.Name != contracts.StreamDead {
			work = append(work, config.Name)
		}
	}
	for _, config := range slices.Concat(contracts.Buckets(options), contracts.Objects(options)) {
		outcomes = append(outcomes, config.Name)
	}
	if slices.ContainsFunc(services, func(s string) bool { return s != contracts.ServiceLock }) {
		outcomes = append(outcomes, contracts.StreamDead)
	}
	return work, outcomes
}

// Write backs up the streams of the services into a folder that does not exist or is empty, and calls done for each
// stream. It needs some 70 MB of memory for streams of any size. After a failure of Write the folder has no manifest,
// and Restore refuses it.
func Write(ctx context.Context, c Config, done func(Stream)) error {
	c, err := c.validate()
	if err != nil {
		return err
	}
	partitions, err := contracts.FindPartitions(ctx, c.JS, c.Services)
	if err != nil {
		return err
	}
	dir, err := openEmpty(c.Dir)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // files are synced and closed one by one
	m := manifest{Format: format, ID: nuid.Next(), Began: time.Now().UTC()}
	work, outcomes := names(c.Services, partitions)
	begun := make([]*file, 0, len(work))
	defer func() {
		for _, f := range begun {
			f.close()
		}
	}()
	for _, name := range work {
		f, err := c.begin(ctx, dir, name)
		if err != nil {
			return fmt.Errorf("back up stream %s: %w", name, err)
		}
		begun = append(begun, f)
	}
	finish := func(f *file) error {
		s, err := c.finish(ctx, f)
		if err != nil {
			return fmt.Errorf("back up stream %s: %w", f.Name, err)
		}
		m.Streams = append(m.Streams, s)
		done(s)
		return nil
	}
	for _, name := range outcomes {
		f, err := c.begin(ctx, dir, name)
		if err != nil {
			return fmt.Errorf("back up stream %s: %w", name, err)
		}
		err = finish(f)
		f.close()
		if err != nil {
			return err
		}
	}
	for _, f := range begun {
		if err := finish(f); err != nil {
			return err
		}
	}
	m.Ended = time.Now().UTC()
	return writeManifest(dir, m)
}

// openEmpty opens a folder for a backup, and creates it if it does not exist.
func openEmpty(path string) (*os.Root, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the backup: %w", err)
	}
	found, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("read the folder of the backup: %w", err)
	}
	if len(found) > 0 {
		return nil, &FileError{File: found[0].Name(), Err: fmt.Errorf("%w: %s", ErrNotEmpty, path)}
	}
	dir, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open the folder of the backup: %w", err)
	}
	return dir, nil
}

// subject returns the subject at which this client reaches a subject of the snapshot API, which the server names as the
// account itself knows it. It refuses a subject of another stream, because a message there could do anything.
func (c Config) subject(kind, stream, named string) (string, error) {
	below := "SNAPSHOT." + kind + "." + stream + "."
	if !strings.HasPrefix(named, "$JS."+below) {
		return "", fmt.Errorf("the server names the subject %q: want one below $JS.%s", named, below)
	}
	return c.prefix() + strings.TrimPrefix(named, "$JS."), nil
}

// prefix returns the prefix of the subjects of JetStream's API.
func (c Config) prefix() string {
	if c.Account == "" {
		return "$JS."
	}
	return "$JS." + c.Account + "."
}

var (
	// ErrIncomplete is returned for a folder without a manifest: the backup was cut off, or the folder has no backup.
	ErrIncomplete = errors.New("the backup was not finished, or there is none")

	// ErrCorrupt is returned for a file that differs from the file that was written.
	ErrCorrupt = errors.New("it is not as the backup wrote it")

	// ErrForeign is returned for a file that is no part of the backup.
	ErrForeign = errors.New("it is no part of the backup")

	// ErrFormat is returned for a backup of an unknown version.
	ErrFormat = errors.New("the format is not known: use the version of expediter that wrote it, or a later one")

	// ErrNotEmpty is returned when the folder for a backup holds files.
	ErrNotEmpty = errors.New("the folder is not empty")

	// ErrExists is returned when the server has a stream that is to be restored.
	ErrExists = errors.New("the stream exists: restore onto a server without it, or delete it")

	// ErrBusy is returned when a stream is written faster than it is read.
	ErrBusy = errors.New("it is written to faster than it is read: stop the services that write to it")
)

// FileError names the file of a backup that cannot be used.
type FileError struct {
	// Err is the cause.
	Err error
	// File is the name of the file within the folder.
	File string
}

// Error implements error.
func (e *FileError) Error() string { return fmt.Sprintf("backup: file %q: %v", e.File, e.Err) }

// Unwrap returns Err.
func (e *FileError) Unwrap() error { return e.Err }
