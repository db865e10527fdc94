package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/expediter-io/expediter/pkg/contracts"
)

const (
	// readGap is how many messages of others between two of ours are read along rather than asked around.
	readGap = 4

	// readSpan is how many messages are asked for at once, readBytes how large they may be together but for the last, and
	// readers how many times at a time.
	readSpan  = 512
	readBytes = 4 << 20
	readers   = 8

	// codeNoMessage is JetStream's error for a sequence that holds nothing.
	codeNoMessage = 10037
)

// ref is a published row: where the stream has it, and under which id.
type ref struct {
	id      int64
	eventID string
	lane    int16
	seq     uint64
	due     bool // it is old enough to be let go
}

// missing returns those that the stream has lost: it holds nothing at their place, or something else. What its limits have
// removed is not lost. Any replica may say that one is there; that one is not counts only from the leader.
func (s *session) missing(ctx context.Context, refs []ref) ([]ref, error) {
	parts := runs(slices.SortedFunc(slices.Values(refs), func(a, b ref) int { return cmp.Compare(a.seq, b.seq) }))
	absent := make([][]ref, len(parts))
	group, read := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, run := range parts {
		group.Go(func() (err error) {
			absent[i], err = s.readRun(read, run)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err //nolint:wrapcheck // says what it was
	}
	return s.confirm(ctx, slices.Concat(absent...))
}

// runs splits what is sorted by sequence into what is read at once.
func runs(refs []ref) [][]ref {
	var parts [][]ref
	begin := 0
	for i := 1; i <= len(refs); i++ {
		if i == len(refs) || refs[i].seq-refs[i-1].seq > readGap || refs[i].seq-refs[begin].seq >= readSpan {
			parts = append(parts, refs[begin:i])
			begin = i
		}
	}
	return parts
}

// directGet is a request for messages from a sequence on.
type directGet struct {
	Seq      uint64 `json:"seq"`
	Batch    uint64 `json:"batch,omitempty"` // 0 is one message, and no end behind it
	MaxBytes int    `json:"max_bytes,omitempty"`
}

// readRun returns those of a run that some replica does not show.
func (s *session) readRun(ctx context.Context, run []ref) ([]ref, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	there := make(map[uint64]string, len(run))
	last := run[len(run)-1].seq
	for next := run[0].seq; next <= last; {
		request := directGet{Seq: next}
		if next < last {
			request.Batch, request.MaxBytes = last-next+1, readBytes
		}
		found, end, err := s.readFrom(ctx, request, there)
		if err != nil {
			return nil, err
		}
		if !found {
			break
		}
		next = end + 1
	}
	return slices.DeleteFunc(slices.Clone(run), func(r ref) bool { return there[r.seq] == contracts.DomainEventMsgID(r.eventID) }), nil
}

// readFrom reads one answer into there and returns the last sequence of it. Nothing is found where no replica answers.
func (s *session) readFrom(ctx context.Context, request directGet, there map[uint64]string) (found bool, end uint64, err error) {
	data, err := json.Marshal(request)
	if err != nil {
		return false, 0, fmt.Errorf("outbox: encode a request: %w", err)
	}
	inbox := s.nc.NewInbox()
	sub, err := s.nc.SubscribeSync(inbox)
	if err != nil {
		return false, 0, fmt.Errorf("outbox: read back: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is gone then
	if err := s.nc.PublishRequest("$JS.API.DIRECT.GET."+s.stream, inbox, data); err != nil {
		return false, 0, fmt.Errorf("outbox: read back: %w", err)
	}
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return found, end, nil
		case err != nil:
			return false, 0, fmt.Errorf("outbox: read back: %w", err)
		case msg.Header.Get(jetstream.SequenceHeader) == "": // the end, or that there is nothing
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

// confirm asks the leader for each, and returns those that it does not have either.
func (s *session) confirm(ctx context.Context, refs []ref) ([]ref, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	info, err := s.info(ctx)
	if err != nil {
		return nil, err
	}
	there := make([]bool, len(refs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, r := range refs {
		if r.seq < info.State.FirstSeq {
			there[i] = true // it was removed by the limits of the stream, or by its operator
			continue
		}
		group.Go(func() (err error) {
			there[i], err = s.leaderHas(ctx, r)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err //nolint:wrapcheck // says what it was
	}
	var lost []ref
	for i, r := range refs {
		if !there[i] {
			lost = append(lost, r)
		}
	}
	return lost, nil
}

// storedMessage is the leader's answer to a request for a message.
type storedMessage struct {
	Error *struct {
		Code        int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
	Message struct {
		Header []byte `json:"hdrs"`
	} `json:"message"`
}

func (s *session) leaderHas(ctx context.Context, r ref) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	msg, err := s.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+s.stream, fmt.Appendf(nil, `{"seq":%d}`, r.seq))
	if err != nil {
		return false, fmt.Errorf("outbox: ask the leader of %s for message %d: %w", s.stream, r.seq, err)
	}
	var answer storedMessage
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return false, fmt.Errorf("outbox: message %d of %s: %w", r.seq, s.stream, err)
	}
	switch {
	case answer.Error != nil && answer.Error.Code == codeNoMessage:
		return false, nil
	case answer.Error != nil:
		return false, fmt.Errorf("outbox: message %d of %s: %s", r.seq, s.stream, answer.Error.Description)
	}
	header, err := nats.DecodeHeadersMsg(answer.Message.Header)
	if err != nil {
		return false, nil // a message without headers is not ours
	}
	return header.Get(nats.MsgIdHdr) == contracts.DomainEventMsgID(r.eventID), nil
}

// same returns contracts.ErrEventMismatch when the message that the stream has under the id of a row is of another event.
func (s *session) same(ctx context.Context, sequence uint64, one *row) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	event, err := one.event()
	if err != nil {
		return hopelessError{err}
	}
	mark, err := event.Fingerprint()
	if err != nil {
		return hopelessError{err}
	}
	stream, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return fmt.Errorf("outbox: stream %s: %w", s.stream, err)
	}
	msg, err := stream.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // it was there; it is read back like any other
	}
	if err != nil {
		return fmt.Errorf("outbox: read what the stream has under the id, at %d: %w", sequence, err)
	}
	there, err := contracts.Decode[contracts.Event](msg.Data)
	if err != nil {
		return hopelessError{fmt.Errorf("%w: at %d there is no event at all: %w", contracts.ErrEventMismatch, sequence, err)}
	}
	if known, err := there.Fingerprint(); err != nil || known != mark {
		return hopelessError{fmt.Errorf("%w, at %d", contracts.ErrEventMismatch, sequence)}
	}
	return nil
}
