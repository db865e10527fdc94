package enrich

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/service/access"
)

// ErrUnknownRequest is returned for a request that was never made, that is too old, or that had nothing pending: such a
// request is not recorded.
var ErrUnknownRequest = errors.New("enricher: unknown request")

// ErrRequestTaken is returned for a request under the id of one that another caller has made and that is still recorded.
var ErrRequestTaken = errors.New("enricher: the requestId belongs to another caller")

// ErrRequestFull is returned for a request under an id whose record has room for no more places.
var ErrRequestFull = errors.New("enricher: the record of the requestId is full")

// maxRecorded bounds the places of one record, each provider counted; maxRecordBytes its size.
const (
	maxRecorded    = 2000
	maxRecordBytes = contracts.MaxBody - 1<<10 // the server counts the headers, too
)

// requestRecord is the stored form of a request: enough to look up the states of its places, and to queue them again. Places
// are only ever appended, so that a position in it means the same for as long as the record lives.
type requestRecord struct {
	// Nonce distinguishes this record from an earlier or later one under the same id.
	Nonce string `json:"nonce"`

	// Owner is the name of the caller that made the request. Only this one can add places. It is "" for callers without a name,
	// and any caller can add to theirs.
	Owner string `json:"owner,omitempty"`

	// Jobs are the places, without their claims.
	Jobs []contracts.EnrichJob `json:"jobs"`
}

// saveTries bounds how often a record is merged when several requests with one id are made at the same moment.
const saveTries = 10

// save records the targets of a request, under its id, for Subscribe. A second request of the same caller with the same id adds
// its places. The errors are [ErrRequestTaken], [ErrRequestFull], and those of the store. One round trip for a new id, two otherwise.
func (s *Service) save(ctx context.Context, requestID string, targets []*target) error {
	key, err := contracts.RequestKey(requestID)
	if err != nil {
		return err
	}
	caller := access.From(ctx).Name
	fresh := requestRecord{Nonce: uuid.NewString()[:8], Owner: caller}
	fresh.add(targets)
	record, over, header := fresh, kvrecord.Record{}, nats.Header{}
	s.cfg.Telemetry.Inject(ctx, header) // the spans of those who subscribe to the request link to it
	for range saveTries {
		data, err := json.Marshal(record)
		if err != nil {
			return fmt.Errorf("enricher: encode request record: %w", err)
		}
		if len(record.Jobs) > maxRecorded || len(data) > maxRecordBytes {
			return fmt.Errorf("%w: %q with %d places in %d bytes, at most %d in %d: use another requestId",
				ErrRequestFull, requestID, len(record.Jobs), len(data), maxRecorded, maxRecordBytes)
		}
		_, err = s.requests.Put(ctx, kvrecord.Write{
			Subject: s.requests.Key(key), Data: data, Header: header, Over: over, TTL: s.cfg.RequestTTL,
		})
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
		if record.Owner != "" && record.Owner != caller {
			return fmt.Errorf("%w: %q: use another one", ErrRequestTaken, requestID)
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
			return j.PlaceID == t.job.PlaceID && j.Provider == t.job.Provider && fingerprint(j) == t.fingerprint
		})
		if !known {
			r.Jobs = append(r.Jobs, t.job)
		}
	}
	return len(r.Jobs) > before
}

// load reads the record of a request, to which the span of ctx links then. One round trip, two for an unknown one.
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
	s.cfg.Telemetry.Link(ctx, stored.Header)
	var record requestRecord
	if err := json.Unmarshal(stored.Data, &record); err != nil {
		s.logger.LogAttrs(ctx, slog.LevelError, "enricher: request record is not JSON",
			slog.String("requestId", requestID), slog.Any("error", err))
		return requestRecord{}, fmt.Errorf("%w %q: its record is unreadable", ErrUnknownRequest, requestID)
	}
	return record, nil
}
