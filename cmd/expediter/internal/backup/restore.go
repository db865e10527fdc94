package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/jsretry"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	// restored is the metadata key of a restored stream. The value is the id of the backup, with the suffix unfinished
	// until the restore is done.
	restored   = "expediter-restored"
	unfinished = " unfinished"

	// nameInUse is the server's error code for a restore of a stream that exists, or that another restore is sending.
	nameInUse = 10130
)

// Restore creates the streams of the services in a backup, with their consumers, and calls done for each stream. It
// verifies the whole backup and checks all streams before it creates the first. It marks buckets as restored, so that
// fencing tokens continue to grow. It leaves out dead letters and records of services that Services does not name.
//
// After an interruption, call Restore again: it creates unfinished streams anew, and keeps finished ones. No service
// may run until Restore has succeeded.
func Restore(ctx context.Context, c Config, done func(Stream)) error {
	c, err := c.validate()
	if err != nil {
		return err
	}
	dir, err := os.OpenRoot(c.Dir)
	if err != nil {
		return fmt.Errorf("open the folder of the backup: %w", err)
	}
	defer dir.Close() //nolint:errcheck // it is only read
	m, err := verify(dir)
	if err != nil {
		return err
	}
	wanted := all(c.Services)
	m.Streams = slices.DeleteFunc(m.Streams, func(s Stream) bool { return !slices.Contains(wanted, s.Name) })
	if len(m.Streams) == 0 {
		return &FileError{File: manifestName, Err: fmt.Errorf("it lists no stream of the services %s", strings.Join(c.Services, ", "))}
	}
	marks := map[string]string{}
	var errs []error
	for _, s := range m.Streams {
		mark, err := c.mark(ctx, s.Name)
		if err == nil && mark != "" && mark != m.ID && mark != m.ID+unfinished {
			err = ErrExists
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("restore stream %s: %w", s.Name, err))
		}
		marks[s.Name] = mark
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, s := range m.Streams {
		if marks[s.Name] != m.ID {
			if err := c.restore(ctx, dir, s, m.ID, marks[s.Name] != ""); err != nil {
				return fmt.Errorf("restore stream %s: %w", s.Name, err)
			}
		}
		done(s)
	}
	return nil
}

// divided has the largest numbers of partitions.
var divided = map[string]int{
	contracts.ServiceEnricher: worker.MaxPartitions, contracts.ServiceNotifier: worker.MaxPartitions,
}

// all returns the names of all streams of the services, and of all partitions that they may have.
func all(services []string) []string {
	work, outcomes := names(services, divided)
	return append(work, outcomes...)
}

// mark returns the mark of a restored stream, "?" for a stream without a mark, and "" when there is no stream.
func (c Config) mark(ctx context.Context, name string) (string, error) {
	stream, err := c.stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if mark := stream.CachedInfo().Config.Metadata[restored]; mark != "" {
		return mark, nil
	}
	return "?", nil
}

// stream returns a stream. It repeats the request, because no server of a cluster answers while the stream elects its leader, or
// until a server has noticed that a restore of the stream was cut off.
func (c Config) stream(ctx context.Context, name string) (stream jetstream.Stream, err error) {
	err = jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
		stream, err = c.JS.Stream(ctx, name)
		return err //nolint:wrapcheck // it is wrapped below
	})
	if err != nil {
		return nil, fmt.Errorf("look for the stream: %w", err)
	}
	return stream, nil
}

// remove deletes the rest of an earlier restore.
func (c Config) remove(ctx context.Context, name string) error {
	err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
		return c.JS.DeleteStream(ctx, name)
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) { // not found means that an answer was lost
		return fmt.Errorf("delete the rest of an earlier restore: %w", err)
	}
	return nil
}

// restore restores a stream. again reports whether an earlier restore has left a part of the stream.
func (c Config) restore(ctx context.Context, dir *os.Root, s Stream, id string, again bool) error {
	if again {
		if err := c.remove(ctx, s.Name); err != nil {
			return err
		}
	}
	err := c.send(ctx, dir, s, id)
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.ErrorCode == nameInUse {
		if err = c.clear(ctx, s.Name, id, err); err == nil {
			err = c.send(ctx, dir, s, id)
		}
	}
	if err != nil {
		return err
	}
	stream, err := c.stream(ctx, s.Name)
	if err != nil {
		return err
	}
	for _, subject := range foreign(s.Name, c.Services) {
		err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
			return stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
		})
		if err != nil {
			return fmt.Errorf("leave out %s: %w", subject, err)
		}
	}
	if bucket, ok := strings.CutPrefix(s.Name, "KV_"); ok {
		if err := kvlock.MarkRestored(ctx, c.JS, bucket); err != nil {
			return err
		}
	}
	if stream, err = c.stream(ctx, s.Name); err != nil {
		return err
	}
	config := stream.CachedInfo().Config
	config.Metadata[restored] = id
	err = jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
		_, err := c.JS.UpdateStream(ctx, config)
		return err //nolint:wrapcheck // it is wrapped below
	})
	if err != nil {
		return fmt.Errorf("mark it as finished: %w", err)
	}
	return nil
}

// clear deletes a stream of an earlier restore that the server had not stored yet at the first check. It waits up to Timeout for the
// stream, and then returns inUse.
func (c Config) clear(ctx context.Context, name, id string, inUse error) error {
	for until := time.Now().Add(c.Timeout); ; {
		mark, err := c.mark(ctx, name)
		switch {
		case err != nil:
			return err
		case mark == id+unfinished:
			return c.remove(ctx, name)
		case mark != "":
			return ErrExists
		case time.Now().After(until):
			return inUse
		}
		pause.For(ctx, 10*time.Millisecond)
	}
}

// foreign returns the subjects, of a stream that several services share, that belong to services that are not named.
func foreign(name string, services []string) []string {
	if name != contracts.StreamDead && name != "KV_"+contracts.BucketJobs {
		return nil
	}
	var subjects []string
	named := all(services)
	for _, other := range contracts.Streams(contracts.AssetOptions{Partitions: divided}) {
		switch {
		case slices.Contains(named, other.Name):
		case name == contracts.StreamDead:
			subjects = append(subjects, "dead."+other.Name+".>", "$JS.EVENT.ADVISORY.CONSUMER.*."+other.Name+".>")
		default:
			subjects = append(subjects, "$KV."+contracts.BucketJobs+".*."+other.Name+".>")
		}
	}
	return subjects
}

// send sends the file of a stream to the server, chunk by chunk, and waits until the server has stored it.
func (c Config) send(ctx context.Context, dir *os.Root, s Stream, id string) error {
	config, err := object(bytes.NewReader(s.Config))
	if err != nil {
		return &FileError{File: manifestName, Err: fmt.Errorf("%w: configuration of %s: %w", ErrCorrupt, s.Name, err)}
	}
	if config["name"] != s.Name {
		return &FileError{File: manifestName, Err: fmt.Errorf("%w: configuration of %s: it is that of %v", ErrCorrupt, s.Name, config["name"])}
	}
	if c.Replicas > 0 {
		config["num_replicas"] = c.Replicas
	}
	metadata, _ := config["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata[restored] = id + unfinished
	config["metadata"] = metadata
	var answer struct {
		DeliverSubject string `json:"deliver_subject"`
	}
	if err := c.ask(ctx, "STREAM.RESTORE."+s.Name, map[string]any{"config": config, "state": s.State}, &answer); err != nil {
		return err
	}
	subject, err := c.subject("RESTORE", s.Name, answer.DeliverSubject)
	if err != nil {
		return err
	}
	answers, err := c.subscribe()
	if err != nil {
		return err
	}
	defer answers.Unsubscribe() //nolint:errcheck // it ends with the connection, too
	file, err := dir.Open(s.file())
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer file.Close() //nolint:errcheck // it is only read
	for buf := make([]byte, chunkSize); ; {
		n, err := io.ReadFull(file, buf)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("read: %w", err)
		}
		c.reached(s.Name)
		answer, err := c.part(ctx, subject, answers, buf[:n])
		switch {
		case err != nil:
			return fmt.Errorf("send a part: %w", err)
		case n == 0:
			return decode(answer, &struct{}{})
		case len(answer) > 0:
			if err := decode(answer, &struct{}{}); err != nil {
				return err
			}
			return errors.New("the server answers before it has the last part")
		}
	}
}

// part sends a part and returns the answer. It cannot use a NATS request, because the server answers in the account of the
// stream. A node of a cluster may not know the receiver of the part yet. Then the part has reached no server, and is sent again.
func (c Config) part(ctx context.Context, subject string, answers *nats.Subscription, part []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*c.Timeout) // for the last part the server stores the whole stream
	defer cancel()
	for until := time.Now().Add(c.Timeout); ; {
		if err := c.JS.Conn().PublishRequest(subject, answers.Subject, part); err != nil {
			return nil, err //nolint:wrapcheck // the caller does
		}
		msg, err := answers.NextMsgWithContext(ctx)
		switch {
		case err == nil:
			return msg.Data, nil
		case !errors.Is(err, nats.ErrNoResponders) || time.Now().After(until):
			return nil, err //nolint:wrapcheck // the caller does
		}
		pause.For(ctx, 10*time.Millisecond)
	}
}
