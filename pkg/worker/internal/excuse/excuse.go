// Package excuse remembers which deliveries of a message used no attempt.
//
// The server counts deliveries. An attempt is a delivery that is not excused, so only the
// excuses are stored, and only when there is one: a job that completes at once costs
// nothing here, a redelivered one costs a read.
package excuse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// keep is how long a record outlives the moment it was last needed.
const keep = 7 * 24 * time.Hour

// codeNoMessage is the server's error code for "no message found".
const codeNoMessage = 10037

// Message identifies a message of a consumer. Stored tells a message from one with the
// same sequence in a stream that was deleted and made again.
type Message struct {
	Stream   string
	Consumer string
	Sequence uint64
	Stored   time.Time
}

// Store keeps the records of one bucket.
type Store struct {
	bucket string
	js     jetstream.JetStream
	prefix string
}

// record is the wire form of a value.
type record struct {
	// Excused is the number of deliveries that used no attempt.
	Excused int `json:"excused"`

	// Last is the latest delivery that was excused, so that a repeated write counts once.
	Last int `json:"last"`

	// Stored is the time of the message, in Unix nanoseconds.
	Stored int64 `json:"stored"`
}

// New returns the store of a bucket. It makes no request.
func New(js jetstream.JetStream, bucket string) *Store {
	return &Store{bucket: bucket, js: js, prefix: APIPrefix(js)}
}

// APIPrefix is what a JetStream context puts before its requests, with the last dot.
func APIPrefix(js jetstream.JetStream) string {
	switch opts := js.Options(); {
	case opts.Domain != "":
		return "$JS." + opts.Domain + ".API."
	case opts.APIPrefix != "":
		return strings.TrimSuffix(opts.APIPrefix, ".") + "."
	default:
		return jetstream.DefaultAPIPrefix
	}
}

// Count returns how many deliveries of a message are excused, zero when none is known.
// One round trip, answered by the leader of the bucket's stream: a follower may not have
// seen an excuse written a moment ago, and would cost the job an attempt.
func (s *Store) Count(ctx context.Context, msg Message) (int, error) {
	rec, _, err := s.read(ctx, msg)

	return rec.Excused, err
}

// Add excuses n deliveries of a message, the latest of which is the given one. Repeating
// it changes nothing. The record outlives the delay before the next delivery by a week.
// Two round trips.
func (s *Store) Add(ctx context.Context, msg Message, delivery, n int, delay time.Duration) error {
	for {
		rec, revision, err := s.read(ctx, msg)
		if err != nil {
			return err
		}

		if rec.Last >= delivery {
			return nil
		}

		next := record{Excused: rec.Excused + n, Last: delivery, Stored: msg.Stored.UnixNano()}
		if err = s.write(ctx, msg, next, revision, delay); err == nil {
			return nil
		}

		// A refusal may be another writer or this very write, applied before a leader
		// change: reading again tells.
		if !errors.Is(err, jetstream.ErrKeyExists) && !conflict(err) {
			return err
		}

		if ctx.Err() != nil {
			return fmt.Errorf("excuse: write %s: %w", s.subject(msg), context.Cause(ctx))
		}
	}
}

func (s *Store) subject(msg Message) string {
	return "$KV." + s.bucket + ".excused." + msg.Stream + "." + msg.Consumer + "." + strconv.FormatUint(msg.Sequence, 10)
}

func (s *Store) read(ctx context.Context, msg Message) (record, uint64, error) {
	subject := s.subject(msg)

	query, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return record{}, 0, fmt.Errorf("excuse: %w", err)
	}

	reply, err := s.js.Conn().RequestWithContext(ctx, s.prefix+"STREAM.MSG.GET.KV_"+s.bucket, query)
	if err != nil {
		return record{}, 0, fmt.Errorf("excuse: read %s: %w", subject, err)
	}

	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Data []byte `json:"data"`
			Seq  uint64 `json:"seq"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return record{}, 0, fmt.Errorf("excuse: answer about %s: %w", subject, err)
	}

	if answer.Error != nil {
		if answer.Error.ErrorCode == codeNoMessage {
			return record{}, 0, nil
		}

		return record{}, 0, fmt.Errorf("excuse: read %s: %w", subject, answer.Error)
	}

	var rec record
	if json.Unmarshal(answer.Message.Data, &rec) != nil || rec.Stored != msg.Stored.UnixNano() {
		rec = record{} // unreadable, or about an older message with this sequence
	}

	return rec, answer.Message.Seq, nil
}

func (s *Store) write(ctx context.Context, to Message, rec record, revision uint64, delay time.Duration) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("excuse: %w", err)
	}

	msg := nats.NewMsg(s.subject(to))
	if s.prefix != jetstream.DefaultAPIPrefix {
		msg.Subject = s.prefix + msg.Subject // as nats.go does for a bucket behind a domain
	}

	msg.Data = data
	ttl := (delay + keep).Truncate(time.Second)

	_, err = s.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithMsgTTL(ttl))
	if err != nil {
		return fmt.Errorf("excuse: write %s: %w", msg.Subject, err)
	}

	return nil
}

// conflict reports whether the server refused a write because of its revision. The second
// code is what a cluster answers while another write to the subject is under way.
func conflict(err error) bool {
	const wrongLast, wrongLastConstant = 10071, 10164

	var api *jetstream.APIError

	return errors.As(err, &api) && (api.ErrorCode == wrongLast || api.ErrorCode == wrongLastConstant)
}
