package enrich

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// ErrUnknownRequest is returned for a request that nobody made, that is too old, or that had nothing pending: such a
// one is not recorded.
var ErrUnknownRequest = errors.New("enricher: unknown request")

// requestRecord is what is kept of a request: enough to tell its places' states, and to queue them again. Places are
// only ever appended, so that a position in it means the same for as long as the record lives.
type requestRecord struct {
	// Nonce tells this record from another one under the same id, before or after.
	Nonce string `json:"nonce"`

	// Jobs are the places, without their claims.
	Jobs []contracts.EnrichJob `json:"jobs"`
}

// saveTries bounds how often a record is merged when several requests with one id are made at the same moment.
const saveTries = 10

// save records the targets of a request, under its id, for Subscribe. A second request with the same id adds its
// places. One round trip for a new id, three otherwise.
func (s *Service) save(ctx context.Context, requestID string, targets []*target) error {
	key, err := contracts.RequestKey(requestID)
	if err != nil {
		return err
	}
	record := requestRecord{Nonce: uuid.NewString()[:8]}
	record.add(targets)
	for range saveTries {
		data, err := json.Marshal(record)
		if err != nil {
			return fmt.Errorf("enricher: encode request record: %w", err)
		}
		_, err = s.requests.Create(ctx, key, data, jetstream.KeyTTL(s.cfg.RequestTTL))
		if err == nil {
			return nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return fmt.Errorf("enricher: save request %q: %w", requestID, err)
		}
		if done, err := s.merge(ctx, key, targets); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("enricher: save request %q: it changed %d times meanwhile", requestID, saveTries)
}

// merge adds the targets to the record under key. done is false when somebody else changed it at the same time.
func (s *Service) merge(ctx context.Context, key string, targets []*target) (done bool, err error) {
	value, revision, err := s.readLeader(ctx, key)
	if err != nil {
		return false, err
	}
	if revision == 0 {
		return false, nil
	}
	var record requestRecord
	if err := json.Unmarshal(value, &record); err != nil {
		return false, fmt.Errorf("enricher: request record %q is not JSON: %w", key, err)
	}
	if !record.add(targets) {
		return true, nil
	}
	data, err := json.Marshal(record)
	if err != nil {
		return false, fmt.Errorf("enricher: encode request record: %w", err)
	}
	// An Update of the bucket would drop the key's TTL.
	_, err = s.js.Publish(ctx, "$KV."+contracts.BucketRequests+"."+key, data,
		jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithMsgTTL(s.cfg.RequestTTL))
	if isConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("enricher: save request record: %w", err)
	}
	return true, nil
}

// isConflict says that the server compared revisions and found another one. A replicated stream has a code of its own.
func isConflict(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// readLeader reads the record under key from the stream's leader; the revision is 0 when there is none. Reads of the
// bucket are answered by any replica, which may not have heard of what was written a moment ago.
func (s *Service) readLeader(ctx context.Context, key string) (value []byte, revision uint64, err error) {
	body, err := json.Marshal(map[string]string{"last_by_subj": "$KV." + contracts.BucketRequests + "." + key})
	if err != nil {
		return nil, 0, fmt.Errorf("enricher: encode request for a record: %w", err)
	}
	reply, err := s.js.Conn().RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"STREAM.MSG.GET.KV_"+contracts.BucketRequests, body)
	if err != nil {
		return nil, 0, fmt.Errorf("enricher: read request record: %w", err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Data     []byte `json:"data"`
			Sequence uint64 `json:"seq"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return nil, 0, fmt.Errorf("enricher: answer to the read of a request record is not JSON: %w", err)
	}
	switch {
	case answer.Error == nil:
		return answer.Message.Data, answer.Message.Sequence, nil
	case answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, 0, nil
	default:
		return nil, 0, fmt.Errorf("enricher: read request record: %w", answer.Error)
	}
}

// add appends what the record does not have, and says whether there was anything.
func (r *requestRecord) add(targets []*target) bool {
	before := len(r.Jobs)
	for _, t := range targets {
		known := slices.ContainsFunc(r.Jobs, func(j contracts.EnrichJob) bool {
			return j.PlaceID == t.job.PlaceID && j.Provider == t.job.Provider
		})
		if !known {
			r.Jobs = append(r.Jobs, t.job)
		}
	}
	return len(r.Jobs) > before
}

// load reads the record of a request. One round trip, two for an unknown one.
func (s *Service) load(ctx context.Context, requestID string) (requestRecord, error) {
	key, err := contracts.RequestKey(requestID)
	if err != nil {
		return requestRecord{}, fmt.Errorf("%w: %w", ErrUnknownRequest, err)
	}
	var value []byte
	entry, err := s.requests.Get(ctx, key)
	if err == nil {
		value = entry.Value()
	} else if errors.Is(err, jetstream.ErrKeyNotFound) {
		value, _, err = s.readLeader(ctx, key)
	}
	switch {
	case err != nil:
		return requestRecord{}, fmt.Errorf("enricher: read request %q: %w", requestID, err)
	case len(value) == 0:
		return requestRecord{}, fmt.Errorf("%w %q: it had nothing pending, is over, or was never made", ErrUnknownRequest, requestID)
	}
	var record requestRecord
	if err := json.Unmarshal(value, &record); err != nil {
		s.logger.LogAttrs(ctx, slog.LevelError, "enricher: request record is not JSON",
			slog.String("requestId", requestID), slog.Any("error", err))
		return requestRecord{}, fmt.Errorf("%w %q: its record is unreadable", ErrUnknownRequest, requestID)
	}
	return record, nil
}
