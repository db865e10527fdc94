package doctor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/operate/watch"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
)

const (
	syncWithin = 2 * time.Second // for an acknowledgement of a write, as in readiness
	lookAgain  = 2 * time.Second // for a service that did not answer
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

// checkWork looks for problems of jobs, in all streams of each target that may have some.
func (e *examination) checkWork(ctx context.Context) {
	var asking sync.WaitGroup
	for _, t := range e.targets {
		asking.Go(func() { e.checkDead(ctx, t) })
		names := map[string]bool{}
		for _, want := range contracts.Streams(e.options(t)) {
			names[want.Name] = true
		}
		if e.operates() {
			listed := t.js.StreamNames(ctx)
			for name := range listed.Name() {
				names[name] = true
			}
			if err := listed.Err(); err != nil {
				e.skipf("jobs of other streams than the services'%s: %v", t.suffix(), err)
			}
		}
		for name := range names {
			if watch.MayHaveJobs(name) {
				asking.Go(func() { e.checkJobs(ctx, t, name) })
			}
		}
		asking.Go(func() {
			e.addCertain(ctx, t, "", func(workers []inspect.Info) (found []watch.Problem, err error) {
				for _, w := range workers {
					if _, ok := names[w.Stream]; !ok {
						found = append(found, watch.OfWorker(t.account, w)...)
					}
				}
				if t.account == "" {
					found = append(found, watch.Silent(e.connected(), workers)...)
				}
				return found, nil
			})
		})
	}
	asking.Wait()
}

// checkJobs looks at the jobs of a stream.
func (e *examination) checkJobs(ctx context.Context, t target, name string) {
	if _, err := e.stream(t, name); err != nil {
		return // is reported
	}
	var state watch.State
	e.addCertain(ctx, t, name, func(workers []inspect.Info) (_ []watch.Problem, err error) {
		from := watch.Source{
			Account: t.account, JetStream: t.js, Client: jsapi.New(t.js, once), Asked: e.tellsApart(t),
			Workers: func() []inspect.Info { return workers },
		}
		if state, err = watch.Look(ctx, from, name, state, true); err != nil {
			return nil, err
		}
		if dead, err := watch.DeadLetters(ctx, t.js, state.At.Add(-time.Hour)); err == nil { // without the stream there are none
			state.Dead, state.Partial = watch.DeadOf(dead, name), dead.Partial
		}
		return state.Problems(), nil
	})
	if state.Info != nil && state.HasJobs() && !state.Known {
		e.skipf("stranded jobs of %s: it has too many subjects to count them, or the user may not", streamOf(t, name))
	}
}

// addCertain looks for problems until no further look could find more, and adds them.
func (e *examination) addCertain(ctx context.Context, t target, name string, look func([]inspect.Info) ([]watch.Problem, error)) {
	var memory watch.Memory
	var certain []watch.Problem
	workers := t.workers()
	for unsure := true; unsure; {
		found, err := look(workers)
		if err != nil {
			e.skipf("jobs of %s: %v", streamOf(t, name), err)
			break
		}
		if certain, memory, unsure = memory.Certain(time.Now(), found); unsure && retry.Sleep(ctx, lookAgain/2) {
			workers = e.findWorkers(t)
		} else {
			break
		}
	}
	for _, p := range certain {
		e.addProblem(t, name, p)
	}
}

// addProblem adds a problem of a stream.
func (e *examination) addProblem(t target, stream string, p watch.Problem) {
	if p.ID == "consumer.missing" || p.ID == "consumer.changed" {
		declared := func(c provision.Consumer) bool {
			return strings.HasPrefix(p.Of, "consumer "+c.Stream+"/"+c.Config.Durable)
		}
		if slices.ContainsFunc(provision.Consumers(e.options(t)), declared) {
			return // it is compared with its declaration
		}
	}
	because, cure, text := "", strings.TrimSpace(p.Command+" "+e.Flags), p.Text
	if p.Follows {
		because = most
	}
	if command, ok := strings.CutPrefix(p.Command, "nats "); ok {
		cure = e.nats(t, command)
	}
	if program := service.WorksOn(stream); program != "" && p.ID == "worker.gone" {
		cure = start(program)
	}
	if time.Since(p.Since) > time.Minute && !p.Since.IsZero() {
		text += ", since " + p.Since.UTC().Format(time.RFC3339)
	}
	e.addBecause(because, p.ID, console.Severity(p.Severity), p.Of, cure, "%s", text)
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
	for wait := time.Duration(0); err == nil && roll.Unsure && retry.Sleep(ctx, wait); wait = lookAgain {
		roll, err = attendance.Look(ctx, age)
	}
	switch {
	case err != nil || roll.Unsure && roll.Problem == "":
		e.addBecause(anyOfThem, "service.unknown", unknown, "service "+name, "", "whether it runs is unknown: %v", errors.Join(err, ctx.Err()))
	case roll.Problem != "":
		severity, cure := Warning, start(name)+". If it is not to come back:"
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

// start is the cure for a service that does not run.
func start(program string) string {
	return "systemctl restart expediter@" + program + " # on its machine, or ./start in its folder, see deploy/nats/README.md"
}

// findWorkers asks the workers of a target, which an administrator may do. Under the account's prefix no other account can answer.
func (e *examination) findWorkers(t target) []inspect.Info {
	if !e.operates() {
		return nil
	}
	short, cancel := context.WithTimeout(e.ctx, once)
	defer cancel()
	all, err := inspect.Workers(short, t.js)
	if err != nil && !errors.Is(err, inspect.ErrNoWorker) {
		e.skipf("workers%s: %v", t.suffix(), err)
	}
	if t.account != "" {
		return all
	}
	here, err := map[string]watch.Connection(nil), errors.New("the user may not ask")
	if e.As != userConsole { // who may not ask
		here, err = watch.Connected(e.ctx, e.nc)
	}
	if len(e.targets) > 1 {
		all = watch.Own(all, here)
	}
	if here == nil {
		e.skipf("workers of the %s that are frozen, or that belong to no service: %v", t.name(), err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.here = here
	return all
}

// connected returns the connections of workers in the user's own account, nil if it is not known.
func (e *examination) connected() map[string]watch.Connection {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.here
}

// tellsApart reports whether the workers of a target are known: in the user's own account those of services answer, too.
func (e *examination) tellsApart(t target) bool {
	return e.operates() && (t.account != "" || len(e.targets) == 1 || e.connected() != nil)
}

// pulled reports whether a worker has handlers of a consumer.
func pulled(workers []inspect.Info, c provision.Consumer) bool {
	return slices.ContainsFunc(workers, func(w inspect.Info) bool {
		return w.Stream == c.Stream && slices.ContainsFunc(w.Handlers, func(h inspect.Handler) bool { return h.Consumer == c.Config.Durable })
	})
}

// checkDead counts dead letters.
func (e *examination) checkDead(ctx context.Context, t target) {
	ctx, cancel := context.WithTimeout(ctx, once)
	defer cancel()
	info, err := e.stream(t, contracts.StreamDead)
	if err != nil || info.State.Msgs == 0 {
		return
	}
	dead, err := watch.DeadLetters(ctx, t.js, time.Time{})
	if err != nil {
		e.addBecause(anyOfThem, "dead.letters", unknown, streamOf(t, contracts.StreamDead), "", "its dead letters cannot be counted: %v", err)
		return
	}
	more := ""
	if dead.Partial {
		more = " or more"
	}
	if dead.Total > 0 {
		e.add("dead.letters", Warning, streamOf(t, contracts.StreamDead), e.command(t, "dead", "groups"),
			"%d dead letters%s wait for a decision", dead.Total, more)
	}
}

// isDenied reports whether the server has denied a subject with a prefix.
func (e *examination) isDenied(prefix string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.denied, func(s string) bool { return strings.Contains(s, prefix) })
}
