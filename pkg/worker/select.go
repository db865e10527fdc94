package worker

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	selectedJobs   = 1000
	selectedLooked = 10_000
)

// Selection says which jobs [Client.Select] returns.
type Selection struct {
	// Can reports whether a job is wanted that Filter selects. Defaults to all.
	Can func(StoredJob) bool

	// Filter selects jobs. Its Count, Limit and Look are of no account.
	Filter JobFilter

	// Look is how many messages are read at most, or up to 999 more. Defaults to 10,000.
	Look int

	// Most is how many jobs are returned at most. Defaults to 1,000.
	Most int

	// Until is the Next of a page: jobs from there on are left out. Defaults to none.
	Until Cursor
}

// Select returns the jobs that a selection is of, in the order of [Client.Jobs], and reports whether these are all. Round trips: those
// of Jobs for each 1,000 messages.
func (c *Client) Select(ctx context.Context, s Selection) (jobs []StoredJob, all bool, err error) {
	f := s.Filter
	f.Count, f.Limit, f.Look = false, maxPage, maxPage
	for looked := 0; looked < cmp.Or(s.Look, selectedLooked); {
		page, err := c.Jobs(ctx, f)
		if err != nil {
			return nil, false, err
		}
		looked += page.Looked
		for _, j := range page.Jobs {
			switch {
			case s.Until.Sequence != 0 && !c.isBefore(j, s.Until):
				return jobs, false, nil
			case s.Can != nil && !s.Can(j):
				continue
			case len(jobs) == cmp.Or(s.Most, selectedJobs):
				return jobs, false, nil
			}
			jobs = append(jobs, j)
		}
		if f.From = page.Next; f.From.Sequence == 0 {
			return jobs, true, nil
		}
	}
	return jobs, false, nil
}

// isBefore reports whether a list has a job before a place.
func (c *Client) isBefore(j StoredJob, at Cursor) bool {
	partition := 0
	if number, behind := strings.CutPrefix(j.Stream, c.cfg.Stream+"-"); behind {
		partition, _ = strconv.Atoi(number) //nolint:errcheck // a number, see PartitionStream
	}
	return cmp.Or(cmp.Compare(partition, at.Partition), cmp.Compare(j.Sequence, at.Sequence)) < 0
}

// HasJobs reports whether a stream of a configuration may have jobs: it is a work queue, or takes delayed jobs, and is no bucket. A
// partition is no stream of its own.
func HasJobs(cfg jetstream.StreamConfig) bool {
	bucket := strings.HasPrefix(cfg.Name, "KV_") || strings.HasPrefix(cfg.Name, "OBJ_")
	return !bucket && !IsPartition(cfg) && (cfg.Retention == jetstream.WorkQueuePolicy || cfg.AllowMsgSchedules)
}
