package doctor

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

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

const (
	syncWithin  = 2 * time.Second // for an acknowledgement of a write, as in readiness
	lookAgain   = 2 * time.Second // for a service that did not answer
	maxSubjects = 100_000         // that a server lists
)

// checkWrites writes to each bucket the record with which the services check that they can write. A server that once
// failed to write looks healthy to all other checks.
func (e *examination) checkWrites(ctx context.Context) {
	if e.ReadOnly || e.As == userConsole {
		e.skipf("writes: --read-only")
		return
	}
	var writing sync.WaitGroup
	var mu sync.Mutex                                         // guards the next ones
	taken, stalled := map[string]int{}, map[string][]string{} // writes and streams, by the server that leads these
	for _, t := range e.targets {
		for _, want := range contracts.Assets(e.options(t)) {
			if strings.HasPrefix(want.Name, "KV_") {
				writing.Go(func() {
					leader, silent := e.checkWrite(ctx, t, want.Name)
					mu.Lock()
					defer mu.Unlock()
					if silent {
						stalled[leader] = append(stalled[leader], streamOf(t, want.Name))
					} else {
						taken[leader]++
					}
				})
			}
		}
	}
	writing.Wait()
	for leader, streams := range stalled {
		e.checkStalled(leader, streams, taken[leader])
	}
}

// checkStalled adds the finding of streams whose leader did not acknowledge a write, though it has taken other writes.
func (e *examination) checkStalled(leader string, streams []string, taken int) {
	e.mu.Lock()
	found := taken == 0 && !slices.Contains(e.broken, leader)
	if found {
		e.broken = append(e.broken, leader)
	}
	e.mu.Unlock()
	if found {
		e.add(idDisk, Error, "server "+leader, makeRoom, "it acknowledged no write within %s, twice: its disk is full, or fails", syncWithin)
	}
	for _, of := range streams {
		e.addBecause(leader, "store.stalled", Error, of, makeRoom,
			"server %s did not acknowledge a write within %s, twice: its disk is full, or fails", leader, syncWithin)
	}
}

// checkWrite writes to a bucket, and returns the server that leads it, and whether that did not answer. It tries twice, because a machine
// may be busy.
func (e *examination) checkWrite(ctx context.Context, t target, name string) (leader string, silent bool) {
	info, err := e.stream(t, name)
	if err != nil {
		return "", false // is reported
	}
	leader = e.nc.ConnectedServerName()
	if info.Cluster != nil {
		leader = cmp.Or(info.Cluster.Leader, leader)
	}
	for range 2 {
		try, cancel := context.WithTimeout(ctx, syncWithin)
		err = service.ProbeStore(try, t.js, t.prefix(), name)
		cancel()
		if err == nil {
			return leader, false
		}
	}
	switch api, refused := errors.AsType[*jetstream.APIError](err); {
	case refused && slices.Contains(reported, api.ErrorCode):
	case refused:
		e.add("store.refuses", Error, streamOf(t, name), e.nats(t, "stream info "+name), "it refuses a write: %s", api.Description)
	case e.isDenied("$KV." + strings.TrimPrefix(name, "KV_") + "."):
		e.add("permission.publish", Error, streamOf(t, name), reload("the user may publish to its subjects"), "the user may not write to it")
	default:
		return leader, true
	}
	return leader, false
}

// reported has the codes of refusals whose cause another check finds: records cannot expire, and the stream is full.
var reported = []jetstream.ErrorCode{10166, 10077}

// checkWork looks for jobs without a worker.
func (e *examination) checkWork(ctx context.Context) {
	var asking sync.WaitGroup
	for _, t := range e.targets {
		asking.Go(func() { e.checkWorkers(ctx, t) })
		asking.Go(func() { e.checkDead(ctx, t) })
		for _, want := range contracts.Assets(e.options(t)) {
			if strings.HasPrefix(want.Name, "KV_") || strings.HasPrefix(want.Name, "OBJ_") || slices.Contains(noJobs, want.Name) {
				continue
			}
			asking.Go(func() { e.checkPauses(ctx, t, want.Name) })
			if want.Retention == jetstream.WorkQueuePolicy {
				asking.Go(func() { e.checkStranded(ctx, t, want.Name) })
			}
		}
	}
	asking.Wait()
}

// checkServices looks for services, and instances of them, that are missing.
func (e *examination) checkServices(ctx context.Context) {
	if !e.operates() {
		return // as workers, they answer operators only
	}
	var looking sync.WaitGroup
	for _, t := range e.targets {
		for _, want := range contracts.Streams(e.options(t)) {
			if name := service.WorksOn(want.Name); name != "" {
				looking.Go(func() { e.checkService(ctx, t, name, want.Name) })
			}
		}
	}
	looking.Wait()
}

// checkService looks again while an instance that is silent may be alive.
func (e *examination) checkService(ctx context.Context, t target, name, stream string) {
	info, err := e.stream(t, stream)
	if err != nil {
		return // is reported
	}
	age, attendance, roll := info.TimeStamp.Sub(info.Created), service.Attend(t.js, name), service.Roll{Unsure: true}
	for wait := time.Duration(0); err == nil && roll.Unsure && pause.For(ctx, wait); wait = lookAgain {
		roll, err = attendance.Look(ctx, age)
	}
	switch {
	case err != nil || roll.Unsure && roll.Problem == "":
		e.skipf("whether the %s runs: %v", name, errors.Join(err, ctx.Err()))
	case roll.Problem != "":
		severity, cure := Warning, "./"+name+" # on its machine, as deploy/nats/README.md starts it. If it is not to come back:"
		if roll.Gone {
			severity = Error
		}
		cures := []string{cure}
		for _, place := range roll.Places {
			cures = append(cures, e.nats(t, "kv del -f "+contracts.BucketJobs+" "+place)+";")
		}
		e.add("service.missing", severity, "service "+name+t.suffix(), strings.Join(cures, " "), "%s", roll.Problem)
	}
}

// noJobs are the streams from which no worker pulls.
var noJobs = []string{contracts.StreamAudit, contracts.StreamAuditUsers, contracts.StreamDead}

// checkWorkers compares the jobs that wait with the workers that answer.
func (e *examination) checkWorkers(ctx context.Context, t target) {
	if !e.operates() {
		e.skipf("workers: only an administrator may ask them")
		return
	}
	workers := t.workers()
	for _, w := range workers {
		if !w.Ready && !w.Stopping {
			e.addBecause(most, "worker.idle", Error, "worker "+w.ID, "expediter jobs workers "+operate.Quote(w.Instance)+" "+e.Flags,
				"it takes no jobs: %s", w.Problem)
		}
		if w.Stuck > 0 {
			e.add("worker.stuck", Error, "worker "+w.ID, "expediter jobs workers --stacks "+operate.Quote(w.Instance)+" "+e.Flags,
				"%d of %d slots are held by jobs that go on after their time%s", w.Stuck, w.Slots, e.stuck(ctx, w))
		}
	}
	var asking sync.WaitGroup
	for _, c := range contracts.Consumers(e.options(t)) {
		if !pulled(workers, c) {
			asking.Go(func() { e.checkUnpulled(ctx, t, c) })
		}
	}
	asking.Wait()
}

// checkUnpulled looks for jobs of a consumer that has no worker.
func (e *examination) checkUnpulled(ctx context.Context, t target, c contracts.Consumer) {
	if _, err := e.stream(t, c.Stream); err != nil {
		return // is reported
	}
	ctx, cancel := context.WithTimeout(ctx, once)
	defer cancel()
	consumer, err := t.js.Consumer(ctx, c.Stream, c.Config.Durable)
	if err != nil {
		return // is reported
	}
	if waiting := consumer.CachedInfo().NumPending + uint64(max(consumer.CachedInfo().NumAckPending, 0)); waiting > 0 {
		program, _, _ := strings.Cut(c.Config.Durable, "-")
		e.add("worker.gone", Error, consumerOf(t, c.Stream+"/"+c.Config.Durable),
			"./"+program+" # on its machine, as deploy/nats/README.md starts it", "%d jobs wait, and no worker of it answers", waiting)
	}
}

// stuck names the jobs that a worker cannot end, as far as it answers.
func (e *examination) stuck(ctx context.Context, w inspect.Info) (names string) {
	short, cancel := context.WithTimeout(ctx, once)
	defer cancel()
	running, _ := inspect.StacksOf(short, e.nc, w.Instance) // their number is known
	var text strings.Builder
	for _, a := range running.Attempts {
		if a.Stuck {
			fmt.Fprintf(&text, ", %s since %s", a.Subject, a.Started.UTC().Format(time.RFC3339))
		}
	}
	return text.String()
}

// findWorkers asks the workers of a target, which an administrator may do. Under the account's prefix no other account can answer.
func (e *examination) findWorkers(t target) []inspect.Info {
	if !e.operates() || len(contracts.Consumers(e.options(t))) == 0 {
		return nil
	}
	short, cancel := context.WithTimeout(e.ctx, once)
	defer cancel()
	all, err := inspect.WorkersAt(short, e.nc, t.prefix()+inspect.SubjectInfo)
	if err != nil && !errors.Is(err, inspect.ErrNoWorker) {
		e.skipf("workers%s: %v", t.suffix(), err)
	}
	return all
}

// pulled reports whether a worker has handlers of a consumer.
func pulled(workers []inspect.Info, c contracts.Consumer) bool {
	return slices.ContainsFunc(workers, func(w inspect.Info) bool {
		return w.Stream == c.Stream && slices.ContainsFunc(w.Handlers, func(h inspect.Handler) bool { return h.Consumer == c.Config.Durable })
	})
}

// checkPauses looks for handlers that are paused.
func (e *examination) checkPauses(ctx context.Context, t target, stream string) {
	if _, err := e.stream(t, "KV_"+contracts.BucketJobs); err != nil {
		return // is reported
	}
	client, err := worker.NewClient(t.js, worker.ClientConfig{RequestTimeout: once, SettleTimeout: once, Stream: stream})
	if err != nil {
		e.skipf("pauses of %s: %v", stream, err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, once)
	defer cancel()
	all, err := client.Pauses(ctx)
	if err != nil {
		return // its bucket is reported
	}
	for _, p := range all {
		until := "for ever"
		if !p.Until.IsZero() {
			until = "until " + p.Until.UTC().Format(time.RFC3339)
		}
		e.add("handler.paused", Warning, streamOf(t, stream), e.command(t, "jobs", "resume", "--stream", stream, operate.Quote(p.Pattern)),
			"jobs of %s do not start %s", p.Pattern, until)
	}
}

// checkDead counts dead letters.
func (e *examination) checkDead(ctx context.Context, t target) {
	ctx, cancel := context.WithTimeout(ctx, once)
	defer cancel()
	info, err := e.stream(t, contracts.StreamDead)
	if err != nil || info.State.Msgs == 0 {
		return
	}
	count := info.State.Msgs
	if info.State.NumSubjects <= maxSubjects {
		stream, err := t.js.Stream(ctx, contracts.StreamDead)
		if err == nil {
			info, err = stream.Info(ctx, jetstream.WithSubjectFilter(">"))
		}
		if err != nil {
			return
		}
		for subject, n := range info.State.Subjects {
			if strings.Contains(subject, "."+worker.TokenReplay+".") || strings.Contains(subject, "."+worker.TokenPart+".") {
				count -= n // no letters
			}
		}
	}
	if count > 0 {
		e.add("dead.letters", Warning, streamOf(t, contracts.StreamDead), e.command(t, "dead", "groups"),
			"%d dead letters wait for a decision", count)
	}
}

// checkStranded looks for messages that no consumer delivers.
func (e *examination) checkStranded(ctx context.Context, t target, stream string) {
	if _, err := e.stream(t, stream); err != nil {
		return // is reported
	}
	ctx, cancel := context.WithTimeout(ctx, once)
	defer cancel()
	store, err := deadletter.Open(ctx, t.js, deadletter.Config{RequestTimeout: once})
	if err != nil {
		return // its stream is reported
	}
	found, err := store.Stranded(ctx, stream)
	if err == nil && found.Messages > 0 {
		e.add("queue.stranded", Error, streamOf(t, stream), e.command(t, "dead", "stranded", stream),
			"no consumer delivers %d messages, such as %s", found.Messages, found.Subjects[0].Subject)
	}
}

// isDenied reports whether the server has denied a subject with a prefix.
func (e *examination) isDenied(prefix string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.denied, func(s string) bool { return strings.Contains(s, prefix) })
}
