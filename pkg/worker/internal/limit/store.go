package limit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
)

// headerWriter names the worker that writes a record.
const headerWriter = "Limit-Writer"

var errConflict = errors.New("limit: somebody else wrote")

// subject is where something is kept.
func (s *Set) subject(of string) string { return "$KV." + s.cfg.Bucket + ".limits." + of }

// get reads from the leader of the bucket's stream. Nothing there is revision 0.
func (s *Set) get(subject string) ([]byte, uint64, error) {
	if !s.cfg.JetStream.Conn().IsConnected() {
		return nil, 0, fmt.Errorf("limit: read %s: %w", subject, nats.ErrDisconnected)
	}

	msg, _, err := jsapi.New(s.cfg.JetStream, s.cfg.Request).Get(s.ctx, "KV_"+s.cfg.Bucket, jsapi.Query{LastBySubject: subject})
	if err != nil {
		return nil, 0, fmt.Errorf("limit: %w", err)
	}

	return msg.Data, msg.Sequence, nil
}

// put writes if the subject is at the given revision.
func (s *Set) put(subject string, value any, expect uint64, ttl time.Duration) (uint64, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return 0, fmt.Errorf("limit: %w", err)
	}

	// The client would keep the message and send it much later.
	if !s.cfg.JetStream.Conn().IsConnected() {
		return 0, fmt.Errorf("limit: write %s: %w", subject, nats.ErrDisconnected)
	}

	msg := nats.NewMsg(jsapi.New(s.cfg.JetStream, s.cfg.Request).Target(subject))

	msg.Data = data
	msg.Header.Set(headerWriter, s.writer)

	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Request)
	defer cancel()

	ack, err := s.cfg.JetStream.PublishMsg(ctx, msg,
		jetstream.WithExpectLastSequencePerSubject(expect), jetstream.WithMsgTTL(ttl.Truncate(time.Second)))

	switch {
	case jsapi.IsRefused(err):
		return 0, errConflict
	case err != nil:
		return 0, fmt.Errorf("limit: write %s: %w", subject, err)
	}

	return ack.Sequence, nil
}
