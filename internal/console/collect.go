package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/consumer"
	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/operate/watch"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

const (
	topicOverview = "overview"

	collectEvery = 2 * time.Second
	doubtEvery   = 1600 * time.Millisecond // while a problem may show after another round, see watch.Memory.Certain
	collectTime  = 2800 * time.Millisecond // bounds one round, so that a fault is shown within 5 seconds
	fullNoted    = 0.80
	nodeSilent   = 2 * time.Second // the silence of a node, which answers every second: shown, with a round, within 5 seconds

	firstTime = 500 * time.Millisecond // for the first worker to answer

	// lasting is the number of rounds after which a replica that is behind is a problem: each server that restarts makes some for a moment.
	lasting = 5

	// earlyReads is the number of times that new dead letters are read before the next round with details.
	earlyReads = 2
)

type streamID struct{ account, name string }

// found is a worker that answered under an account's prefix, where no other account answers.
type found struct {
	inspect.Info

	Account string

	js jetstream.JetStream // of the account
}

// of returns the stream of the worker's jobs.
func (w found) of() streamID { return streamID{w.Account, w.Stream} }

// Jobs names the stream of the worker's jobs for people. A worker may say any stream, and is of its account whatever it says.
func (w found) Jobs() string {
	if w.Account == "" {
		return w.Stream
	}
	return w.Stream + " of " + w.Account
}

// key tells the worker from all others.
func (w found) key() string { return w.Account + "/" + w.Instance }

type streamRow struct {
	// State is the last answer about its jobs.
	watch.State

	Account, Name string

	// Queued, Delivered and Aside count messages: Delivered are jobs that a worker was given and that it does not run.
	Queued, Delivered, Aside uint64

	Hidden   bool   // the console's user may not see its consumers, or its messages
	Jobs     bool   // workers take jobs of it
	Unread   bool   // the dead letters could not be read
	Later    uint64 // delayed jobs and schedules
	Detailed bool   // they were counted apart from other messages that are set aside
	Oldest   time.Duration
	Wait     wait95

	attended *service.Attendance // of the service that takes its jobs, nil before the first look
	away     []string            // nodes, and why
	behind   map[string]int      // for how many rounds
	early    int                 // reads of new dead letters since the last round with details
	gone     bool
	recent   deadletter.Overview // dead letters of the last hour, by stream
	memory   watch.Memory
	problems []watch.Problem
	rounds   int
	silent   string // why its servers do not answer, "" if they do
	unsure   bool   // another round may find more problems
}

// wait95 is the time within which 95 % of a number of jobs started, of those that the workers of a stream remember.
type wait95 struct {
	P95 time.Duration
	Of  int
}

// collector keeps the figures of the overview.
type collector struct {
	c     *Console
	first chan struct{} // closed after the first round

	mu      sync.Mutex
	at      time.Time
	changes map[string]found // by key: workers that were drained or resumed since the round began
	health  []Answer[Health]
	memory  watch.Memory
	servers int               // the most that have ever reported their health
	silent  map[string]string // accounts that do not answer, and why
	stores  []Answer[storeOf]
	stray   []watch.Problem
	store   map[string][2]uint64 // used and limit, by account
	streams map[streamID]streamRow
	unsure  bool // about stray
	waits   map[streamID]wait95
	workers []found
}

func newCollector(c *Console) *collector {
	return &collector{
		c: c, first: make(chan struct{}), changes: map[string]found{}, store: map[string][2]uint64{}, streams: map[streamID]streamRow{},
	}
}

// run collects every 2 seconds until ctx ends, and sooner in doubt. For each account it makes one request for its use and one for the names
// of its streams; for each stream one, and for a stream with jobs up to two more, whatever the number of jobs. Every 10 seconds it counts
// delayed jobs, and reads the newest 1,000 dead letters of the last hour, which it also does twice in between if there are new ones.
func (o *collector) run(ctx context.Context) {
	for once := sync.OnceFunc(func() { close(o.first) }); ; {
		begun := time.Now()
		o.round(ctx)
		once()
		o.c.hub.tell(topicOverview)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(begun.Add(o.every()))):
		}
	}
}

// every returns the time between the beginnings of two rounds.
func (o *collector) every() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, row := range o.streams {
		if row.unsure {
			return doubtEvery
		}
	}
	if o.unsure {
		return doubtEvery
	}
	return collectEvery
}

// latest returns the workers that answered in the last round, none when that is long ago.
func (o *collector) latest() []found {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.at) > collectEvery+collectTime {
		return nil
	}
	return slices.Clone(o.workers)
}

// changed notes an answer of a worker, maybe from after the present round's request.
func (o *collector) changed(w found) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes[w.key()] = w
	o.workers = o.withChanges(slices.Clone(o.workers)) // pages have the former
}

func (o *collector) withChanges(workers []found) []found {
	for i, w := range workers {
		if now, ok := o.changes[w.key()]; ok {
			workers[i] = now
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
	silent, store := map[string]string{}, map[string][2]uint64{}
	var answers []found
	var here map[string]watch.Connection
	answered := make(chan struct{})
	asking.Go(func() {
		defer close(answered)
		short, cancel := context.WithTimeout(ctx, firstTime)
		defer cancel()
		answers, here, _ = o.c.findWorkers(short) // no worker is no answer
	})
	workers := func() ([]found, map[string]watch.Connection) {
		<-answered
		return answers, here
	}
	for _, a := range o.c.cfg.Accounts {
		ask := func(name string) { asking.Go(func() { o.take(o.ask(ctx, a, name, workers)) }) }
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
			if err = cmp.Or(err, lister.Err()); err != nil {
				silent[a.Name] = err.Error()
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
	asking.Go(func() { checks = AskHealth(ctx, o.c.cfg.Conn, collectTime/3) })
	asking.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.servers = max(o.servers, len(checks))
	o.at, o.health, o.silent, o.store, o.stores = time.Now(), checks, silent, store, stores
	o.heard(answers, here)
}

// heard takes what workers answered, and the connections of workers. It is called with the lock.
func (o *collector) heard(answers []found, here map[string]watch.Connection) {
	of, waits := map[streamID][]inspect.Info{}, map[streamID]wait95{}
	var own []inspect.Info
	for _, w := range answers {
		if w.Account == "" {
			own = append(own, w.Info)
		}
		of[w.of()] = append(of[w.of()], w.Info)
	}
	for stream, workers := range of {
		p95, n := inspect.Wait95(workers...)
		waits[stream] = wait95{p95, n}
	}
	o.waits, o.workers = waits, o.withChanges(answers)
	var states []watch.State
	for id, row := range o.streams {
		if id.account == "" {
			states = append(states, row.State)
		}
	}
	stray := watch.Silent(here, own, states...)
	for _, w := range o.workers {
		if _, ok := o.streams[w.of()]; !ok { // its stream is missing
			stray = append(stray, watch.OfWorker(w.Account, w.Info)...)
		}
	}
	o.stray, o.memory, o.unsure = o.memory.Certain(o.at, stray)
}

// rounds returns for how many rounds without a gap each name was seen, from the same of the round before.
func rounds(before map[string]int, seen []string) map[string]int {
	now := make(map[string]int, len(seen))
	for _, name := range seen {
		now[name] = before[name] + 1
	}
	return now
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

// serves reports whether an account has streams whose jobs services take.
func (o *collector) serves(account string) bool {
	for name := range o.known(account) {
		if service.WorksOn(name) != "" {
			return true
		}
	}
	return false
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

func (o *collector) ask(
	ctx context.Context, a Account, name string, workers func() ([]found, map[string]watch.Connection),
) (row streamRow) {
	o.mu.Lock()
	row = o.streams[streamID{a.Name, name}]
	o.mu.Unlock()
	row.Account, row.Name, row.Jobs, row.away, row.problems, row.silent = a.Name, name, watch.MayHaveJobs(name), nil, nil, ""
	row.unsure = false
	client := jsapi.New(a.JetStream, collectTime/3) // leaves time for the stream when the leader that lists consumers has died
	may := func(subject string) bool { return o.c.denied.May(ctx, subject) }
	row.rounds = row.rounds%detailEvery + 1
	from := watch.Source{Account: a.Name, JetStream: a.JetStream, Client: client, Workers: func() (all []inspect.Info) {
		answers, _ := workers()
		for _, w := range answers {
			if w.Account == a.Name {
				all = append(all, w.Info)
			}
		}
		return all
	}}
	if from.Asked = a.Name != "" || len(o.c.cfg.Accounts) == 1; !from.Asked { // as findWorkers asks
		_, here := workers()
		from.Asked = here != nil
	}
	state, err := watch.Look(ctx, from, name, row.State, row.rounds == 1)
	if row.gone = errors.Is(err, jetstream.ErrStreamNotFound); row.gone {
		row.addf("stream.missing", "expediter apply", "it is missing")
		return row
	}
	if err != nil {
		row.silent = err.Error()
		return row
	}
	came := row.Info != nil && (state.Info.State.LastSeq != row.Info.State.LastSeq || state.Info.State.Msgs != row.Info.State.Msgs)
	row.State = state
	info := row.Info
	row.Hidden = row.Jobs && !(may(client.Prefix+"CONSUMER.LIST."+name) && (!info.Config.AllowDirect || may(client.Prefix+"DIRECT.GET."+name)))
	row.sum()
	if row.rounds == 1 && (row.Known() || !row.Jobs) {
		row.detail(ctx, a, info)
	} else if came && row.Name == contracts.StreamDead && row.early < earlyReads {
		row.early++
		row.readDead(ctx, a, info)
	}
	o.mu.Lock()
	recent := o.streams[streamID{a.Name, contracts.StreamDead}].recent // after the question to the workers: they are of this round
	o.mu.Unlock()
	row.Dead, row.Partial = watch.DeadOf(recent, name), recent.Partial
	row.problems, row.memory, row.unsure = row.memory.Certain(row.At, row.Problems())
	row.judge(info, o.serves(a.Name))
	row.attend(ctx, a, info)
	return row
}

// Known reports whether its consumers were counted.
func (s streamRow) Known() bool { return !s.Count.At.IsZero() }

// attend notes a service, or instances of it, that are missing.
func (s *streamRow) attend(ctx context.Context, a Account, info *jetstream.StreamInfo) {
	name := service.WorksOn(s.Name)
	if name == "" {
		return
	}
	if s.attended == nil {
		s.attended = service.Attend(a.JetStream, name)
	}
	p := watch.Problem{
		ID: "service.missing", Of: "service " + name, Severity: watch.Error, Command: "expediter doctor", Runbook: "servicedown",
		Page: []any{"/workers"},
	}
	roll, err := s.attended.Look(ctx, info.TimeStamp.Sub(info.Created))
	if p.Text = roll.Problem; roll.Late {
		p.Severity = watch.Warning
	}
	if err != nil {
		p.Runbook, p.Text = "serversilent", fmt.Sprintf("whether the %s runs is unknown: %v", name, err)
	}
	if p.Text != "" {
		s.problems = append(s.problems, p)
	}
}

func (s *streamRow) addf(id, command, format string, args ...any) {
	s.problems = append(s.problems, watch.Problem{
		ID: id, Severity: watch.Error, Of: "stream " + s.Name, Command: command, Runbook: "servicenotready", Text: fmt.Sprintf(format, args...),
	})
}

func (s *streamRow) sum() {
	s.Queued, s.Delivered, s.Aside, s.Oldest = 0, 0, 0, s.Count.Age()
	for _, c := range s.Count.Consumers {
		s.Queued += c.Queued
		s.Delivered += c.Delivered
	}
	s.Delivered -= min(s.Delivered, s.Running())
	if s.Count.AsideName == consumer.Aside {
		s.Aside = s.Count.Left()
	}
}

// advisory are the settings that an operator may choose: a difference breaks nothing.
var advisory = []string{"description", "max_bytes", "max_consumers", "metadata", "num_replicas", "placement"}

// judge notes the problems of a stream, in addition to those of its jobs.
func (s *streamRow) judge(info *jetstream.StreamInfo, serves bool) {
	s.away = consumer.Without(info.Cluster, nodeSilent)
	s.behind = rounds(s.behind, s.away)
	s.away = slices.DeleteFunc(s.away, func(text string) bool {
		return strings.HasSuffix(text, consumer.Behind) && s.behind[text] < lasting
	})
	want := declared(s.Name)
	if want == nil || !serves { // a worker of the library makes a bucket and a stream of the same names
		return
	}
	differences, err := provision.Compare(*info, *want)
	if err != nil {
		return
	}
	for _, d := range differences {
		if slices.Contains(advisory, d.Field) || d.Shrinks && !d.Fixed && d.Field != "retention" {
			continue
		}
		s.addf("stream."+d.Field, "expediter apply --dry-run", "%s is %s, want %s", d.Field, d.Got, d.Want)
	}
}
