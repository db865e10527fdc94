package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/pkg/redact"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
	"github.com/expediter-io/expediter/pkg/worker/internal/stacks"
)

const (
	// maxAnswer bounds an answer to an inspector, together with the largest payload that the server takes.
	maxAnswer = 256 << 10

	// maxRecent is how many attempts a worker remembers: 22 KiB and their texts.
	maxRecent = 200

	// maxPaused is how many pauses an answer has.
	maxPaused = 32

	// maxShort and maxLong bound texts in answers, in bytes.
	maxShort = 256
	maxLong  = 512

	// minStackText is what is shown of the stacks of one attempt, however many run.
	minStackText = 1 << 10
)

// answerInspectors answers to package inspect until end. The subscriptions have goroutines of their own, which wait for no handler.
func (w *Worker) answerInspectors(ctx context.Context) (end func(), err error) {
	service, err := micro.AddService(w.nc, micro.Config{
		Description: "Runs jobs, and says which", Name: inspect.Service, QueueGroupDisabled: true, Version: "1.0.0",
		Metadata: map[string]string{"consumer": w.cfg.Consumer, "id": clip(w.cfg.ID, maxShort), "stream": w.cfg.Stream},
	})
	if err != nil {
		return nil, fmt.Errorf("worker: answer inspectors: %w", err)
	}
	instance, started := service.Info().ID, time.Now()
	trouble := "it has not begun to pull"
	w.trouble.Store(&trouble)
	end = func() {
		_ = service.Stop() //nolint:errcheck // the connection is closed then
	}
	drain := func(is bool) []byte {
		if w.draining.Swap(is) != is {
			w.log.InfoContext(ctx, EventDrained, "drained", is)
		}
		return w.describe(instance, started, ctx.Err() != nil)
	}
	for subject, answer := range map[string]func() []byte{
		inspect.SubjectInfo:   func() []byte { return w.describe(instance, started, ctx.Err() != nil) },
		inspect.SubjectRecent: func() []byte { return w.describeRecent(instance) },
		inspect.SubjectStacks: func() []byte { return w.describeRunning(instance) },
		inspect.SubjectDrain:  func() []byte { return drain(true) },
		inspect.SubjectResume: func() []byte { return drain(false) },
	} {
		handler := micro.HandlerFunc(func(r micro.Request) {
			_ = r.Respond(answer()) //nolint:errcheck // who asked gets none from a closed connection
		})
		name := subject[strings.LastIndexByte(subject, '.')+1:]
		err := service.AddEndpoint(name+"-one", handler, micro.WithEndpointSubject(subject+"."+instance))
		if err == nil && subject != inspect.SubjectDrain && subject != inspect.SubjectResume {
			err = service.AddEndpoint(name, handler, micro.WithEndpointSubject(subject))
		}
		if err != nil {
			end()
			return nil, fmt.Errorf("worker: answer inspectors: %w", err)
		}
	}
	return end, nil
}

// isOfInspection reports whether an error is that the user may not answer inspectors, which keeps no worker from its jobs.
func isOfInspection(err error) bool {
	text := err.Error()
	return strings.Contains(text, `"`+inspect.Service+`.v1.`) || strings.Contains(text, `"`+micro.APIPrefix+`.`)
}

// describe returns the answer to a question for what the worker is.
func (w *Worker) describe(instance string, started time.Time, stopping bool) []byte {
	host, _ := os.Hostname() //nolint:errcheck // it has none then
	info := inspect.Info{
		ID: clip(w.cfg.ID, maxShort), Instance: instance, Version: clip(w.cfg.Version, maxShort), Stream: w.cfg.Stream, Consumer: w.cfg.Consumer,
		Host: clip(host, maxShort), PID: os.Getpid(), Started: started.UTC(), Slots: w.cfg.Concurrency,
		Waiting: w.deliveries.waiting(), Attempts: w.recent.counted(), Stopping: stopping,
		Drained: w.draining.Load(), Last: inspect.Sum(w.recent.latest()),
	}
	w.deliveries.each(func(d *delivery) {
		if d.running {
			info.Running++
			if d.stuck {
				info.Stuck++
			}
		}
	})
	for i, p := range w.pausesNow() {
		if i == maxPaused {
			break
		}
		info.Paused = append(info.Paused, clip(p.Pattern, maxShort))
	}
	if trouble := w.trouble.Load(); trouble != nil {
		info.Problem = *trouble
	} else {
		info.Ready = true
	}
	return w.fit(len(w.routes), func(n int) any {
		info.Handlers, info.HandlersOmitted = make([]inspect.Handler, 0, n), len(w.routes)-n
		if n == 0 {
			info.Last.Waits = nil
		}
		for _, r := range w.routes[:n] {
			h := inspect.Handler{
				Pattern: clip(r.pattern, maxShort), Consumer: ConsumerOf(w.cfg.Consumer, r.policy.Priority), MaxAttempts: r.policy.MaxAttempts,
				Ordered: r.policy.Ordered, Timeout: max(r.policy.Timeout, 0),
			}
			for _, l := range r.policy.Limits {
				h.Limits = append(h.Limits, l.Name)
			}
			info.Handlers = append(info.Handlers, h)
		}
		return info
	})
}

// describeRecent returns the answer to a question for the last attempts.
func (w *Worker) describeRecent(instance string) []byte {
	all := w.recent.latest()
	return w.fit(len(all), func(n int) any {
		return inspect.Recent{ID: clip(w.cfg.ID, maxShort), Instance: instance, Attempts: all[:n], Omitted: len(all) - n}
	})
}

// describeRunning returns the answer to a question for the attempts that run.
func (w *Worker) describeRunning(instance string) []byte {
	all, labels := []inspect.Running{}, []stacks.Label{}
	w.deliveries.each(func(d *delivery) {
		if !d.running {
			return
		}
		labels = append(labels, d.label)
		all = append(all, inspect.Running{
			Job: clip(d.info.ID, maxShort), Subject: clip(d.info.Subject, maxShort), Sequence: d.info.Sequence, Attempt: d.info.Attempt,
			Started: d.started.UTC(), Stuck: d.stuck, Stacks: string(d.label), // until these are known
		})
	})
	slices.SortFunc(all, func(a, b inspect.Running) int { return a.Started.Compare(b.Started) })
	dumps := stacks.Of(max(minStackText, min(maxStackText, maxAnswer/(1+len(all)))), labels...)
	for i := range all {
		all[i].Stacks = dumps[stacks.Label(all[i].Stacks)]
	}
	return w.fit(len(all), func(n int) any {
		return inspect.Stacks{ID: clip(w.cfg.ID, maxShort), Instance: instance, Attempts: all[:n], Omitted: len(all) - n}
	})
}

// fit returns an answer with as many of its n elements as a message may have. Texts are cut, so it fits without elements.
func (w *Worker) fit(n int, answer func(n int) any) []byte {
	limit := min(int(w.nc.MaxPayload()), maxAnswer)
	for {
		data, _ := json.Marshal(answer(n)) //nolint:errcheck,errchkjson // texts, numbers and times of this century
		if len(data) <= limit || n == 0 {
			return data
		}
		n = min(n-1, n*limit/len(data))
	}
}

// recent are the last attempts of a worker, for those who ask. The zero value has none.
type recent struct {
	mu    sync.Mutex
	ended map[Outcome]uint64
	next  int // in a full ring, the oldest
	ring  []inspect.Attempt
}

// add notes how an attempt ended. A delivery that ended before its handler is none, unless its job was given up.
func (r *recent) add(d *delivery, o outcome, err error, ended time.Time) {
	if d.started.IsZero() && o.kind != OutcomeDead {
		return
	}
	a := inspect.Attempt{
		Job: clip(d.info.ID, maxShort), Subject: clip(d.info.Subject, maxShort), Sequence: d.info.Sequence, Attempt: d.info.Attempt,
		Started: d.started, Outcome: string(o.kind),
	}
	if a.Started.IsZero() {
		a.Started = ended
	}
	if d.info.Attempt == 1 && !d.started.IsZero() {
		a.Waited = max(d.started.Sub(d.info.EnqueuedAt), 1) // the clocks may differ
	}
	a.Ran, a.Started = ended.Sub(a.Started), a.Started.UTC()
	if err != nil {
		a.Error = safeText(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		r.ended = make(map[Outcome]uint64)
	}
	r.ended[o.kind]++
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
	return all
}

// counted returns how many attempts ended with each outcome.
func (r *recent) counted() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]uint64, len(r.ended))
	for outcome, n := range r.ended {
		all[string(outcome)] = n
	}
	return all
}

// safeText returns the beginning of an error's text for those who may not see payloads and passwords.
func safeText(err error) string {
	if undecodable, ok := errors.AsType[*DecodeError](err); ok { // its reason may quote the payload
		return clip(fmt.Sprintf("worker: payload of %q cannot be decoded: see its dead letter", undecodable.Subject), maxLong)
	}
	return clip(redact.Error(err).Error(), maxLong)
}
