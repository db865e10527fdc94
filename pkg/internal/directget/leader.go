package directget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Leader returns the last message of subject in stream by the answer of the stream's leader, or ok false when it has
// none. A leader that was deposed without its knowledge may still answer. One round trip.
func (g *Getter) Leader(ctx context.Context, stream, subject string) (message Message, ok bool, err error) {
	return g.leader(ctx, stream, request{LastBy: subject})
}

func (g *Getter) leader(ctx context.Context, stream string, req request) (message Message, ok bool, err error) {
	if !g.nc.IsConnected() {
		return Message{}, false, fmt.Errorf("not sent: %w", nats.ErrDisconnected)
	}
	body, err := json.Marshal(req)
	if err != nil {
		return Message{}, false, fmt.Errorf("encode request: %w", err)
	}
	reply, err := g.nc.RequestWithContext(ctx, g.api+"STREAM.MSG.GET."+stream, body)
	if err != nil {
		if errors.Is(err, nats.ErrNoResponders) {
			err = ErrNoReply
		}
		return Message{}, false, fmt.Errorf("ask the leader of stream %s: %w", stream, err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Time     time.Time `json:"time"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
		} `json:"message"`
	}
	switch err := json.Unmarshal(reply.Data, &answer); {
	case err != nil:
		return Message{}, false, fmt.Errorf("answer of stream %s is not JSON: %w", stream, err)
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return Message{}, false, nil
	case answer.Error != nil:
		return Message{}, false, fmt.Errorf("stream %s: %w", stream, answer.Error)
	case answer.Message == nil:
		return Message{}, false, fmt.Errorf("answer of stream %s has no message", stream)
	}
	header, err := decodeHeader(answer.Message.Header)
	if err != nil {
		return Message{}, false, err
	}
	found := answer.Message
	return Message{
		Subject: found.Subject, Sequence: found.Sequence, Time: found.Time, Header: header, Data: found.Data, AsOf: found.Sequence,
	}, true, nil
}

func decodeHeader(raw []byte) (nats.Header, error) {
	if len(raw) == 0 {
		return nats.Header{}, nil
	}
	h, err := nats.DecodeHeadersMsg(raw)
	if err != nil {
		return nil, fmt.Errorf("headers of a stored message: %w", err)
	}
	return h, nil
}
