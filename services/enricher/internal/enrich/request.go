package enrich

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/google/uuid"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// ErrUnknownRequest is returned for a request that was never made, that is too old, or that had nothing pending: such a
// request is not recorded.
var ErrUnknownRequest = errors.New("enricher: unknown request")

// requestRecord is the stored form of a request: enough to look up the states of its places, and to queue them again. Places
// are only ever appended, so that a position in it means the same for as long as the record lives.
type requestRecord struct {
	// Nonce distinguishes this record from an earlier or later one under the same id.
	Nonce string `json:"nonce"`

	// Jobs are the places, without their claims.
	Jobs []contracts.EnrichJob `json:"jobs"`
}

// saveTries bounds how often a record is merged when several requests with one id are made at the same moment.
const saveTries = 10

// save records the targets of a request, under its id, for Subscribe. A second request with the same id adds its
// places. One round trip for a new id, two otherwise.
func (s *Service) save(ctx context.Context, requestID string, targets []*target) error {
	key, err := contracts.RequestKey(requestID)
	if err != nil {
		return err
	}
	fresh := requestRecord{Nonce: uuid.NewString()[:8]}
	fresh.add(targets)
	record, over := fresh, kvrecord.Record{}
	for range saveTries {
		data, err := json.Marshal(record)
		if err != nil {
			return fmt.Errorf("enricher: encode request record: %w", err)
		}
		_, err = s.requests.Put(ctx, kvrecord.Write{Subject: s.requests.Key(key), Data: data, Over: over, TTL: s.cfg.RequestTTL})
		conflict, taken := errors.AsType[*kvrecord.ConflictError](err)
		if err == nil {
			return nil
		}
		if !taken {
			return fmt.Errorf("enricher: save request %q: %w", requestID, err)
		}
		if over = conflict.Found; over.Revision == 0 || over.Deleted() { // it has gone meanwhile
			record = fresh
			continue
		}
		record = requestRecord{}
		if err := json.Unmarshal(over.Data, &record); err != nil {
			return fmt.Errorf("enricher: request record %q is not JSON: %w", key, err)
		}
		if !record.add(targets) {
			return nil
		}
	}
	return fmt.Errorf("enricher: save request %q: it changed %d times meanwhile", requestID, saveTries)
}

// add appends the targets that the record does not have, and reports whether there were any.
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
	stored, err := s.requests.Get(ctx, s.requests.Key(key))
	if err == nil && stored.Revision == 0 { // a replica may lack a record that was written a moment ago
		stored, err = s.requests.Latest(ctx, s.requests.Key(key))
	}
	switch {
	case err != nil:
		return requestRecord{}, fmt.Errorf("enricher: read request %q: %w", requestID, err)
	case len(stored.Data) == 0:
		return requestRecord{}, fmt.Errorf("%w %q: it had nothing pending, is over, or was never made", ErrUnknownRequest, requestID)
	}
	var record requestRecord
	if err := json.Unmarshal(stored.Data, &record); err != nil {
		s.logger.LogAttrs(ctx, slog.LevelError, "enricher: request record is not JSON",
			slog.String("requestId", requestID), slog.Any("error", err))
		return requestRecord{}, fmt.Errorf("%w %q: its record is unreadable", ErrUnknownRequest, requestID)
	}
	return record, nil
}
