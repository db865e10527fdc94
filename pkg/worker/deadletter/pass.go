package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/time/rate"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/retry"
)

// maxTasks is the largest number of letters that are worked on at once.
const maxTasks = 16

// pass works on letters, several at a time. Outcomes are counted and reported in the order of the letters.
type pass struct {
	do      func(context.Context, *Entry) (uint64, error)
	dry     bool // changes nothing
	limit   int  // of letters, 0 for none
	limiter *rate.Limiter
	report  func(Outcome)

	err    error // the first, which ended it
	tasks  []task
	result Result
}

// task works on one letter, or removes one record. One task of a line runs at a time; a task without a line runs alone.
type task struct {
	line  string
	ended chan ending
}

// ending is the end of a task.
type ending struct {
	outcome *Outcome // nil when there was no letter
	err     error    // that ends the pass
}

// each works on every letter that the filter selects, as the leader has it. It also removes records of replays that it finds beside the
// letters and that are no longer needed.
func (s *Store) each(ctx context.Context, f Filter, p pass) (Result, error) {
	missing := make(map[uint64]bool, len(f.Sequences))
	for _, seq := range f.Sequences {
		missing[seq] = true
	}
	waiting, stop := context.WithCancel(ctx)
	for m, err := range s.everything(ctx, f, OldestFirst) {
		if err == nil {
			delete(missing, m.Sequence)
			err = s.take(ctx, waiting, f, &p, m)
		}
		p.err = cmp.Or(p.err, err)
		if p.err != nil || p.full() {
			break
		}
	}
	if p.err != nil {
		stop()
	}
	p.wait(0)
	stop()
	if p.err == nil && !p.full() {
		for seq := range missing {
			p.settle(Outcome{Entry: Entry{Sequence: seq}, Err: fmt.Errorf("%w: %d in stream %s", ErrNotFound, seq, s.cfg.Stream)})
		}
	}
	return p.result, p.err
}

// take starts the task of a selected message. The end of waiting ends the wait for a turn; the end of ctx ends the whole task.
func (s *Store) take(ctx, waiting context.Context, f Filter, p *pass, m *jsapi.Message) error {
	if s.isInternal(m.Subject) {
		if !p.dry && p.await(m.Subject) {
			p.start(m.Subject, func() (*Outcome, error) { return nil, s.sweep(ctx, m) })
		}
		return nil
	}
	e, err := s.pick(ctx, f, m)
	if e == nil || err != nil {
		return err
	}
	line := s.lineOf(m.Subject)
	if !p.await(line) {
		return nil
	}
	turn := p.limiter.Reserve().Delay()
	p.start(line, func() (*Outcome, error) {
		if !retry.Sleep(waiting, turn) {
			return nil, fmt.Errorf("deadletter: %w", waiting.Err())
		}
		return s.work(ctx, p, m.Sequence)
	})
	return nil
}

// work handles one letter of a pass, and tries again while the servers are not ready. Each try finds out how far the last one came, like a
// later call. It returns nil when there is no letter.
func (s *Store) work(ctx context.Context, p *pass, letter uint64) (o *Outcome, err error) {
	err = jsapi.Retry(ctx, jsapi.RetryWait, func(context.Context) (err error) { // RequestTimeout bounds each request
		o, err = s.workOnce(ctx, p, letter, o)
		return err
	})
	return o, err
}

// workOnce is one try of work. before is the outcome of the last try, nil for none.
func (s *Store) workOnce(ctx context.Context, p *pass, letter uint64, before *Outcome) (*Outcome, error) {
	e, err := s.load(ctx, letter)
	switch {
	case err != nil:
		return before, err
	case e == nil && before != nil && errors.Is(before.Err, errRemoval):
		return &Outcome{Entry: before.Entry}, s.forget(ctx, s.recordSubject(&before.Entry), 0)
	case e == nil: // removed by another call, which counts it
		return nil, nil
	}
	o := &Outcome{Entry: *e}
	if o.Sequence, o.Err = p.do(ctx, e); o.Err != nil && !o.Skipped() && isFatal(o.Err) {
		return o, fmt.Errorf("letter %d: %w", e.Sequence, o.Err)
	}
	return o, nil
}

// lineOf returns the name of the line of a letter, the same for all letters of one job's key; "" when the letter's message is not known
// yet. The first token of a job's subject is not part of its key, see package key.
func (s *Store) lineOf(subject string) string {
	rest, ok := strings.CutPrefix(subject, s.cfg.DeadSubject+".")
	stream, rest, _ := strings.Cut(rest, ".")
	_, key, more := strings.Cut(rest, ".")
	switch {
	case !ok:
		return ""
	case !more:
		return stream + "." + rest
	}
	return stream + ".*." + key
}

// await waits until a task of a line may start, and reports whether it may: not if the pass has failed.
func (p *pass) await(line string) bool {
	for p.err == nil && len(p.tasks) > 0 && (len(p.tasks) == maxTasks || line == "" ||
		slices.ContainsFunc(p.tasks, func(other task) bool { return other.line == line || other.line == "" })) {
		p.wait(len(p.tasks) - 1)
	}
	return p.err == nil
}

func (p *pass) start(line string, work func() (*Outcome, error)) {
	ended := make(chan ending, 1)
	p.tasks = append(p.tasks, task{line: line, ended: ended})
	go func() {
		o, err := work()
		if err != nil {
			o = nil
		}
		ended <- ending{outcome: o, err: err}
	}()
	if p.limit > 0 && p.settled()+len(p.tasks) >= p.limit {
		p.wait(0)
	}
}

// wait waits for the ends of the oldest tasks, until n are left.
func (p *pass) wait(n int) {
	for len(p.tasks) > n {
		l := <-p.tasks[0].ended
		p.tasks = slices.Delete(p.tasks, 0, 1)
		p.err = cmp.Or(p.err, l.err)
		if l.outcome != nil {
			p.settle(*l.outcome)
		}
	}
}

func (p *pass) full() bool { return p.limit > 0 && p.settled() >= p.limit }

func (p *pass) settle(o Outcome) {
	p.result.Add(o)
	if p.report != nil {
		p.report(o)
	}
}

func (p *pass) settled() int { return p.result.Done + p.result.Failed + p.result.Skipped }
