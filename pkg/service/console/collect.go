package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/internal/jobcount"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

const (
	topicOverview = "overview"

	collectEvery = 2 * time.Second
	collectTime  = 2800 * time.Millisecond // bounds one round, so that a fault is shown within 5 seconds
	bucketTime   = 30 * time.Second
	buckets      = 30 // the number of parts of bucketTime in 15 minutes
	fullNoted    = 0.80
	nodeSilent   = 2 * time.Second // the silence of a node, which answers every second: shown, with a round, within 5 seconds
)

// streamID is a stream of an account.
type streamID struct{ account, name string }

// streamRow is the collected state of a stream.
type streamRow struct {
	Account, Name string

	// Waiting, Running, Aside and Stranded count messages.
	Waiting, Running, Aside, Stranded uint64

	// In and Out are the messages per second that came, and that were done, in each part of the last 15 minutes.
	In, Out []float64

	Hidden   bool // the console's user may not see its consumers, or its messages
	Jobs     bool // workers take jobs of it
	Messages uint64
	Dead     int // letters of the last hour; Partial reports whether there may be more
	Partial  bool
	Later    uint64 // delayed jobs and schedules
	Detailed bool   // they were counted apart from other messages that are set aside
	Oldest   time.Duration
	Wait     wait95
	Part     float64 // of its bound that is used

	at       time.Time
	attended *service.Attendance // of the service that takes its jobs, nil before the first look
	away     []string            // nodes, and why
	count    jobcount.Count
	done     uint64
	gone     bool
	idle     int                 // rounds in which jobs waited, none ran, and no worker pulled
	letters  deadletter.Overview // letters of the last hour, by stream
	last     uint64
	problems []problem
	rounds   int
	silent   string    // why its servers do not answer, "" if they do
	started  time.Time // of the last part
}

// wait95 is the time within which 95 % of a number of jobs started, of those that the workers of a stream remember.
type wait95 struct {
	P95 time.Duration
	Of  int
}

// problem is a problem that a person has to look at.
type problem struct {
	// Command is the command that shows more, and Runbook the section of the runbooks with the remedy.
	Command, Runbook string

	// Text describes the problem.
	Text string
}

// collector keeps the figures of the overview.
type collector struct {
	c     *Console
	first chan struct{} // closed after the first round

	mu      sync.Mutex
	at      time.Time
	changes map[string]inspect.Info // by instance: workers that were drained or resumed since the round began
	health  []Answer[Health]
	servers int // the most that ever told their health
	silent  []problem
	stores  []Answer[storeOf]
	store   map[string][2]uint64 // used and limit, by account
	streams map[streamID]streamRow
	waits   map[string]wait95 // by stream
	workers []inspect.Info
}

func newCollector(c *Console) *collector {
	return &collector{
		c: c, first: make(chan struct{}), changes: map[string]inspect.Info{}, store: map[string][2]uint64{}, streams: map[streamID]streamRow{},
	}
}

// run collects every 2 seconds until ctx ends. For each account it makes one request for its use and one for the names of its streams; for
// each stream one, and for a stream with jobs up to two more, whatever the number of jobs. Every 10 seconds it counts delayed jobs, and
// reads the newest 1,000 dead letters of the last hour.
func (o *collector) run(ctx context.Context) {
	ticker := time.NewTicker(collectEvery)
	defer ticker.Stop()
	for once := sync.OnceFunc(func() { close(o.first) }); ; {
		o.round(ctx)
		once()
		o.c.hub.tell(topicOverview)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// latest returns the workers that answered in the last round, none when that is long ago.
func (o *collector) latest() []inspect.Info {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.at) > collectEvery+collectTime {
		return nil
	}
	return slices.Clone(o.workers)
}

// changed notes an answer of a worker, maybe from after the present round's request.
func (o *collector) changed(info inspect.Info) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes[info.Instance] = info
	o.workers = o.withChanges(slices.Clone(o.workers)) // pages have the former
}

func (o *collector) withChanges(workers []inspect.Info) []inspect.Info {
	for i, w := range workers {
		if info, ok := o.changes[w.Instance]; ok {
			workers[i] = info
		}
	}
	return workers
}

func (o *collector) round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, collectTime)
	defer cancel()
	o.mu.Lock()
	clear(o.changes)
	o.mu.Unlock()
	var asking sync.WaitGroup
	var mu sync.Mutex
	silent, store := []problem{}, map[string][2]uint64{}
	for _, a := range o.c.cfg.Accounts {
		ask := func(name string) { asking.Go(func() { o.take(o.ask(ctx, a, name)) }) }
		known := o.known(a.Name) // the leader that lists the streams may have died
		for name := range known {
			ask(name)
		}
		asking.Go(func() {
			info, err := a.JetStream.AccountInfo(ctx)
			lister := a.JetStream.StreamNames(ctx)
			for name := range lister.Name() {
				if !known[name] {
					ask(name)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if err = errors.Join(err, lister.Err()); err != nil {
				text := fmt.Sprintf("%s: the servers do not answer: %v", accountName(a.Name), err)
				silent = append(silent, problem{Command: "expediter doctor", Runbook: "natsunreachable", Text: text})
				return
			}
			limit := max(info.Limits.MaxStore, 0)
			for _, tier := range info.Tiers {
				limit += max(tier.Limits.MaxStore, 0)
			}
			store[a.Name] = [2]uint64{info.Store, uint64(limit)}
		})
	}
	var stores []Answer[storeOf]
	asking.Go(func() { stores = AskServers[storeOf](ctx, o.c.cfg.Conn, "JSZ", collectTime/3) })
	var checks []Answer[Health]
	asking.Go(func() { checks = AskServers[Health](ctx, o.c.cfg.Conn, "HEALTHZ", collectTime/3) })
	var workers []inspect.Info
	asking.Go(func() { workers, _ = inspect.Workers(ctx, o.c.cfg.Conn) }) // no worker is no answer
	asking.Wait()
	of, waits := map[string][]inspect.Info{}, map[string]wait95{}
	for _, w := range workers {
		of[w.Stream] = append(of[w.Stream], w)
	}
	for stream, workers := range of {
		p95, n := inspect.Wait95(workers...)
		waits[stream] = wait95{p95, n}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.servers = max(o.servers, len(checks))
	o.at, o.health, o.silent, o.store, o.stores = time.Now(), checks, silent, store, stores
	o.waits, o.workers = waits, o.withChanges(workers)
}

// take makes the overview show a row at once: the answer for another stream may take long, for instance when its leader has died.
func (o *collector) take(row streamRow) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := streamID{row.Account, row.Name}
	if before := o.streams[id]; len(row.problems) != len(before.problems) || len(row.away) != len(before.away) || row.silent != before.silent {
		o.c.hub.tell(topicOverview)
	}
	if o.streams[id] = row; row.gone && declared(row.Name) == nil { // a missing stream of the services stays until a person has seen it
		delete(o.streams, id)
	}
}

// known returns the streams of an account that the overview has.
func (o *collector) known(account string) map[string]bool {
	all := map[string]bool{}
	o.mu.Lock()
	defer o.mu.Unlock()
	for id := range o.streams {
		if id.account == account {
			all[id.name] = true
		}
	}
	return all
}

// declared returns the declaration of a stream of the services, nil for another stream.
func declared(name string) *jetstream.StreamConfig {
	for _, want := range contracts.Assets(contracts.AssetOptions{Replicas: 1}) {
		if want.Name == name {
			return &want
		}
	}
	return nil
}

func accountName(name string) string {
	if name == "" {
		return "own account"
	}
	return "account " + name
}

// hasJobs reports whether workers may take jobs of a stream.
func hasJobs(name string) bool {
	return !strings.HasPrefix(name, "KV_") && !strings.HasPrefix(name, "OBJ_") && !strings.HasPrefix(name, contracts.StreamAudit) &&
		name != contracts.StreamDead
}

// ask asks for one stream.
func (o *collector) ask(ctx context.Context, a Account, name string) (row streamRow) {
	o.mu.Lock()
	row = o.streams[streamID{a.Name, name}]
	o.mu.Unlock()
	row.Account, row.Name, row.Jobs, row.away, row.problems, row.silent = a.Name, name, hasJobs(name), nil, nil, ""
	client := jsapi.New(a.JetStream, collectTime/3) // leaves time for the stream when the leader that lists consumers has died
	var count *jobcount.Count
	if row.Jobs {
		count = row.count.Ask(ctx, client, name)
	}
	stream, err := a.JetStream.Stream(ctx, name)
	if row.gone = errors.Is(err, jetstream.ErrStreamNotFound); row.gone {
		row.addf("expediter apply", "serviceNotReady", "it is missing")
		return row
	}
	if err != nil {
		row.silent = err.Error()
		return row
	}
	info := stream.CachedInfo()
	may := func(method string) bool { return o.c.denied.May(ctx, client.Prefix+method+name) }
	row.Hidden = row.Jobs && !(may("CONSUMER.LIST.") && (!info.Config.AllowDirect || may("DIRECT.GET.")))
	row.Messages = info.State.Msgs
	if count != nil && count.Complete(ctx, client, info) {
		row.count = *count
		row.sum()
	}
	if row.rounds = row.rounds%detailEvery + 1; row.rounds == 1 && (count != nil || !row.Jobs) {
		row.detail(ctx, a, info)
	}
	row.flow(info)
	row.judge(info)
	row.attend(ctx, a, info)
	return row
}

// Known reports whether its consumers were counted.
func (s streamRow) Known() bool { return !s.count.At.IsZero() }

// attend notes a service, or instances of it, that are missing.
func (s *streamRow) attend(ctx context.Context, a Account, info *jetstream.StreamInfo) {
	name := service.WorksOn(s.Name)
	if name == "" {
		return
	}
	if s.attended == nil {
		s.attended = service.Attend(a.JetStream, name)
	}
	p := problem{Command: "expediter doctor", Runbook: "servicedown"}
	roll, err := s.attended.Look(ctx, info.TimeStamp.Sub(info.Created))
	if p.Text = roll.Problem; err != nil {
		p.Runbook, p.Text = "serversilent", fmt.Sprintf("whether the %s runs is unknown: %v", name, err)
	}
	if p.Text != "" {
		s.problems = append(s.problems, p)
	}
}

// addf adds a problem of the stream.
func (s *streamRow) addf(command, runbook, format string, args ...any) {
	s.problems = append(s.problems, problem{
		Command: command, Runbook: strings.ToLower(runbook), Text: s.Name + ": " + fmt.Sprintf(format, args...),
	})
}

// sum adds up the figures of all consumers.
func (s *streamRow) sum() {
	s.Waiting, s.Running, s.Aside, s.Stranded, s.Oldest = 0, 0, 0, 0, s.count.Age()
	idle := 0
	for id, n := range s.count.Waiting {
		s.Waiting += n
		s.Running += uint64(max(s.count.Given[id], 0))
		if n > 0 && s.count.Given[id] == 0 && s.count.Idle[id] {
			idle = s.idle + 1
		}
	}
	s.idle = idle
	switch s.count.AsideName {
	case jobcount.Stranded:
		s.Stranded = s.count.Left()
	case jobcount.Aside:
		s.Aside = s.count.Left()
	}
}

// flow notes the numbers of messages that came, and that were done, since the last answer.
func (s *streamRow) flow(info *jetstream.StreamInfo) {
	now := time.Now()
	done := info.State.LastSeq - min(info.State.LastSeq, s.Waiting+s.Running+s.Aside+s.Stranded)
	if s.at.IsZero() || info.State.LastSeq < s.last {
		s.In, s.Out, s.started = make([]float64, buckets), make([]float64, buckets), now
	} else {
		s.In, s.Out = slices.Clone(s.In), slices.Clone(s.Out)
		for ; now.Sub(s.started) >= bucketTime; s.started = s.started.Add(bucketTime) {
			s.In, s.Out = append(s.In[1:], 0), append(s.Out[1:], 0)
		}
		s.In[buckets-1] += float64(info.State.LastSeq-s.last) / bucketTime.Seconds()
		s.Out[buckets-1] += float64(max(done, s.done)-s.done) / bucketTime.Seconds()
	}
	s.at, s.last, s.done = now, info.State.LastSeq, done
}

// advisory are the settings that an operator may choose: a difference breaks nothing.
var advisory = []string{"description", "max_bytes", "max_consumers", "metadata", "num_replicas", "placement"}

// judge notes the problems of a stream.
func (s *streamRow) judge(info *jetstream.StreamInfo) {
	if s.Stranded > 0 {
		s.addf("expediter dead stranded "+s.Name, "JobsStranded", "%s that no consumer will ever deliver", counted(s.Stranded, "message"))
	}
	if s.idle > 1 {
		s.addf("expediter jobs workers --stream "+s.Name, "JobsNotWorked", "%s waiting, and no worker takes any", counted(s.Waiting, "message"))
	}
	if bound := info.Config.MaxBytes; bound > 0 && info.Config.Discard == jetstream.DiscardNew {
		if s.Part = float64(info.State.Bytes) / float64(bound); s.Part >= fullNoted {
			s.addf("expediter doctor", "StreamFilling", "%.0f %% full, and it refuses messages at 100 %%", 100*s.Part)
		}
	}
	s.away = jobcount.Without(info.Cluster, nodeSilent)
	want := declared(s.Name)
	if want == nil {
		return
	}
	differences, err := contracts.Compare(*info, *want)
	if err != nil {
		return
	}
	for _, d := range differences {
		if slices.Contains(advisory, d.Field) || d.Shrinks && !d.Fixed && d.Field != "retention" {
			continue
		}
		s.addf("expediter apply --dry-run", "ServiceNotReady", "%s is %s, want %s", d.Field, d.Got, d.Want)
	}
}
