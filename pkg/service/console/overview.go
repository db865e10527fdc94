package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

const (
	detailEvery = 5    // the number of rounds between two counts of figures that need reads
	newLetters  = 1000 // the number of letters that are read of a stream of dead letters
	serverStall = 250 * time.Millisecond
)

// overviewView is the data of the overview.
type overviewView struct {
	At       time.Time
	Problems []problem
	Servers  []string
	Store    []string
	Streams  []streamRow // with jobs
	Workers  []inspect.Info
}

// addOverview adds the overview. It shows the last collected figures. No round trip.
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
	v := overviewView{At: o.at, Workers: o.workers}
	for _, s := range o.stores {
		sync := "always"
		if cfg := s.Data.Config; !cfg.SyncAlways {
			sync = "every " + span(cmp.Or(cfg.SyncInterval, 2*time.Minute)) // as a server takes none
		}
		v.Servers = append(v.Servers, v.fill("server "+s.Server.Name, s.Data.Storage, s.Data.Config.MaxStore)+", sync "+sync)
	}
	broken := map[string]bool{} // servers that cannot write
	for _, s := range o.health {
		if s.Data.Status != "ok" {
			v.Problems = append(v.Problems, s.Data.problem(s.Server.Name))
		}
		if s.Data.Disk() != "" {
			broken[s.Server.Name] = true
		}
	}
	stopped := 2*len(broken) > o.servers // which is why streams do not answer, and workers take no jobs
	if !stopped {
		v.Problems = append(v.Problems, o.silent...)
	}
	rows := slices.SortedFunc(maps.Values(o.streams), func(a, b streamRow) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Name, b.Name))
	})
	v.Problems = append(v.Problems, away(rows, broken)...)
	if !stopped {
		v.Problems = append(v.Problems, silent(rows)...)
	}
	for _, row := range rows {
		v.Problems = append(v.Problems, row.problems...)
		if row.Jobs {
			dead := o.streams[streamID{row.Account, contracts.StreamDead}].letters
			for _, g := range dead.Groups {
				if g.Stream == row.Name {
					row.Dead += g.Count
				}
			}
			row.Partial, row.Wait = dead.Partial, o.waits[row.Name]
			v.Streams = append(v.Streams, row)
		}
	}
	for _, w := range o.workers {
		if w.Stuck > 0 {
			v.Problems = append(v.Problems, problem{
				Command: "expediter jobs workers --stacks " + w.Instance, Runbook: "handlersstuck",
				Text: fmt.Sprintf("worker %s of %s: handlers that ignore their ended contexts: %d", w.ID, w.Stream, w.Stuck),
			})
		}
		if !w.Ready && !w.Stopping && !stopped {
			v.Problems = append(v.Problems, problem{
				Command: "expediter jobs workers " + w.Instance, Runbook: "noworkerready",
				Text: fmt.Sprintf("worker %s of %s takes no jobs: %s", w.ID, w.Stream, w.Problem),
			})
		}
	}
	for _, account := range slices.Sorted(maps.Keys(o.store)) {
		v.Store = append(v.Store, v.fill(accountName(account), o.store[account][0], o.store[account][1]))
	}
	return v
}

// silent returns one problem for all streams whose servers do not answer.
func silent(rows []streamRow) []problem {
	var names []string
	reason := ""
	for _, row := range rows {
		if row.silent != "" {
			names, reason = append(names, row.Name), row.silent
		}
	}
	if names == nil {
		return nil
	}
	text := fmt.Sprintf("%s: its servers do not answer: %s", names[0], reason)
	if len(names) > 1 {
		others := counted(uint64(len(names))-1, "other stream")
		text = fmt.Sprintf("%s and %s: their servers do not answer: %s", names[0], others, reason)
	}
	return []problem{{Command: "expediter doctor", Runbook: "serversilent", Text: text}}
}

// away returns one problem for each node that is away and not known as broken, whatever the number of streams with a replica there.
func away(rows []streamRow, broken map[string]bool) (all []problem) {
	streams, worst := map[string]uint64{}, map[string]string{}
	for _, row := range rows {
		for _, text := range row.away {
			node, _, _ := strings.Cut(text, " ")
			if broken[node] {
				continue
			}
			streams[node]++
			worst[node] = max(worst[node], text) // a node may be behind in some streams, and silent in others
		}
	}
	for _, node := range slices.Sorted(maps.Keys(worst)) {
		all = append(all, problem{
			Command: "expediter doctor", Runbook: "nodeaway",
			Text: fmt.Sprintf("node %s, with replicas of %s", worst[node], counted(streams[node], "stream")),
		})
	}
	return all
}

// fill returns the use of a store in words, and adds a problem if the store is nearly full.
func (v *overviewView) fill(name string, used uint64, limit uint64) string {
	text := name + " " + size(used)
	if limit > 0 {
		text += fmt.Sprintf(" of %s (%.0f %%)", size(limit), 100*float64(used)/float64(limit))
		if float64(used) >= fullNoted*float64(limit) {
			v.Problems = append(v.Problems, problem{Command: "expediter doctor", Runbook: "storagefull", Text: "storage of the " + text})
		}
	}
	return text
}

// detail counts the figures that cost further round trips: delayed jobs, and the dead letters of the last hour.
func (s *streamRow) detail(ctx context.Context, a Account, info *jetstream.StreamInfo) {
	if s.Later, s.Detailed = 0, s.Aside == 0; !s.Detailed {
		client, err := worker.NewClient(a.JetStream, worker.ClientConfig{Stream: s.Name})
		if err == nil {
			page, err := client.Jobs(ctx, worker.JobFilter{Count: true, Limit: 1, States: []worker.State{worker.StateScheduled}})
			s.Later, s.Detailed = page.Counts.Scheduled, err == nil && page.Counts.Detailed
		}
	}
	hourAgo := info.TimeStamp.Add(-time.Hour)
	if s.letters = (deadletter.Overview{}); s.Name != contracts.StreamDead || info.State.Msgs == 0 || info.State.LastTime.Before(hourAgo) {
		return
	}
	store, err := deadletter.Open(ctx, a.JetStream, deadletter.Config{})
	if err == nil {
		s.letters, _ = store.Survey(ctx, deadletter.Filter{Since: hourAgo}, // the next round is near
			deadletter.SurveyOptions{By: deadletter.ByStream, Newest: newLetters})
	}
}

// Answer is a server's answer.
type Answer[T any] struct {
	Data   T
	Server struct{ Name string }
}

// storeOf is the part of a server's JSZ answer about its store.
type storeOf struct {
	Config struct {
		MaxStore     uint64        `json:"max_storage"`
		SyncAlways   bool          `json:"sync_always"`
		SyncInterval time.Duration `json:"sync_interval"`
	}
	Storage uint64
}

// Health is the answer of a server's health check.
type Health struct {
	Error  string `json:"error"`
	Status string `json:"status"`
}

// Disk returns what keeps a server from writing to its disk, "" for nothing. Such a server takes no writes until it is restarted.
func (h Health) Disk() string {
	switch {
	case strings.Contains(h.Error, "no space left"), strings.Contains(h.Error, "quota exceeded"):
		return "its disk is full"
	case strings.Contains(h.Error, "read-only file system"):
		return "its disk is read-only"
	case strings.Contains(h.Error, "write error"):
		return "its disk fails"
	case strings.Contains(h.Error, "not enabled"): // a node of a cluster does not say more
		return "its disk is full, or takes no writes: it has turned JetStream off"
	}
	return ""
}

// problem returns the problem of a server that is not healthy.
func (h Health) problem(server string) problem {
	p := problem{Command: "expediter doctor", Runbook: "nodeaway", Text: fmt.Sprintf("server %s is %s: %s", server, h.Status, h.Error)}
	if disk := h.Disk(); disk != "" {
		p.Runbook, p.Text = "storetakesnowrites", fmt.Sprintf("server %s: %s (its health check: %s)", server, disk, h.Error)
	}
	return p
}

// AskServers asks all servers a question of monitoring, such as HEALTHZ. They do not answer a user without the permission.
func AskServers[T any](ctx context.Context, nc *nats.Conn, kind string, within time.Duration) (all []Answer[T]) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	answers, _ := inspect.Gather(ctx, nc, "$SYS.REQ.SERVER.PING."+kind, serverStall) // then there are none
	for _, data := range answers {
		var one Answer[T]
		if json.Unmarshal(data, &one) == nil && one.Server.Name != "" { //nolint:musttag // the server's names, in capitals
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b Answer[T]) int { return cmp.Compare(a.Server.Name, b.Server.Name) })
	return all
}
