package kvrecord

import (
	"context"
	"fmt"
)

// Scan reads the stream's records in the order in which they were written, from a revision on: at most limit records, and 8
// MiB. Any replica may answer. next is the revision to continue from, and 0 at the end. One round trip.
//
// There is no filter, because for a filter the server looks through all subjects of the stream, at each page: in a stream of
// a million, a page of 100 records took 262 ms of CPU with a filter, and 0.4 ms without. To read the records of some
// subjects, list the subjects and read those.
func (s *Stream) Scan(ctx context.Context, from uint64, limit int) (records []Record, next uint64, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	messages, more, err := s.many.From(ctx, s.name, max(from, 1), limit)
	if err != nil {
		return nil, 0, s.failed(ctx, fmt.Sprintf("scan from %d", from), err)
	}
	for _, m := range messages {
		records = append(records, s.record(m))
	}
	if more && len(records) > 0 {
		next = records[len(records)-1].Revision + 1
	}
	return records, next, nil
}

// Subjects returns the subjects that match a filter and hold a record, or the marker of a deleted one: 100,000 at most, in
// no particular order. offset is how many subjects to leave out; next is the offset to continue from, and 0 at the end. The
// result is the state of the stream's leader at one moment. One round trip, whose cost grows with the subjects that match.
func (s *Stream) Subjects(ctx context.Context, filter string, offset int) (subjects []string, next int, err error) {
	var answer struct {
		info

		Total int `json:"total"`
	}
	err = s.persist(ctx, "list the subjects of", filter, func(ctx context.Context) error {
		return s.api.Ask(ctx, "STREAM.INFO."+s.name, map[string]any{"subjects_filter": filter, "offset": offset}, &answer)
	})
	if err != nil {
		return nil, 0, err
	}
	for subject := range answer.State.Subjects {
		subjects = append(subjects, subject)
	}
	if next = offset + len(subjects); next >= answer.Total || len(subjects) == 0 {
		next = 0
	}
	return subjects, next, nil
}
