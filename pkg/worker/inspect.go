package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/internal/inspect"
)

const (
	// maxAnswer bounds an answer to an inspector, together with the largest payload that the server takes.
	maxAnswer = 256 << 10

	// maxStacks and minStacks bound the stacks of one attempt in an answer, in bytes: less when many run.
	maxStacks = 8 << 10
	minStacks = 1 << 10

	maxStuckJobs = 3 // in an Info
)

// answerInspectors answers requests of package inspect until end is called, on separate goroutines that wait for no handler.
func (w *Worker) answerInspectors(ctx context.Context) (end func(), err error) {
	service, err := micro.AddService(w.nc, micro.Config{
		Description: "Runs jobs, and says which", Name: inspect.Service, QueueGroupDisabled: true, Version: "1.0.0",
		Metadata: map[string]string{"consumer": w.cfg.Consumer, "id": w.cfg.ID, "stream": w.cfg.Stream},
	})
	if err != nil {
		return nil, fmt.Errorf("worker: answer inspectors: %w", err)
	}
	host, _ := os.Hostname() // it has none then
	info := inspect.Info{
		ID: clip(w.cfg.ID, maxShort), Instance: service.Info().ID, Version: clip(w.cfg.Version, maxShort), Stream: w.cfg.Stream,
		Consumer: w.cfg.Consumer, Host: clip(host, maxShort), PID: os.Getpid(), Slots: w.cfg.Concurrency, Started: time.Now().UTC(),
	}
	drain := func(is bool) []byte {
		if w.draining.Swap(is) != is {
			w.log.InfoContext(ctx, EventDrained, "drained", is)
		}
		return w.answerInfo(ctx, info)
	}
	for subject, answer := range map[string]func() []byte{
		inspect.SubjectInfo:   func() []byte { return w.answerInfo(ctx, info) },
		inspect.SubjectRecent: func() []byte { return w.answerRecent(info) },
		inspect.SubjectStacks: func() []byte { return w.answerStacks(info) },
		inspect.SubjectDrain:  func() []byte { return drain(true) },
		inspect.SubjectResume: func() []byte { return drain(false) },
	} {
		handler := micro.HandlerFunc(func(r micro.Request) {
			_ = r.Respond(answer()) // on a closed connection no answer is sent
		})
		name := subject[strings.LastIndexByte(subject, '.')+1:]
		err := service.AddEndpoint(name+"-one", handler, micro.WithEndpointSubject(subject+"."+info.Instance))
		if err == nil && subject != inspect.SubjectDrain && subject != inspect.SubjectResume {
			err = service.AddEndpoint(name, handler, micro.WithEndpointSubject(subject))
		}
		if err != nil {
			_ = service.Stop() // the connection is closed then
			return nil, fmt.Errorf("worker: answer inspectors: %w", err)
		}
	}
	return func() { _ = service.Stop() }, nil // the connection is closed then
}

// isInspectionDenied reports whether an error means that the user may not answer inspectors. A worker can work its jobs all the same.
func isInspectionDenied(err error) bool {
	text := err.Error()
	return strings.Contains(text, `"`+inspect.Service+`.v1.`) || strings.Contains(text, `"`+micro.APIPrefix+`.`)
}

// answerInfo returns the answer to a request for the Info, with as many handlers as fit.
func (w *Worker) answerInfo(ctx context.Context, info inspect.Info) []byte {
	info.Stopping = ctx.Err() != nil
	w.describe(&info)
	return w.fit(len(w.routes), func(n int) any {
		info.Handlers, info.HandlersOmitted = make([]inspect.Handler, 0, n), len(w.routes)-n
		for _, r := range w.routes[:n] {
			info.Handlers = append(info.Handlers, r.describe(w.cfg.Consumer))
		}
		if n == 0 {
			info.Last.Waits, info.Last.Failing = nil, nil
		}
		return info
	})
}

// answerRecent returns the answer to a request for the last attempts.
func (w *Worker) answerRecent(info inspect.Info) []byte {
	all := w.recent.latest()
	return w.fit(len(all), func(n int) any {
		return inspect.Recent{ID: info.ID, Instance: info.Instance, Attempts: all[:n], Omitted: len(all) - n}
	})
}

// answerStacks returns the answer to a request for the running attempts.
func (w *Worker) answerStacks(info inspect.Info) []byte {
	all, labels := w.deliveries.describe()
	dumps := stacksOf(max(minStacks, min(maxStacks, maxAnswer/(1+len(all)))), labels...)
	for i, of := range labels {
		all[i].Stacks = dumps[of]
	}
	slices.SortFunc(all, func(a, b inspect.Running) int { return a.Started.Compare(b.Started) })
	return w.fit(len(all), func(n int) any {
		return inspect.Stacks{ID: info.ID, Instance: info.Instance, Attempts: all[:n], Omitted: len(all) - n}
	})
}

// fit returns an answer with as many of its n elements as fit into a message. Texts are cut, so an answer without elements fits.
func (w *Worker) fit(n int, answer func(n int) any) []byte {
	limit := min(int(w.nc.MaxPayload()), maxAnswer)
	for {
		data, _ := json.Marshal(answer(n))
		if len(data) <= limit || n == 0 {
			return data
		}
		n = min(n-1, n*limit/len(data))
	}
}

// describe sets the fields of an Info that change.
func (w *Worker) describe(info *inspect.Info) {
	info.Attempts, info.Last, info.Now = w.recent.counted(), inspect.Sum(w.recent.latest()), time.Now().UTC()
	info.Last.Unhandled = w.recent.unhandled.Load()
	info.Drained = w.draining.Load()
	info.Waiting = int(w.deliveries.parked.Load())
	w.deliveries.each(func(d *delivery) {
		if d.isRunning() {
			info.Running++
			if d.phase == phaseStuck {
				info.Stuck++
				if len(info.StuckJobs) < maxStuckJobs {
					info.StuckJobs = append(info.StuckJobs, clip(d.info.ID, maxShort))
				}
			}
		}
	})
	for i, p := range w.pausesNow() {
		if i == maxPaused {
			break
		}
		info.Paused = append(info.Paused, clip(p.Pattern, maxShort))
	}
	w.condition.mu.Lock()
	defer w.condition.mu.Unlock()
	problem := w.condition.problem()
	if info.Ready = problem == nil; !info.Ready {
		info.Problem = safeText(w.denial(problem))
	}
}

// describe returns the description of a handler for inspectors.
func (r *route) describe(consumer string) inspect.Handler {
	h := inspect.Handler{
		Pattern: clip(r.pattern, maxShort), Consumer: ConsumerOf(consumer, r.policy.Priority), MaxAttempts: r.policy.MaxAttempts,
		Ordered: r.policy.Ordered, Timeout: max(r.policy.Timeout, 0),
	}
	for _, l := range r.policy.Limits {
		h.Limits = append(h.Limits, l.Name)
	}
	return h
}

// describe returns the running attempts without their stacks, and the labels of their goroutines.
func (t *deliveries) describe() (all []inspect.Running, labels []label) {
	all = []inspect.Running{}
	t.each(func(d *delivery) {
		if d.isRunning() {
			all = append(all, inspect.Running{
				Job: clip(d.info.ID, maxShort), Subject: clip(d.info.Subject, maxShort), Sequence: d.info.Sequence, Attempt: d.info.Attempt,
				Consumer: d.info.Consumer, Started: d.started.UTC(), Stuck: d.phase == phaseStuck,
			})
			labels = append(labels, d.label)
		}
	})
	return all, labels
}

// describeUnhandled returns a job without a handler, for inspectors.
func (d *delivery) describeUnhandled(at time.Time) *inspect.Unhandled {
	return &inspect.Unhandled{Subject: clip(d.info.Subject, maxShort), At: at.UTC()}
}

// maxRecent is the number of attempts that a worker remembers: 22 KiB and their texts.
const maxRecent = 200

// recent are the last attempts of a worker. The zero value has none.
type recent struct {
	mu    sync.Mutex
	ended map[string]uint64 // by outcome
	next  int               // the place of the next attempt: in a full ring, of the oldest
	ring  []inspect.Attempt

	unhandled atomic.Pointer[inspect.Unhandled] // the last job without a handler
}

// add adds the attempt of d, which has ended with an outcome. The texts of the job are not clipped here but by latest: few attempts are
// ever shown.
func (r *recent) add(d *delivery, reached Outcome, err error, ended time.Time) {
	a := inspect.Attempt{
		Job: d.info.ID, Subject: d.info.Subject, Sequence: d.info.Sequence, Attempt: d.info.Attempt, Consumer: d.info.Consumer,
		Started: d.started, Outcome: string(reached), Pattern: d.info.Pattern,
	}
	if a.Started.IsZero() {
		// The job was given up before its handler.
		a.Started = ended
	}
	if d.info.Attempt == 1 && !d.started.IsZero() {
		// The server's clock may be ahead of this one, and no wait at all would read as an unknown one.
		a.Waited = max(d.started.Sub(d.info.EnqueuedAt), 1)
	}
	a.Ran, a.Started = ended.Sub(a.Started), a.Started.UTC()
	if a.Error = d.failed; err != nil && a.Error == "" {
		a.Error = safeText(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		r.ended = make(map[string]uint64)
	}
	r.ended[a.Outcome]++
	if len(r.ring) < maxRecent {
		r.ring = append(r.ring, a)
		return
	}
	r.ring[r.next] = a
	r.next = (r.next + 1) % maxRecent
}

// latest returns the attempts, the latest first.
func (r *recent) latest() []inspect.Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := append(slices.Clone(r.ring[r.next:]), r.ring[:r.next]...)
	slices.Reverse(all)
	for i := range all {
		a := &all[i]
		a.Job, a.Subject, a.Pattern = clip(a.Job, maxShort), clip(a.Subject, maxShort), clip(a.Pattern, maxShort)
	}
	return all
}

// counted returns the number of attempts with each outcome.
func (r *recent) counted() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Collect(maps.All(r.ended))
}

const (
	// attemptLabel is the profiler label of the goroutines of an attempt. Goroutines that they start inherit it.
	attemptLabel = "worker_attempt"

	usualLabels = 8 // names and values
)

var lastLabel atomic.Uint64

// label names an attempt, in this process.
type label string

// stacksOf returns, for each of the labels, the stacks of the goroutines with it: at most limit bytes, the innermost call first.
// Goroutines with equal stacks are shown once, with their number. It stops every goroutine for a moment, once for all labels.
func stacksOf(limit int, labels ...label) map[label]string {
	var all bytes.Buffer
	const withLabels = 1
	if len(labels) == 0 || pprof.Lookup("goroutine").WriteTo(&all, withLabels) != nil {
		return nil
	}
	var (
		block strings.Builder
		found = make(map[label]string, len(labels))
		owner label
	)
	for _, name := range labels {
		found[name] = ""
	}
	flush := func() {
		if have, wanted := found[owner]; wanted && len(have) < limit {
			have += block.String() + "\n"
			found[owner] = strings.ToValidUTF8(have[:min(len(have), limit)], "?")
		}
		block.Reset()
		owner = ""
	}
	lines := bufio.NewScanner(&all)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "":
			flush()
		case strings.HasPrefix(line, "# labels: "):
			_, rest, _ := strings.Cut(line, strconv.Quote(attemptLabel)+`:"`)
			value, _, _ := strings.Cut(rest, `"`)
			owner = label(value)
		case strings.HasPrefix(line, "#\t"):
			block.WriteString(stackFrame(line) + "\n")
		default: // the number of goroutines, and their addresses
			count, _, _ := strings.Cut(line, " ")
			block.WriteString(count + " goroutine(s):\n")
		}
	}
	flush()
	return found
}

// stackFrame returns a line without its addresses, such as "#	0x4a	main.f+0x1c	/src/main.go:7".
func stackFrame(line string) string {
	fields := strings.FieldsFunc(line, func(r rune) bool { return r == '\t' || r == ' ' })
	const hash, address, function, place = 0, 1, 2, 3
	if len(fields) <= place || fields[hash] != "#" || fields[address] == "" {
		return line
	}
	name, _, _ := strings.Cut(fields[function], "+0x")
	return "\t" + name + " " + strings.Join(fields[place:], " ")
}

// clip shortens a text to at most limit bytes of valid UTF-8.
func clip(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.ToValidUTF8(text, "?")
}
