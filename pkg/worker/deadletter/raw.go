package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The server's error codes that matter here.
const (
	codeNoMessage         = 10037
	codeStreamNotFound    = 10059
	codeSubjectFull       = 10077 // the stream takes no more messages of this subject
	codeWrongLast         = 10071
	codeWrongLastConstant = 10164 // in a cluster, while another write to the subject is under way
)

// raw is a message as it lies in a stream.
type raw struct {
	data     []byte
	header   nats.Header
	sequence uint64
	storedAt time.Time
	subject  string
}

// query selects one message of a stream.
type query struct {
	LastBySubject string `json:"last_by_subj,omitempty"`
	NextBySubject string `json:"next_by_subj,omitempty"`
	Sequence      uint64 `json:"seq,omitempty"`
}

// get reads a message at the stream's leader: what a replica says may be of the past. It
// returns nil when there is none. One round trip.
func (s *Store) get(ctx context.Context, stream string, q query) (*raw, error) {
	var answer struct {
		Message struct {
			Data    []byte    `json:"data"`
			Header  []byte    `json:"hdrs"`
			Seq     uint64    `json:"seq"`
			Subject string    `json:"subject"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}

	err := s.request(ctx, "STREAM.MSG.GET."+stream, q, &answer)
	if isCode(err, codeNoMessage) {
		return nil, nil //nolint:nilnil // absence is an answer
	}

	if err != nil {
		return nil, fmt.Errorf("deadletter: read from stream %s: %w", stream, err)
	}

	found := &raw{
		data: answer.Message.Data, sequence: answer.Message.Seq, storedAt: answer.Message.Time, subject: answer.Message.Subject,
	}

	if len(answer.Message.Header) > 0 {
		if found.header, err = nats.DecodeHeadersMsg(answer.Message.Header); err != nil {
			return nil, fmt.Errorf("deadletter: headers of message %d of stream %s: %w", found.sequence, stream, err)
		}
	}

	return found, nil
}

// remove removes messages of a stream. It is nil when they are not there.
func (s *Store) remove(ctx context.Context, stream string, sequences ...uint64) error {
	for _, seq := range sequences {
		err := s.request(ctx, "STREAM.MSG.DELETE."+stream, map[string]any{"seq": seq, "no_erase": true}, nil)
		if err == nil {
			continue
		}

		// The answer about a message that is not there has several codes and texts.
		if found, failed := s.get(ctx, stream, query{Sequence: seq}); failed != nil || found != nil {
			return fmt.Errorf("deadletter: remove message %d from stream %s: %w", seq, stream, err)
		}
	}

	return nil
}

// lastSequence is the sequence of the latest message of a stream, present or not.
func (s *Store) lastSequence(ctx context.Context, stream string) (uint64, error) {
	info, err := s.info(ctx, stream)

	return info.State.LastSeq, err
}

func (s *Store) info(ctx context.Context, stream string) (jetstream.StreamInfo, error) {
	var info jetstream.StreamInfo

	err := s.request(ctx, "STREAM.INFO."+stream, nil, &info)

	switch {
	case isCode(err, codeStreamNotFound):
		return info, fmt.Errorf("%w: %s", ErrNoStream, stream)
	case err != nil:
		return info, fmt.Errorf("deadletter: look up stream %s: %w", stream, err)
	}

	return info, nil
}

// request sends a request to the JetStream API. body and answer may be nil.
func (s *Store) request(ctx context.Context, subject string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()

	var data []byte

	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
	}

	// Not Conn.Request: its timers come from a pool of the process, which cannot be used
	// under fake time.
	reply, err := s.js.Conn().RequestWithContext(ctx, s.prefix+subject, data)
	if err != nil {
		return err //nolint:wrapcheck // the caller says what it asked for
	}

	var failure struct {
		Error *jetstream.APIError `json:"error"`
	}

	if err := json.Unmarshal(reply.Data, &failure); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}

	if failure.Error != nil {
		return failure.Error
	}

	if answer == nil {
		return nil
	}

	if err := json.Unmarshal(reply.Data, answer); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}

	return nil
}

func isCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError

	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}
