package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/internal/directget"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

// MaxPartitions is the greatest Config.Partitions.
const MaxPartitions = 64

// PartitionOf returns the partition, from 0, of the jobs of a subject among n. It is that of the tokens behind the first, which are
// the key of a unique job: the jump consistent hash (Lamping and Veach, 2014) of their 64-bit FNV-1a hash. It never changes.
func PartitionOf(subject string, n int) int {
	_, rest, _ := strings.Cut(subject, ".")
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(rest))
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

// PartitionStream returns the name of the stream of a partition: that of the first is the stream itself, "JOBS", of the next "JOBS-1".
func PartitionStream(stream string, partition int) string {
	if partition == 0 {
		return stream
	}
	return stream + "-" + strconv.Itoa(partition)
}

// PartitionConsumer returns the name of the consumer of a partition, for one of the first.
func PartitionConsumer(consumer string, partition int) string {
	return PartitionStream(consumer, partition)
}

// entryOf is what subjects begin with under which messages come into a partition. The stream takes it off.
func entryOf(stream string, partition int) string {
	return stream + "-" + strconv.Itoa(partition) + "."
}

// barrierSubject is that of a message behind all that was stored before the stream was divided.
const barrierSubject = "partitions-done.$barrier"

// The states of a division.
const (
	divisionClosing = "closing" // the former subjects are refused, and nothing has come into another partition
	divisionOpen    = "open"    // jobs of other partitions are left in the first
	divisionSettled = "settled"
)

// division says into how many partitions a stream is divided. It lies in the metadata of the stream's configuration, so that the
// subjects under which jobs come in change with it.
type division struct {
	Barrier    uint64 `json:"barrier,omitempty"` // sequence in the first partition: behind it comes no job of another
	Partitions int    `json:"partitions"`
	State      string `json:"state"`
}

const metaDivision = "expediter-partitions"

// divisionOf reads the division of a stream, which has one partition without.
func divisionOf(cfg jetstream.StreamConfig) (division, error) {
	d := division{Partitions: 1, State: divisionSettled}
	if text, divided := cfg.Metadata[metaDivision]; divided {
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			return d, fmt.Errorf("worker: metadata %s of stream %s: %w", metaDivision, cfg.Name, err)
		}
	}
	return d, nil
}

// Partitions returns into how many partitions the configuration of a stream divides its jobs: 1 unless [Client.Grow] has done so.
func Partitions(cfg jetstream.StreamConfig) int {
	d, err := divisionOf(cfg)
	if err != nil {
		return 1
	}
	return d.Partitions
}

// PartitionsOf returns the stream of which another is a partition, itself if it is none, and the number of its partitions. One round
// trip. When the stream cannot be read it is taken for one that is not divided: the next request says why.
func PartitionsOf(ctx context.Context, js jetstream.JetStream, stream string) (first string, partitions int) {
	found, err := js.Stream(ctx, stream)
	if err != nil {
		return stream, 1
	}
	cfg := found.CachedInfo().Config
	if IsPartition(cfg) {
		stream = stream[:strings.LastIndexByte(stream, '-')]
	}
	return stream, Partitions(cfg)
}

// IsPartition reports whether the configuration of a stream is that of a partition of another.
func IsPartition(cfg jetstream.StreamConfig) bool {
	return Partitions(cfg) > 1 && cfg.SubjectTransform != nil && cfg.SubjectTransform.Source == cfg.Name+".>"
}

// HomeOf returns the stream that has the jobs of a subject, for the stream that one was in, by its configuration: another than that
// where the stream has been divided since.
func HomeOf(cfg jetstream.StreamConfig, subject string) string {
	d, err := divisionOf(cfg)
	if err != nil || d.Partitions == 1 || cfg.SubjectTransform == nil || cfg.SubjectTransform.Source != entryOf(cfg.Name, 0)+">" {
		return cfg.Name
	}
	return PartitionStream(cfg.Name, PartitionOf(subject, d.Partitions))
}

// againAfter is how old what an insert knows of a division may be: one that has begun since refuses the job.
const againAfter = 10 * time.Second

// divided returns the division of the stream: as it is known when that is final, or was read less than maxAge ago. While a division
// begins, which takes seconds, it waits.
func (c *Client) divided(ctx context.Context, maxAge time.Duration) (division, error) {
	known := c.division.Load()
	if known != nil && (known.Partitions > 1 && known.State == divisionSettled || time.Since(known.read) < maxAge) {
		return known.division, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer cancel()
	for {
		d, err := readDivision(ctx, c.api, c.cfg.Stream)
		switch {
		case err != nil && (isFinal(err) || !isPassing(err)):
			return d, err
		case err != nil:
		case d.Partitions != 1 && d.Partitions != len(c.parts):
			return d, driftOfPartitions(c.cfg.Stream, d, "ClientConfig", len(c.parts))
		case d.State != divisionClosing:
			c.division.Store(&knownDivision{division: d, read: time.Now()})
			return d, nil
		}
		if !backoff.Sleep(ctx, takersAgain) {
			if err == nil {
				err = fmt.Errorf("worker: stream %s is being divided: %w", c.cfg.Stream, context.Cause(ctx))
			}
			return d, err
		}
	}
}

func driftOfPartitions(stream string, d division, config string, n int) error {
	return &DriftError{Asset: "stream " + stream, Differences: []string{
		fmt.Sprintf("it has %d partitions, %s.Partitions is %d", d.Partitions, config, n),
	}}
}

type knownDivision struct {
	division

	read time.Time
}

func readDivision(ctx context.Context, api jsapi.Client, stream string) (division, error) {
	var info jetstream.StreamInfo
	switch err := api.Ask(ctx, "STREAM.INFO."+stream, nil, &info); {
	case jsapi.IsNoStream(err):
		return division{}, &MissingError{Asset: "stream " + stream, Cause: err}
	case err != nil:
		return division{}, fmt.Errorf("worker: look up stream %s: %w", stream, err)
	}
	return divisionOf(info.Config)
}

// at returns the client of the partition that has the job of a key, or would get it.
func (c *Client) at(ctx context.Context, k key.Key) (*Client, error) {
	if c.parts == nil {
		return c, nil
	}
	d, err := c.divided(ctx, 0)
	if err != nil || d.Partitions == 1 {
		return c, err
	}
	p := PartitionOf(k.Job(), d.Partitions)
	if p != 0 && d.State == divisionOpen {
		if _, left, err := leftIn(ctx, c.nc, c.api, c.cfg.Stream, d.Barrier, k.Any()); err != nil || left {
			return c.parts[0], err
		}
	}
	return c.parts[p], nil
}

// insertPart inserts a job into its partition. A stream that is divided meanwhile refuses it, so that it goes to another.
func (c *Client) insertPart(ctx context.Context, p *plan) (Receipt, error) {
	for {
		d, err := c.divided(ctx, againAfter)
		if err != nil {
			return Receipt{}, err
		}
		at := c
		if d.Partitions > 1 {
			n := PartitionOf(p.key.Job(), d.Partitions)
			if at = c.parts[n]; n != 0 && d.State == divisionOpen && (p.unique || p.unrecorded) {
				if r, held, err := c.leftHolder(ctx, p, d); err != nil || held {
					return r, err
				}
			}
		}
		r, err := at.insertHere(ctx, p)
		if d.Partitions > 1 || p.unknown || !isFinal(err) {
			return r, err
		}
		if seen := c.stream.Load(); seen == nil || Partitions(*seen) == 1 {
			return r, err
		}
		c.division.Store(nil)
	}
}

// insertAgain finds out the outcome of a publication to a partition that failed, or inserts a job whose partition is nil.
func (c *Client) insertAgain(ctx context.Context, at *Client, p *plan, err error) (Receipt, error) {
	if at != nil {
		r, err := at.settle(ctx, p, err)
		if c.parts == nil || at != c || p.unknown || !isFinal(err) {
			return r, err
		}
	}
	return c.insertPart(ctx, p)
}

// leftHolder returns the receipt of a duplicate when a job in the first partition holds the key of one for another.
func (c *Client) leftHolder(ctx context.Context, p *plan, d division) (r Receipt, held bool, err error) {
	pattern := p.key.Any()
	if p.unrecorded {
		pattern = p.key.Job()
	}
	last, left, err := leftIn(ctx, c.nc, c.api, c.cfg.Stream, d.Barrier, pattern)
	switch {
	case err != nil || !left:
		return r, false, err
	case p.unrecorded:
		return Receipt{Duplicate: true, Subject: p.key.Job()}, true, nil
	}
	former := *p // which is not published there
	former.header, former.replace = maps.Clone(p.header), false
	if r, err = c.parts[0].resolve(ctx, &former, last); errors.Is(err, errFreed) {
		return r, false, nil
	}
	return r, err == nil, err
}

// leftIn returns the last message of a pattern in a stream, as a replica has it that has all up to the barrier. Behind that comes
// nothing new, so what is not there has gone for good. One round trip, as a rule.
func leftIn(ctx context.Context, nc *nats.Conn, api jsapi.Client, stream string, barrier uint64, pattern string) (
	last jsapi.Message, left bool, err error,
) {
	get, err := directget.New(nc, api.Prefix)
	if err != nil {
		return last, false, fmt.Errorf("worker: %w", err)
	}
	defer func() { _ = get.Close() }() //nolint:errcheck // the connection is closed then
	for {
		all, err := get.Last(ctx, stream, []string{barrierSubject, pattern})
		if err != nil {
			return last, false, fmt.Errorf("worker: read what is left in stream %s: %w", stream, err)
		}
		behind := true
		for _, m := range all {
			if m.Subject == barrierSubject {
				behind = m.Sequence < barrier
			} else if m.Sequence > last.Sequence {
				last, left = m, true
			}
		}
		if !behind {
			return last, left, nil
		}
		if last, left = (jsapi.Message{}), false; !backoff.Sleep(ctx, firstWait) {
			return last, false, context.Cause(ctx)
		}
	}
}

// known returns the clients of the partitions that there are now.
func (c *Client) known(ctx context.Context) ([]*Client, error) {
	if c.parts == nil {
		return []*Client{c}, nil
	}
	d, err := c.divided(ctx, 0)
	if err != nil || d.Partitions == 1 {
		return []*Client{c}, err
	}
	return c.parts, nil
}

// first returns the client of the first partition, which has the schedules that repeat.
func (c *Client) first(ctx context.Context) (*Client, error) {
	all, err := c.known(ctx)
	return all[0], err
}

// of returns the client of a partition by its stream.
func (c *Client) of(ctx context.Context, stream string) (*Client, error) {
	all, err := c.known(ctx)
	if at := slices.IndexFunc(all, func(p *Client) bool { return p.cfg.Stream == stream }); at >= 0 {
		return all[at], err
	}
	return all[0], err
}

// has reports whether a stream is the client's, or one of its partitions.
func (c *Client) has(stream string) bool {
	return stream == c.cfg.Stream || slices.ContainsFunc(c.parts, func(p *Client) bool { return p.cfg.Stream == stream })
}

// targetOf returns the subject of the jobs of a schedule.
func (c *Client) targetOf(header nats.Header) string {
	return strings.TrimPrefix(header.Get(headerScheduleTarget), c.entry)
}

// followDivision finds partitions that were made since the worker started, and learns how far a division is. It costs a round trip at
// each heartbeat until that has settled, and one for each consumer that is missing.
func (w *Worker) followDivision(ctx context.Context) {
	if known := w.division.Load(); w.cfg.Partitions == 1 || known != nil && known.Partitions > 1 && known.State == divisionSettled {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	if err := w.readDivision(ctx); err != nil {
		w.log.WarnContext(ctx, EventLost, "error", err)
	}
	for _, c := range w.classes {
		if c.created.Load() != 0 {
			continue
		}
		if err := w.prepareConsumer(ctx, c, true); err != nil {
			w.log.WarnContext(ctx, EventLost, "error", err)
		} else if c.created.Load() != 0 {
			w.puller.Wake()
		}
	}
}

// readDivision learns how far a division is.
func (w *Worker) readDivision(ctx context.Context) error {
	d, err := readDivision(ctx, w.api, w.cfg.Stream)
	if err == nil && d.Partitions > w.cfg.Partitions {
		err = driftOfPartitions(w.cfg.Stream, d, "Config", w.cfg.Partitions)
	}
	if err == nil {
		w.division.Store(&d)
	}
	return err
}

// isLeft reports whether jobs of the subject of an ordered one, which lies in another partition, are left in the first: those come
// before it. Once the division is known to have settled that costs nothing, until then a round trip.
func (w *Worker) isLeft(d *delivery) (bool, error) {
	ctx, cancel := context.WithTimeout(w.settling, w.cfg.RequestTimeout)
	defer cancel()
	known := w.division.Load()
	if known.Barrier == 0 {
		if err := w.readDivision(ctx); err != nil {
			return false, fmt.Errorf("%w: %w", errRecordUnknown, err)
		}
		known = w.division.Load()
	}
	if known.State == divisionSettled {
		return false, nil
	}
	_, left, err := leftIn(ctx, w.nc, w.api, w.cfg.Stream, known.Barrier, d.info.Subject)
	if err != nil {
		err = fmt.Errorf("%w: %w", errRecordUnknown, err)
	}
	return left, err
}
