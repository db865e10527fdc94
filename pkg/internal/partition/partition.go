// Package partition divides the messages of a stream over several streams. It maps subjects and keys to partitions, keeps the division in
// the configurations of the streams, and divides a stream while it is in use.
package partition

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/internal/directget"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
)

// Of returns the partition, from 0, of the jobs of a subject among n: the partition of the tokens behind the first as a key, see [OfKey].
func Of(subject string, n int) int {
	_, rest, _ := strings.Cut(subject, ".")
	return OfKey(rest, n)
}

// OfKey returns the partition, from 0, of a key among n: the jump consistent hash (Lamping and Veach, 2014) of its 64-bit FNV-1a hash.
// It never changes.
func OfKey(key string, n int) int {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(key))
	return jump(sum.Sum64(), n)
}

// jump is the jump consistent hash: from n to n+1 it moves one key in n+1, and none between the former n.
func jump(hash uint64, n int) int {
	at := 0
	for next := 0; next < n; {
		at = next
		hash = hash*2862933555777941757 + 1
		next = int(float64(at+1) * (float64(1<<31) / float64(hash>>33+1)))
	}
	return at
}

// Name returns the name of the stream or consumer of a partition, from the name of the first.
func Name(first string, partition int) string {
	if partition == 0 {
		return first
	}
	return first + "-" + strconv.Itoa(partition)
}

// Entry returns the prefix of the subjects under which messages come into a partition. The stream removes it.
func Entry(stream string, partition int) string {
	return stream + "-" + strconv.Itoa(partition) + "."
}

// Barrier is the subject of a message behind all messages that were stored before the stream was divided.
const Barrier = "partitions-done.$barrier"

// The states of a division.
const (
	Closing = "closing" // the former subjects are refused, and nothing has come into another partition
	Open    = "open"    // jobs of other partitions are left in the first
	Settled = "settled"
)

// Division is the division of a stream into partitions. It is in the metadata of the stream's configuration, so that the subjects under
// which jobs come in change with it.
type Division struct {
	Barrier    uint64 `json:"barrier,omitempty"` // a sequence of the first partition, behind which no job of another partition comes
	Partitions int    `json:"partitions"`
	State      string `json:"state"`
}

const metadata = "expediter-partitions"

// Read reads the division of a stream. A stream without one has one partition.
func Read(cfg jetstream.StreamConfig) (Division, error) {
	d := Division{Partitions: 1, State: Settled}
	if text, divided := cfg.Metadata[metadata]; divided {
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			return d, fmt.Errorf("metadata %s of stream %s: %w", metadata, cfg.Name, err)
		}
	}
	return d, nil
}

// Count returns the number of partitions in the configuration of a stream, 1 for a stream that is not divided.
func Count(cfg jetstream.StreamConfig) int {
	d, err := Read(cfg)
	if err != nil {
		return 1
	}
	return d.Partitions
}

// Is reports whether a configuration is that of a partition of another stream.
func Is(cfg jetstream.StreamConfig) bool {
	d, err := Read(cfg)
	if err != nil || d.Partitions == 1 {
		return false
	}
	if strings.HasPrefix(cfg.Name, "KV_") { // the streams of buckets have no Entry
		return d.Barrier == 0
	}
	return cfg.SubjectTransform != nil && cfg.SubjectTransform.Source == cfg.Name+".>"
}

// First returns the name of the stream that is the first partition of the stream with a configuration: its own, unless it is another one.
func First(cfg jetstream.StreamConfig) string {
	if at := strings.LastIndexByte(cfg.Name, '-'); at > 0 && Is(cfg) { // the metadata of another's stream may say anything
		return cfg.Name[:at]
	}
	return cfg.Name
}

// Home returns the stream that has the jobs of a subject, given the configuration of the stream that had them. It is another stream if
// that one has been divided since.
func Home(cfg jetstream.StreamConfig, subject string) string {
	n := Count(cfg)
	if n == 1 || cfg.SubjectTransform == nil || cfg.SubjectTransform.Source != Entry(cfg.Name, 0)+">" {
		return cfg.Name
	}
	return Name(cfg.Name, Of(subject, n))
}

// IsFinal reports whether the stream is divided, and nothing of another partition is left in the first.
func (d Division) IsFinal() bool { return d.Partitions > 1 && d.State == Settled }

// In returns cfg with the division in its metadata.
func (d Division) In(cfg jetstream.StreamConfig) jetstream.StreamConfig {
	text, _ := json.Marshal(d) //nolint:errcheck,errchkjson // numbers and a word
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = make(map[string]string)
	}
	cfg.Metadata[metadata] = string(text)
	return cfg
}

// Config returns the configuration of a partition, from that of an undivided stream. The first partition also takes the subjects for which
// kept is true, unchanged.
func (d Division) Config(cfg jetstream.StreamConfig, partition int, kept func(subject string) bool) jetstream.StreamConfig {
	entry := Entry(cfg.Name, partition)
	subjects := make([]string, 0, 2*len(cfg.Subjects)+1)
	for _, s := range cfg.Subjects {
		subjects = append(subjects, entry+s)
		if partition == 0 && kept(s) {
			subjects = append(subjects, s)
		}
	}
	if partition == 0 {
		subjects = append(subjects, entry+Barrier)
	}
	cfg.Name, cfg.Subjects = Name(cfg.Name, partition), subjects
	cfg.SubjectTransform = &jetstream.SubjectTransformConfig{Source: entry + ">", Destination: ">"}
	return d.In(cfg)
}

// Left returns the last message of a pattern in a stream, read at a replica that has all messages up to the barrier. No message of the
// pattern is stored after the barrier, so when none is left, none will be. One round trip, as a rule.
func Left(ctx context.Context, nc *nats.Conn, prefix, stream string, barrier uint64, pattern string) (
	last jsapi.Message, left bool, err error,
) {
	const wait = 50 * time.Millisecond
	get, err := directget.New(nc, prefix)
	if err != nil {
		return last, false, err
	}
	defer func() { _ = get.Close() }() //nolint:errcheck // the connection is closed then
	for {
		all, err := get.Last(ctx, stream, []string{Barrier, pattern})
		if err != nil {
			return last, false, fmt.Errorf("read the messages left in stream %s: %w", stream, err)
		}
		behind := true
		for _, m := range all {
			if m.Subject == Barrier {
				behind = m.Sequence < barrier
			} else if m.Sequence > last.Sequence {
				last, left = m, true
			}
		}
		if !behind {
			return last, left, nil
		}
		if last, left = (jsapi.Message{}), false; !backoff.Sleep(ctx, wait) {
			return last, false, fmt.Errorf("no replica of stream %s has its message %s (if it was purged, a call of Grow stores it again): %w",
				stream, Barrier, context.Cause(ctx))
		}
	}
}
