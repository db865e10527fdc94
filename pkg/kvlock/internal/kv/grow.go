package kv

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/directget"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/internal/partition"
	"github.com/expediter-io/expediter/pkg/jsretry"
)

// beyond is the amount by which the revisions of the other partitions are greater than those of the first: more than the first will ever
// have, and small enough for a float64 to be exact.
const beyond = 1 << 40

// StateFenced is the state of a guarded value, which stays in the first partition.
const StateFenced = "fenced"

// Grow divides a bucket, see kvlock.Grow.
func Grow(ctx context.Context, js jetstream.JetStream, bucket string, n int, left func(key string)) error {
	err := grow(ctx, js, bucket, n, left)
	if err != nil && !errors.As(err, new(*PartitionsError)) {
		return fmt.Errorf("kvlock: divide bucket %q: %w", bucket, err)
	}
	return err
}

func grow(ctx context.Context, js jetstream.JetStream, bucket string, n int, left func(key string)) error {
	if n < 2 || n > MaxPartitions {
		return fmt.Errorf("%d partitions: want 2 to %d", n, MaxPartitions)
	}
	info, d, err := growing(ctx, js, bucket, n)
	switch {
	case err != nil:
		return err
	case d.Partitions > 1:
		err = remakeParts(ctx, js, bucket, info, d)
	default:
		d, err = divide(ctx, js, bucket, info, n)
	}
	if err != nil || d.IsFinal() {
		return err
	}
	if err := drain(ctx, js, bucket, d, left); err != nil {
		return err
	}
	return errors.Join(settle(ctx, js, bucket, d), announce(ctx, js, bucket, nil))
}

// growing returns the server's information on a bucket, and the state of its division into n.
func growing(ctx context.Context, js jetstream.JetStream, bucket string, n int) (*jetstream.StreamInfo, partition.Division, error) {
	info, err := infoOf(ctx, js, bucket)
	if err != nil {
		return nil, partition.Division{}, err
	}
	d, err := partition.Read(info.Config)
	switch {
	case err != nil:
	case d.Partitions > 1 && d.Barrier == 0:
		err = errors.New("it is a partition of another: name that one")
	case d.Partitions > 1 && d.Partitions != n:
		err = &PartitionsError{Bucket: bucket, Configured: n, Partitions: d.Partitions}
	case d.Partitions == 1:
		err = errors.Join(CheckStream(bucket, info.Config), isPlain(info.Config, bucket))
	}
	return info, d, err
}

// divide makes the other partitions of a bucket, and then writes the division into the configuration of the first, unless another call has
// done so meanwhile.
func divide(ctx context.Context, js jetstream.JetStream, bucket string, info *jetstream.StreamInfo, n int) (partition.Division, error) {
	for {
		d := partition.Division{Partitions: n, State: partition.Open}
		barrier, failed := makeParts(ctx, js, bucket, info, d)
		now, there, err := growing(ctx, js, bucket, n)
		switch {
		case err != nil:
			return there, errors.Join(err, failed)
		case there.Partitions > 1:
			return there, nil
		case failed != nil:
			return there, failed
		case generationOf(now) > generationOf(info): // the generations of the others have to be greater
			info = now
			continue
		}
		d.Barrier = barrier
		cfg := now.Config
		cfg.Subjects = []string{SubjectPrefix(entryOf(bucket)) + ">", SubjectPrefix(bucket) + LimitPrefix + ">"}
		cfg.SubjectTransform = &jetstream.SubjectTransformConfig{
			Source: SubjectPrefix(entryOf(bucket)) + ">", Destination: SubjectPrefix(bucket) + ">",
		}
		return d, update(ctx, js, d.In(cfg))
	}
}

// settle writes into the configuration of the first that nothing of others is left there. It reads the configuration again, because days
// may have passed.
func settle(ctx context.Context, js jetstream.JetStream, bucket string, d partition.Division) error {
	info, err := infoOf(ctx, js, bucket)
	if err != nil {
		return err
	}
	cfg := info.Config
	switch now, err := partition.Read(cfg); {
	case err != nil:
		return err
	case now.Partitions != d.Partitions || now.Barrier != d.Barrier:
		return errors.New("it was made anew meanwhile, or restored as it was before: call Grow again")
	}
	d.State = partition.Settled
	return update(ctx, js, d.In(cfg))
}

// LimitPrefix begins the keys of limits, which stay in the first partition, under their former subjects.
const LimitPrefix = reservedPrefix + "_limits."

// isPlain returns an error for a bucket whose subjects are not those of StreamConfig.
func isPlain(cfg jetstream.StreamConfig, bucket string) error {
	if cfg.SubjectTransform != nil || len(cfg.Subjects) != 1 || cfg.Subjects[0] != SubjectPrefix(bucket)+">" {
		return fmt.Errorf("stream %s has a subject transform, or other subjects than %q: divide one without", cfg.Name, SubjectPrefix(bucket)+">")
	}
	return nil
}

// makeParts makes the streams of the other partitions as copies of the first, where they are missing, and returns the barrier.
func makeParts(
	ctx context.Context, js jetstream.JetStream, bucket string, info *jetstream.StreamInfo, d partition.Division,
) (barrier uint64, err error) {
	barrier = math.MaxUint64
	for p := 1; p < d.Partitions; p++ {
		name := partition.Name(bucket, p)
		if err := makePart(ctx, js, bucket, name, info, d.Partitions, generationOf(info)+1); err != nil {
			return 0, err
		}
		made, err := infoOf(ctx, js, name)
		if err == nil {
			err = errors.Join(CheckStream(name, made.Config), checkPart(ctx, js, made, info, d.Partitions))
		}
		if err != nil {
			return 0, err
		}
		barrier = min(barrier, made.Config.FirstSeq)
	}
	return barrier, nil
}

// makePart makes the stream of one of n partitions as a copy of the first, unless it is there.
func makePart(
	ctx context.Context, js jetstream.JetStream, bucket, name string, info *jetstream.StreamInfo, n int, generation uint64,
) error {
	part := info.Config
	part.Name, part.Subjects, part.SubjectTransform = StreamName(name), []string{SubjectPrefix(name) + ">"}, nil
	part.RePublish = republishOf(part.RePublish, bucket, name)
	if part.MaxBytes > 0 {
		part.MaxBytes = max(part.MaxBytes/int64(n), 1)
	}
	part.FirstSeq = max(FirstSequence(), info.State.LastSeq) + beyond
	part = partition.Division{Partitions: n, State: partition.Settled}.In(part)
	part.Metadata[generationMetadata] = strconv.FormatUint(generation, 10)
	return CreateStream(ctx, js, fmt.Sprintf("bucket %q", name), part)
}

// remakeParts makes the lost streams of a divided bucket anew. Their generation is the present time. It is greater than their former
// generations, which were earlier times, or one more than the generation of the first, unless a clock was set back.
func remakeParts(ctx context.Context, js jetstream.JetStream, bucket string, info *jetstream.StreamInfo, d partition.Division) error {
	for p := 1; p < d.Partitions; p++ {
		name := partition.Name(bucket, p)
		_, err := infoOf(ctx, js, name)
		if err == nil {
			continue
		}
		now := time.Now()
		generation := uint64(max(0, now.UnixNano()))
		first := generationOf(info)
		switch made := time.Unix(0, int64(first)); { //nolint:gosec // it is a time
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			return err
		case generation <= first+1 || FirstSequence()+beyond <= d.Barrier:
			return fmt.Errorf("stream %s is lost, and tokens of before could be given again: it is %s here, and was %s when the bucket was "+
				"made or marked as restored: set the clock, or restore the stream from a backup", StreamName(name), now.UTC(), made.UTC())
		}
		if err := makePart(ctx, js, bucket, name, info, d.Partitions, generation); err != nil {
			return err
		}
	}
	return nil
}

// checkPart returns an error for an existing partition of another division than that into n, which begins.
func checkPart(ctx context.Context, js jetstream.JetStream, made, first *jetstream.StreamInfo, n int) error {
	name := made.Config.Name
	switch there := partition.Count(made.Config); {
	case there != n:
		return fmt.Errorf("stream %s was made for %d partitions: divide into that many, or delete it if nobody does", name, there)
	case made.State.LastSeq >= made.Config.FirstSeq:
		return fmt.Errorf("stream %s has entries already: if the bucket has just been divided by another call, call Grow again; only if "+
			"they are of a bucket that was deleted, delete it too", name)
	case made.Config.FirstSeq <= first.State.LastSeq+beyond/2:
		return fmt.Errorf("stream %s begins with %d, which the first may reach: delete it, it is made anew", name, made.Config.FirstSeq)
	case generationOf(made) <= generationOf(first): // which was restored since
		_, err := markGeneration(ctx, js, made, generationOf(first))
		return err
	}
	return nil
}

// infoOf returns the server's information on the stream of a bucket. StreamInfo would go on until the deadline, which operators seldom set.
func infoOf(ctx context.Context, js jetstream.JetStream, bucket string) (info *jetstream.StreamInfo, err error) {
	err = jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
		stream, err := js.Stream(ctx, StreamName(bucket))
		if err == nil {
			info = stream.CachedInfo()
		}
		return err //nolint:wrapcheck // below
	})
	if last := js.Conn().LastError(); errors.Is(err, jsretry.ErrNotReady) && errors.Is(last, nats.ErrPermissionViolation) {
		err = fmt.Errorf("%w (the connection's last error: %w)", err, last)
	}
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", StreamName(bucket), err)
	}
	return info, nil
}

func update(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) error {
	err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
		_, err := js.UpdateStream(ctx, cfg)
		return err //nolint:wrapcheck // below
	})
	if err != nil {
		return fmt.Errorf("update stream %s: %w", cfg.Name, err)
	}
	return nil
}

// announce pushes to all programs that the division has changed, and stores the sequence of that push in at, if at is not nil.
func announce(ctx context.Context, js jetstream.JetStream, bucket string, at *uint64) error {
	api := jsapi.New(js, SendTimeout)
	err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
		m := nats.NewMsg(api.Target(SubjectPrefix(entryOf(bucket))) + dividedKey)
		m.Header.Set(headerOperation, operationPurge) // it is nothing to list
		sequence, err := api.Publish(ctx, StreamName(bucket), m)
		if at != nil {
			*at = sequence
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", dividedKey, err)
	}
	return nil
}

// drain waits until nothing of another partition is left in the first. It reads the stream twice, the second time at a replica that has
// all that was written before. An entry that both reads miss is gone everywhere, since the second would show a renewal that the first
// missed.
func drain(ctx context.Context, js jetstream.JetStream, bucket string, d partition.Division, left func(key string)) error {
	get, err := directget.New(js.Conn(), jsapi.Prefix(js))
	if err != nil {
		return err
	}
	defer func() { _ = get.Close() }() //nolint:errcheck // the connection is closed then
	prefix := SubjectPrefix(bucket)
	keyOf := func(m jsapi.Message) string {
		e := Entry{Key: strings.TrimPrefix(m.Subject, prefix), Revision: m.Sequence, Header: m.Header, Data: m.Data}
		if strings.HasPrefix(e.Key, reservedPrefix) || e.Purged() || e.Deleted() || e.Header.Get(HeaderState) == StateFenced {
			return ""
		}
		return "." + e.Key
	}
	note := func(subject string, _ uint64) {
		if left != nil {
			left(strings.TrimPrefix(subject, prefix))
		}
	}
	for range 2 {
		look := d
		if err := announce(ctx, js, bucket, &look.Barrier); err != nil {
			return err
		}
		if err := look.Drain(ctx, get, StreamName(bucket), keyOf, note); err != nil {
			return err
		}
	}
	return nil
}
