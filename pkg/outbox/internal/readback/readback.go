// Package readback looks for published rows in their stream.
package readback

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
)

const (
	// readGap is the largest number of foreign messages between two of ours that one request also reads; a larger gap splits the request in
	// two.
	readGap = 4

	// readSpan bounds the sequences of one request, readBytes the size of its messages without the last, and readers the requests at a time.
	readSpan  = 512
	readBytes = 4 << 20
	readers   = 8
)

// Ref is a published row: its columns, and the sequence of its message in the stream.
type Ref struct {
	ID      int64
	EventID string
	Lane    int16
	Seq     uint64
}

// Reader reads one stream.
type Reader struct {
	JS      jetstream.JetStream
	NC      *nats.Conn // the connection of JS
	Stream  string
	Timeout time.Duration // of each request
}

// Info asks the leader of the stream. One round trip.
func (r Reader) Info(ctx context.Context) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	stream, err := r.JS.Stream(ctx, r.Stream)
	if err != nil {
		return nil, fmt.Errorf("outbox: stream %s: %w", r.Stream, err)
	}
	return stream.CachedInfo(), nil
}

// Missing returns the rows that the stream has lost: it has no message at their sequence, or another message. Messages that the limits of
// the stream removed are not lost. An answer of any replica counts for a present message; only the leader's counts for a missing one.
func (r Reader) Missing(ctx context.Context, refs []Ref) ([]Ref, error) {
	parts := runs(slices.SortedFunc(slices.Values(refs), func(a, b Ref) int { return cmp.Compare(a.Seq, b.Seq) }))
	absent := make([][]Ref, len(parts))
	group, read := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, run := range parts {
		group.Go(func() (err error) {
			absent[i], err = r.readRun(read, run)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err //nolint:wrapcheck // names the failed request
	}
	return r.confirm(ctx, slices.Concat(absent...))
}

// runs splits refs, sorted by sequence, into runs that one request reads.
func runs(refs []Ref) [][]Ref {
	var parts [][]Ref
	begin := 0
	for i := 1; i <= len(refs); i++ {
		if i == len(refs) || refs[i].Seq-refs[i-1].Seq > readGap || refs[i].Seq-refs[begin].Seq >= readSpan {
			parts = append(parts, refs[begin:i])
			begin = i
		}
	}
	return parts
}

// directGet is a request for messages from a sequence on.
type directGet struct {
	Seq      uint64 `json:"seq"`
	Batch    uint64 `json:"batch,omitempty"` // 0 is one message, without an end behind it
	MaxBytes int    `json:"max_bytes,omitempty"`
}

// readRun returns the refs of a run whose messages the answering replica does not have.
func (r Reader) readRun(ctx context.Context, run []Ref) ([]Ref, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	there := make(map[uint64]string, len(run))
	last := run[len(run)-1].Seq
	for next := run[0].Seq; next <= last; {
		request := directGet{Seq: next}
		if next < last {
			request.Batch, request.MaxBytes = last-next+1, readBytes
		}
		found, end, err := r.readFrom(ctx, request, there)
		if err != nil {
			return nil, err
		}
		if !found {
			break
		}
		next = end + 1
	}
	return slices.DeleteFunc(slices.Clone(run), func(ref Ref) bool {
		return there[ref.Seq] == contracts.DomainEventMsgID(ref.EventID)
	}), nil
}

// readFrom reads one answer into there, a Nats-Msg-Id for each sequence, and returns its last sequence. It finds nothing where no replica
// answers.
func (r Reader) readFrom(ctx context.Context, request directGet, there map[uint64]string) (found bool, end uint64, err error) {
	data, err := json.Marshal(request)
	if err != nil {
		return false, 0, fmt.Errorf("outbox: encode a request: %w", err)
	}
	inbox := r.NC.NewInbox()
	sub, err := r.NC.SubscribeSync(inbox)
	if err != nil {
		return false, 0, fmt.Errorf("outbox: read back: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed then
	if err := r.NC.PublishRequest(jsapi.Prefix(r.JS)+"DIRECT.GET."+r.Stream, inbox, data); err != nil {
		return false, 0, fmt.Errorf("outbox: read back: %w", err)
	}
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return found, end, nil
		case err != nil:
			return false, 0, fmt.Errorf("outbox: read back: %w", err)
		case msg.Header.Get(jetstream.SequenceHeader) == "": // the end of the batch, or an error
			return found, end, nil
		}
		seq, err := strconv.ParseUint(msg.Header.Get(jetstream.SequenceHeader), 10, 64)
		if err != nil {
			return false, 0, fmt.Errorf("outbox: read back: sequence of a message: %w", err)
		}
		there[seq] = msg.Header.Get(nats.MsgIdHdr)
		found, end = true, seq
		if request.Batch == 0 {
			return found, end, nil
		}
	}
}

// confirm asks the leader for each message, and returns the refs that the leader does not have either.
func (r Reader) confirm(ctx context.Context, refs []Ref) ([]Ref, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	info, err := r.Info(ctx)
	if err != nil {
		return nil, err
	}
	there := make([]bool, len(refs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, ref := range refs {
		if ref.Seq < info.State.FirstSeq {
			there[i] = true // the limits of the stream, or its operator, removed the message
			continue
		}
		group.Go(func() (err error) {
			there[i], err = r.leaderHas(ctx, ref)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err //nolint:wrapcheck // names the failed request
	}
	var lost []Ref
	for i, ref := range refs {
		if !there[i] {
			lost = append(lost, ref)
		}
	}
	return lost, nil
}

// leaderHas reports whether the leader has the row's message at its sequence.
func (r Reader) leaderHas(ctx context.Context, ref Ref) (bool, error) {
	found, ok, err := jsapi.New(r.JS, r.Timeout).Get(ctx, r.Stream, jsapi.Query{Sequence: ref.Seq})
	if err != nil {
		return false, fmt.Errorf("outbox: message %d of %s: %w", ref.Seq, r.Stream, err)
	}
	return ok && found.Header.Get(nats.MsgIdHdr) == contracts.DomainEventMsgID(ref.EventID), nil
}
