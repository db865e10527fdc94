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
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/operate/watch"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

const (
	detailEvery = 5 // the number of rounds between two counts of figures that need reads
	serverStall = 250 * time.Millisecond

	// maxObserved bounds the series of the gauge of problems, and maxOf the bytes of a label.
	maxObserved, maxOf = 100, 128
)

type overviewView struct {
	At       time.Time
	Problems []watch.Problem
	Servers  []string
	Store    []string
	Streams  []streamRow // with jobs
	Workers  []found
}

// addOverview adds the overview. It shows the last collected figures. No round trip.
func (c *Console) addOverview() {
	c.page("GET /", nil, func(r *request) error {
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
	rows := slices.SortedFunc(maps.Values(o.streams), func(a, b streamRow) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Name, b.Name))
	})
	v.Problems = append(v.Problems, away(rows, broken)...)
	if !stopped {
		v.Problems = append(v.Problems, o.unanswered(rows)...)
	}
	show := func(all []watch.Problem) {
		for _, p := range all {
			if !p.Follows || !stopped {
				v.Problems = append(v.Problems, p)
			}
		}
	}
	show(o.stray)
	for _, row := range rows {
		show(row.problems)
		if row.Jobs {
			dead := o.streams[streamID{row.Account, contracts.StreamDead}]
			row.Dead, row.Partial, row.Unread = watch.DeadOf(dead.recent, row.Name), dead.recent.Partial, dead.Unread
			row.Wait = o.waits[streamID{row.Account, row.Name}]
			v.Streams = append(v.Streams, row)
		}
	}
	for _, account := range slices.Sorted(maps.Keys(o.store)) {
		v.Store = append(v.Store, v.fill(accountName(account), o.store[account][0], o.store[account][1]))
	}
	return v
}

// observe reports the problems to the gauge, errors first. Those beyond maxObserved are one.
func (o *collector) observe(_ context.Context, to metric.Int64Observer) error {
	all := o.view().Problems
	for i := range all {
		all[i].Severity = cmp.Or(all[i].Severity, watch.Error)
	}
	slices.SortStableFunc(all, func(a, b watch.Problem) int { return cmp.Compare(a.Severity, b.Severity) })
	if len(all) > maxObserved {
		all = append(all[:maxObserved:maxObserved], watch.Problem{ID: "more", Severity: all[maxObserved].Severity})
	}
	for _, p := range all {
		to.Observe(1, metric.WithAttributes(attribute.String("id", cmp.Or(p.ID, p.Runbook)), attribute.String("severity", string(p.Severity)),
			attribute.String("of", redact.Shorten(redact.People(p.Of), maxOf))))
	}
	return nil
}

// unanswered returns one problem for all accounts that do not answer, and one for all streams of the others that do not.
func (o *collector) unanswered(rows []streamRow) (all []watch.Problem) {
	add := func(names []string, kind, reason, runbook string) {
		if len(names) == 0 {
			return
		}
		text := names[0]
		if others := len(names) - 1; others > 0 {
			text += " and " + counted(others, "other "+kind)
		}
		all = append(all, watch.Problem{Command: "expediter doctor", Runbook: runbook, Text: text + ": the servers do not answer: " + reason})
	}
	accounts := make([]string, 0, len(o.silent))
	var streams []string
	var account, stream string
	for _, name := range slices.Sorted(maps.Keys(o.silent)) {
		accounts, account = append(accounts, accountName(name)), o.silent[name]
	}
	for _, row := range rows {
		if row.silent != "" && o.silent[row.Account] == "" {
			streams, stream = append(streams, row.Name), row.silent
		}
	}
	add(accounts, "account", account, "natsunreachable")
	add(streams, "stream", stream, "serversilent")
	return all
}

// away returns one problem for each node that is away and not known as broken, whatever the number of streams with a replica there.
func away(rows []streamRow, broken map[string]bool) (all []watch.Problem) {
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
		all = append(all, watch.Problem{
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
			v.Problems = append(v.Problems, watch.Problem{Command: "expediter doctor", Runbook: "storagefull", Text: "storage of the " + text})
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
	if s.early = 0; s.Name == contracts.StreamDead {
		s.readDead(ctx, a, info)
	}
}

// readDead reads the newest dead letters of the last hour.
func (s *streamRow) readDead(ctx context.Context, a Account, info *jetstream.StreamInfo) {
	hourAgo := info.TimeStamp.Add(-time.Hour)
	var recent deadletter.Overview
	var err error
	if info.State.Msgs > 0 && info.State.LastTime.After(hourAgo) {
		recent, err = watch.DeadLetters(ctx, a.JetStream, hourAgo)
	}
	if s.Unread = err != nil; !s.Unread {
		s.recent = recent
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

// Unrecovered reports whether the server misses a stream of which its disk has a folder. It says so too while a stream is being deleted.
func (h Health) Unrecovered() bool { return strings.Contains(h.Error, "could not be recovered") }

func (h Health) problem(server string) watch.Problem {
	p := watch.Problem{Command: "expediter doctor", Runbook: "nodeaway", Text: fmt.Sprintf("server %s is %s: %s", server, h.Status, h.Error)}
	if disk := h.Disk(); disk != "" {
		p.Runbook, p.Text = "storetakesnowrites", fmt.Sprintf("server %s: %s (its health check: %s)", server, disk, h.Error)
	}
	return p
}

// DeletionTime is the time in which a deleted stream leaves a server's disk. What Health.Unrecovered reports counts when the server says it
// again after that time.
const DeletionTime = 300 * time.Millisecond

// AskHealth asks all servers for their health checks, those with an answer that may be of the moment twice.
func AskHealth(ctx context.Context, nc *nats.Conn, within time.Duration) []Answer[Health] {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	all := AskServers[Health](ctx, nc, "HEALTHZ", within)
	if slices.ContainsFunc(all, func(a Answer[Health]) bool { return a.Data.Unrecovered() }) && retry.Sleep(ctx, DeletionTime) {
		if again := AskServers[Health](ctx, nc, "HEALTHZ", within); len(again) >= len(all) {
			return again
		}
	}
	return all
}

// AskServers asks all servers a question of monitoring, such as HEALTHZ. They do not answer a user without the permission.
func AskServers[T any](ctx context.Context, nc *nats.Conn, kind string, within time.Duration) (all []Answer[T]) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	answers, _ := inspect.Gather(ctx, nc, "$SYS.REQ.SERVER.PING."+kind, nil, serverStall) // then there are none
	for _, data := range answers {
		var one Answer[T]
		if json.Unmarshal(data, &one) == nil && one.Server.Name != "" { //nolint:musttag // the server's names, in capitals
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b Answer[T]) int { return cmp.Compare(a.Server.Name, b.Server.Name) })
	return all
}
