package test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestJobsOfManySubjectsAreListedAcrossGaps lists a stream of so many subjects that the server is asked for one message at a time.
func TestJobsOfManySubjectsAreListedAcrossGaps(t *testing.T) {
	t.Parallel()

	const n = 10_600

	b := keyed(t, nil)
	for i := range n {
		check.OK(t, check.Err(b.js.PublishAsync(fmt.Sprintf("jobs.%d", i+1), nil, jetstream.WithStallWait(time.Minute))))
	}
	<-b.js.PublishAsyncComplete()
	jobs := check.Must(b.js.Stream(t.Context(), stream))(t)
	var want []uint64
	for seq := uint64(1); seq <= n; seq++ {
		if seq == 100 || seq > 300 && seq <= 500 || seq > 700 && seq <= 900 && seq%2 == 0 || seq == n-1 {
			check.OK(t, jobs.DeleteMsg(t.Context(), seq))
			continue
		}
		want = append(want, seq)
	}

	proxy := natstest.NewProxy(t, b.srv)
	_, js := natstest.Connect(t, b.srv, proxy.Through())
	c := client(t, js)
	for name, test := range map[string]struct {
		limit int
		from  uint64
		lost  []byte // in the first answer that has it
	}{
		"small pages":              {50, 2, nil},
		"an answer is lost":        {700, 2, []byte("\r\nNats-Sequence: 610\r\n")},
		"that for a gap is lost":   {50, 2, []byte("\r\nNats-Sequence: 501\r\n")},
		"the end":                  {50, n - 200, nil},
		"the last answer is lost":  {700, n - 200, []byte("NATS/1.0 404")},
		"one of the first is lost": {50, 2, []byte("\r\nNats-Sequence: 3\r\n")},
	} {
		asked := 0
		proxy.Filter(natstest.Losing(func(f natstest.Frame) bool {
			if f.FromClient && bytes.HasSuffix(bytes.TrimSpace(f.Raw), []byte(`,"next_by_subj":">"}`)) {
				asked++
			}
			lost := test.lost != nil && !f.FromClient && bytes.Contains(f.Raw, test.lost)
			if lost {
				test.lost = nil
			}
			return lost
		}))
		f := worker.JobFilter{From: worker.Cursor{Sequence: test.from}, Limit: test.limit}
		got, last := []uint64(nil), test.from+1000
		for more := true; more && f.From.Sequence <= last; more = f.From.Sequence > 0 {
			page := check.Must(c.Jobs(t.Context(), f))(t)
			for _, j := range page.Jobs {
				got = append(got, j.Sequence)
			}
			f.From = page.Next
		}
		outside := func(seq uint64) bool { return seq < test.from || seq > last }
		check.Equal(t, slices.DeleteFunc(slices.Clone(want), outside), slices.DeleteFunc(got, outside))
		check.That(t, asked > 100 && test.lost == nil, "%s: %d messages were asked for one by one; lost %q", name, asked, test.lost)
	}
	proxy.Filter(nil)
}
