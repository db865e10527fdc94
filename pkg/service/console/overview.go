package console

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

// overviewView is what the overview shows.
type overviewView struct {
	At       time.Time
	Buckets  int
	Problems []problem
	Servers  string
	Store    []string
	Streams  []streamRow // with jobs
	Workers  []inspect.Info
}

// addOverview adds the overview. It shows what was collected last: no round trip.
func (c *Console) addOverview() {
	c.page("GET /", func(r *request) error {
		r.Command, r.Live = "expediter doctor", topicOverview
		select {
		case <-c.overview.first:
		case <-r.Context().Done():
			return fail(http.StatusServiceUnavailable, "Nothing was collected yet. Look whether the NATS servers answer, and try again.")
		}
		return r.render("overview", "Overview", c.overview.view())
	})
}

func (o *collector) view() overviewView {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := overviewView{At: o.at, Problems: slices.Clone(o.silent), Servers: strings.Join(o.servers, ", "), Workers: o.workers}
	rows := slices.SortedFunc(maps.Values(o.streams), func(a, b streamRow) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Name, b.Name))
	})
	for _, row := range rows {
		v.Problems = append(v.Problems, row.problems...)
		if row.Jobs {
			v.Streams = append(v.Streams, row)
		} else {
			v.Buckets++
		}
	}
	for _, w := range o.workers {
		if w.Stuck > 0 {
			v.Problems = append(v.Problems, problem{
				Command: "expediter jobs workers --stacks " + w.Instance, Runbook: "handlersstuck",
				Text: fmt.Sprintf("worker %s of %s: handlers that ignore their ended contexts: %d", w.ID, w.Stream, w.Stuck),
			})
		}
		if !w.Ready && !w.Stopping {
			v.Problems = append(v.Problems, problem{
				Command: "expediter jobs workers " + w.Instance, Runbook: "noworkerready",
				Text: fmt.Sprintf("worker %s of %s takes no jobs: %s", w.ID, w.Stream, w.Problem),
			})
		}
	}
	for _, account := range slices.Sorted(maps.Keys(o.store)) {
		used, limit := o.store[account][0], o.store[account][1]
		text := accountName(account) + " " + size(used)
		if limit > 0 {
			text += fmt.Sprintf(" of %s (%.0f %%)", size(limit), 100*float64(used)/float64(limit))
			if float64(used) >= fullNoted*float64(limit) {
				v.Problems = append(v.Problems, problem{Command: "expediter doctor", Runbook: "storagefull", Text: "storage of the " + text})
			}
		}
		v.Store = append(v.Store, text)
	}
	return v
}
