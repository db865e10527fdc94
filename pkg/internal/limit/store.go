package limit

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// subject returns the subject of a record.
func (s *Set) subject(of string) string { return s.cfg.Records.Key(s.cfg.Prefix + of) }

// get reads a record from the leader of the bucket's stream. Its revision is 0 when there is none.
func (s *Set) get(subject string) (kvrecord.Record, error) {
	found, err := s.cfg.Records.Latest(s.ctx, subject)
	if err != nil {
		return found, fmt.Errorf("limit: %w", err)
	}
	return found, nil
}

// put writes a record once, if the subject still holds over. Workers of versions before kvrecord write the same content
// under the same condition, and these writes wake them like those of any other worker.
func (s *Set) put(subject string, value any, over kvrecord.Record, ttl time.Duration) (kvrecord.Record, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return kvrecord.Record{}, fmt.Errorf("limit: %w", err)
	}

	stored, err := s.cfg.Records.PutOnce(s.ctx, kvrecord.Write{Subject: subject, Data: data, Over: over, TTL: ttl.Truncate(time.Second)})
	if err != nil {
		return stored, fmt.Errorf("limit: %w", err)
	}
	return stored, nil
}
