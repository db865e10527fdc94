package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/internal/partition"
	"github.com/expediter-io/expediter/pkg/jsretry"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

// MaxPartitions is the greatest Config.Partitions.
const MaxPartitions = 64

// PartitionsOf returns the first partition of a stream's division, and the number of partitions. For a stream that is not divided, does
// not exist, or has an invalid name, these are the stream itself and 1. One round trip; while there is no answer it repeats its request,
// for up to ten seconds.
func PartitionsOf(ctx context.Context, js jetstream.JetStream, stream string) (first string, partitions int, err error) {
	const wait = 10 * time.Second // an election lasts up to nine
	var found jetstream.Stream
	err = jsretry.Do(ctx, wait, func(ctx context.Context) (err error) {
		found, err = js.Stream(ctx, stream)
		return err //nolint:wrapcheck // see below
	})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrInvalidStreamName):
		return stream, 1, nil
	case err != nil:
		return stream, 0, fmt.Errorf("worker: look up the partitions of stream %s: %w", stream, err)
	}
	cfg := found.CachedInfo().Config
	return partition.First(cfg), partition.Count(cfg), nil
}

// IsPartition reports whether the configuration of a stream is that of a partition of another.
func IsPartition(cfg jetstream.StreamConfig) bool { return partition.Is(cfg) }

// WholeStream is a stream with the messages, bytes and consumers of all its partitions.
type WholeStream struct {
	*jetstream.StreamInfo

	// Partitions is the number of streams that the figures are of, 1 for a stream that is not divided.
	Partitions int
}

// WholeStreams adds the figures of partitions to those of the first, in the order of the names. The time of the oldest message is that of
// the oldest in any partition. A partition whose first is not among the streams stands for itself.
func WholeStreams(streams []*jetstream.StreamInfo) []WholeStream {
	var all []WholeStream
	at := map[string]int{} // by name
	for _, info := range slices.SortedFunc(slices.Values(streams), func(a, b *jetstream.StreamInfo) int {
		return strings.Compare(a.Config.Name, b.Config.Name)
	}) {
		i, ok := at[partition.First(info.Config)]
		if !ok {
			alone := *info
			at[info.Config.Name] = len(all)
			all = append(all, WholeStream{StreamInfo: &alone, Partitions: 1})
			continue
		}
		sum, part := &all[i].State, info.State
		if part.Msgs > 0 && (sum.Msgs == 0 || part.FirstTime.Before(sum.FirstTime)) {
			sum.FirstTime = part.FirstTime
		}
		sum.Msgs, sum.Bytes, sum.Consumers = sum.Msgs+part.Msgs, sum.Bytes+part.Bytes, sum.Consumers+part.Consumers
		all[i].Partitions++
	}
	return all
}

const (
	// againAfter is the largest age of the knowledge of the division that an insert uses: a stream whose division has begun since refuses the
	// job.
	againAfter = 10 * time.Second

	// closingFor is the time that servers have to learn that a stream refuses its former subjects, before another stream takes its jobs.
	closingFor = 2 * time.Second
)

// divided returns the division of the stream. It reads the division unless the known one is final, or was read less than maxAge ago. While
// a division begins, which takes seconds, it waits.
func (c *Client) divided(ctx context.Context, maxAge time.Duration) (partition.Division, error) {
	known := c.division.Load()
	if known != nil && (known.IsFinal() || time.Since(known.read) < maxAge) {
		return known.Division, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer cancel()
	closed := false
	for {
		d, err := readDivision(ctx, c.api, c.cfg.Stream)
		switch {
		case err != nil && (isFinal(err) || !isPassing(err) && !jsretry.Transient(err)):
			return d, err
		case err != nil:
		case d.Partitions != 1 && d.Partitions != len(c.parts):
			return d, driftOfPartitions(c.cfg.Stream, d, "ClientConfig", len(c.parts))
		case d.State != partition.Closing:
			c.division.Store(&knownDivision{Division: d, read: time.Now()})
			return d, nil
		default:
			closed = true
		}
		if !backoff.Sleep(ctx, takersAgain) {
			if closed {
				err = fmt.Errorf("worker: stream %s is being divided, and takes no jobs until that ends (if no call of Grow is running, call it "+
					"again): %w", c.cfg.Stream, cmp.Or(err, context.Cause(ctx)))
			}
			return d, err
		}
	}
}

func driftOfPartitions(stream string, d partition.Division, config string, n int) error {
	return &DriftError{Asset: "stream " + stream, Differences: []string{
		fmt.Sprintf("it has %d partitions, %s.Partitions is %d", d.Partitions, config, n),
	}}
}

type knownDivision struct {
	partition.Division

	read time.Time
}

func readDivision(ctx context.Context, api jsapi.Client, stream string) (partition.Division, error) {
	var info jetstream.StreamInfo
	switch err := api.Ask(ctx, "STREAM.INFO."+stream, nil, &info); {
	case jsapi.IsNoStream(err):
		return partition.Division{}, &MissingError{Asset: "stream " + stream, Cause: err}
	case err != nil:
		return partition.Division{}, fmt.Errorf("worker: look up stream %s: %w", stream, err)
	}
	return partition.Read(info.Config)
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
	p := partition.Of(k.Job(), d.Partitions)
	if p != 0 && d.State == partition.Open {
		if _, left, err := c.left(ctx, d, k.Any()); err != nil || left {
			return c.parts[0], err
		}
	}
	return c.parts[p], nil
}

// atKey returns a key, and the client of the partition that has its job. doing is for the error of an invalid key.
func (c *Client) atKey(ctx context.Context, doing, subject, uniqueKey string) (at *Client, k key.Key, err error) {
	if k, err = keyOf(subject, &Unique{Key: uniqueKey}); err != nil {
		return nil, k, fmt.Errorf("worker: %s: %w", doing, err)
	}
	at, err = c.at(ctx, k)
	return at, k, err
}

// insertPart inserts a job into its partition. If the stream is divided meanwhile it refuses the job, which then goes to another
// partition.
func (c *Client) insertPart(ctx context.Context, p *plan) (Receipt, error) {
	for {
		d, err := c.divided(ctx, againAfter)
		if err != nil {
			return Receipt{}, err
		}
		at := c
		if d.Partitions > 1 {
			n := partition.Of(p.key.Job(), d.Partitions)
			if at = c.parts[n]; n != 0 && d.State == partition.Open && (p.unique || p.unrecorded) {
				if r, held, err := c.leftHolder(ctx, p, d); err != nil || held {
					return r, err
				}
			}
		}
		r, err := at.insertHere(ctx, p)
		if d.Partitions > 1 || p.unknown || !isFinal(err) {
			return r, err
		}
		if seen := c.stream.Load(); seen == nil || partition.Count(*seen) == 1 {
			return r, err
		}
		c.division.Store(nil)
	}
}

// insertAgain finds out the outcome of a failed publication to a partition, or inserts a job whose partition is nil.
func (c *Client) insertAgain(ctx context.Context, at *Client, p *plan, err error) (Receipt, error) {
	if at != nil {
		r, err := at.settle(ctx, p, err)
		if c.parts == nil || at != c || p.unknown || !isFinal(err) {
			return r, err
		}
	}
	return c.insertPart(ctx, p)
}

// leftHolder returns the receipt of a duplicate when a job in the first partition holds the key of a job for another partition.
func (c *Client) leftHolder(ctx context.Context, p *plan, d partition.Division) (r Receipt, held bool, err error) {
	pattern := p.key.Any()
	if p.unrecorded {
		pattern = p.key.Job()
	}
	last, left, err := c.left(ctx, d, pattern)
	switch {
	case err != nil || !left:
		return r, false, err
	case p.unrecorded:
		return Receipt{Duplicate: true, Subject: p.key.Job()}, true, nil
	}
	former := *p // a copy: the job is not published there
	former.header, former.replace = maps.Clone(p.header), false
	if r, err = c.parts[0].resolve(ctx, &former, last); errors.Is(err, errFreed) {
		return r, false, nil
	}
	return r, err == nil, err
}

// left returns the last message in the first partition that matches a pattern of another partition.
func (c *Client) left(ctx context.Context, d partition.Division, pattern string) (last jsapi.Message, left bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer cancel()
	return partition.Left(ctx, c.nc, c.api.Prefix, c.cfg.Stream, d.Barrier, pattern)
}

// known returns the clients of the present partitions.
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

// has reports whether a stream is the client's stream, or one of its partitions.
func (c *Client) has(stream string) bool {
	return stream == c.cfg.Stream || slices.ContainsFunc(c.parts, func(p *Client) bool { return p.cfg.Stream == stream })
}

// targetOf returns the subject of the jobs of a schedule.
func (c *Client) targetOf(header nats.Header) string {
	return strings.TrimPrefix(header.Get(headerScheduleTarget), c.entry)
}

// followDivision finds partitions that were made since the worker started, and reads the state of a division. It costs a round trip at
// each heartbeat until the division has settled, and one for each missing consumer.
func (w *Worker) followDivision(ctx context.Context) {
	if known := w.division.Load(); w.cfg.Partitions == 1 || known != nil && known.IsFinal() {
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

// readDivision reads the state of a division.
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

// isLeft reports whether the first partition still has jobs of the subject of an ordered job of another partition: those jobs come first.
// One round trip until the division is known to have settled, then none.
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
	if known.State == partition.Settled {
		return false, nil
	}
	_, left, err := partition.Left(ctx, w.nc, w.api.Prefix, w.cfg.Stream, known.Barrier, d.info.Subject)
	if err != nil {
		err = fmt.Errorf("%w: %w", errRecordUnknown, err)
	}
	return left, err
}
