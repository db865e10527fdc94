package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/internal/subject"
	"github.com/expediter-io/expediter/pkg/redact"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

const (
	askTime  = 2 * time.Second // for all workers
	maxPause = 7 * 24 * 60     // minutes
)

// addWorkers adds the pages of workers.
func (c *Console) addWorkers() {
	c.page("GET /workers", c.showWorkers)
	c.page("GET /workers/{instance}", c.showWorker)
	c.action("POST /workers/pause", "pause", c.planPause)
	c.action("POST /workers/resume", "resume", c.planResume)
	c.action("POST /workers/{instance}/drain", "drain", c.planDrain(inspect.Drain, "takes no more jobs and finishes those that run"))
	c.action("POST /workers/{instance}/resume", "resume", c.planDrain(inspect.Resume, "takes jobs again within seconds", "--resume"))
}

// workerRow is a worker on a page.
type workerRow struct {
	inspect.Info

	Link string
	Odd  bool          // its version differs from that of most workers of its stream
	Wait time.Duration // see inspect.Wait95
}

// allWorkers returns all workers: those that answered the collector of the overview, which asks every 2 seconds. If none did, or the
// collector does not run, it asks the workers itself, which takes 250 ms after the last answer.
func (c *Console) allWorkers(ctx context.Context) ([]inspect.Info, error) {
	if infos := c.overview.latest(); len(infos) > 0 {
		return infos, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return inspect.Workers(ctx, c.cfg.Conn)
}

// askWorkers returns descriptions of all workers, sorted by stream. It is not an error if there is none.
func (c *Console) askWorkers(ctx context.Context) ([]workerRow, error) {
	infos, err := c.allWorkers(ctx)
	if err != nil && len(infos) == 0 && !errors.Is(err, inspect.ErrNoWorker) {
		return nil, err
	}
	votes := map[string]map[string]int{} // by stream and version
	rows := make([]workerRow, 0, len(infos))
	for _, info := range infos {
		row := workerRow{Info: info, Link: c.href("/workers", info.Instance)}
		row.Wait, _ = inspect.Wait95(info)
		if votes[info.Stream] == nil {
			votes[info.Stream] = map[string]int{}
		}
		votes[info.Stream][info.Version]++
		rows = append(rows, row)
	}
	for i, row := range rows {
		for _, n := range votes[row.Stream] {
			rows[i].Odd = rows[i].Odd || n > votes[row.Stream][row.Version]
		}
	}
	slices.SortFunc(rows, func(a, b workerRow) int {
		return cmp.Or(cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.ID, b.ID), a.Started.Compare(b.Started))
	})
	return rows, nil
}

// paused is a pause of a stream's handlers.
type paused struct {
	worker.Pause

	Account, Stream string
}

// pausesOf returns the pauses of a stream, and the stream's account. Two round trips, and one for each account that is tried before.
func (c *Console) pausesOf(ctx context.Context, stream string) (account string, all []paused, err error) {
	for _, a := range c.cfg.Accounts {
		if a, err = a.of(ctx); err != nil {
			return "", nil, err
		}
		_, err := a.JetStream.Stream(ctx, stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return "", nil, fmt.Errorf("console: look up stream %s: %w", stream, err)
		}
		client, err := worker.NewClient(a.JetStream, worker.ClientConfig{Stream: stream})
		if err != nil {
			return "", nil, err
		}
		pauses, err := client.Pauses(ctx)
		for _, p := range pauses {
			all = append(all, paused{p, a.Name, stream})
		}
		return a.Name, all, err
	}
	return "", nil, fmt.Errorf("%w: %s", jetstream.ErrStreamNotFound, stream)
}

// showWorkers shows the workers that run, and the pauses of their streams. Two round trips for each stream.
func (c *Console) showWorkers(r *request) error {
	rows, err := c.askWorkers(r.Context())
	if err != nil {
		return err
	}
	page := struct {
		Paused  []paused
		Workers []workerRow
	}{Workers: rows}
	for i, row := range rows {
		if i > 0 && rows[i-1].Stream == row.Stream {
			continue
		}
		_, all, err := c.pausesOf(r.Context(), row.Stream)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) { // the stream's account is not shown
			return err
		}
		page.Paused = append(page.Paused, all...)
	}
	r.Command, r.Live = "expediter jobs workers", topicTick
	return r.render("workers", "Workers", page)
}

// workerPage is the page of a worker.
type workerPage struct {
	workerRow

	Account  string
	Paused   []paused
	Recent   inspect.Recent
	Running  inspect.Stacks
	Strange  bool // no account that is shown has its stream
	Problems []string
}

// worker returns the worker that a path names.
func (c *Console) worker(r *request) (workerRow, error) {
	rows, err := c.askWorkers(r.Context())
	if err != nil {
		return workerRow{}, err
	}
	for _, row := range rows {
		if row.Instance == r.PathValue("instance") {
			return row, nil
		}
	}
	return workerRow{}, fail(http.StatusNotFound, "No worker %.100q answers. It has ended, or has no connection: look at the list of workers.",
		r.PathValue("instance"))
}

// showWorker shows one worker. Three questions to the worker, and two round trips. The question for stacks stops the worker for a moment.
func (c *Console) showWorker(r *request) error {
	row, err := c.worker(r)
	if err != nil {
		return err
	}
	p, instance := workerPage{workerRow: row}, row.Instance
	ask := func(err error) {
		if err != nil {
			p.Problems = append(p.Problems, redact.Error(err).Error())
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	p.Recent, err = inspect.RecentOf(ctx, c.cfg.Conn, instance)
	ask(err)
	p.Last = inspect.Sum(p.Recent.Attempts) // the attempts on the page, which the collector may not know yet
	p.Wait, _ = inspect.Wait95(p.Info)
	p.Running, err = inspect.StacksOf(ctx, c.cfg.Conn, instance)
	ask(err)
	if p.Account, p.Paused, err = c.pausesOf(r.Context(), p.Stream); errors.Is(err, jetstream.ErrStreamNotFound) {
		p.Strange, err = true, nil
	}
	ask(err)
	r.Command = operate.Shell("expediter", "jobs", "workers", instance, "--recent")
	return r.render("worker", "Worker "+p.ID, p)
}

// tell is inspect.Drain or inspect.Resume.
type tell func(ctx context.Context, nc *nats.Conn, instance string) (inspect.Info, error)

// planDrain makes a worker take no more jobs, or take jobs again.
func (c *Console) planDrain(do tell, effect string, flags ...string) func(*request) (deed, error) {
	return func(r *request) (deed, error) {
		row, err := c.worker(r)
		return deed{
			Do: func(ctx context.Context) (int, error) {
				info, err := do(ctx, c.cfg.Conn, row.Instance)
				if errors.Is(err, inspect.ErrNoWorker) {
					return 0, fail(http.StatusConflict, "It does not answer: it may have ended. Look again, or pause its handlers.")
				}
				if err == nil {
					c.overview.changed(info)
				}
				return 1, err
			},
			Note: func(int) string {
				return fmt.Sprintf("%s %s. The same in a shell: %s", row.ID, effect,
					operate.Shell(append([]string{"expediter", "jobs", "drain", row.Instance}, flags...)...))
			},
			Target: row.Name(),
		}, err
	}
}

// pauseForm reads the form of a pause.
func (c *Console) pauseForm(r *request) (client *worker.Client, pattern, target string, err error) {
	a, err := c.account(r, r.PostForm.Get("account"))
	if err != nil {
		return nil, "", "", err
	}
	stream, pattern := r.PostForm.Get("stream"), r.PostForm.Get("pattern")
	if err := subject.CheckPattern(pattern); err != nil {
		return nil, "", "", fail(http.StatusBadRequest, "%.100q is no pattern of subjects: %v.", pattern, err)
	}
	client, err = worker.NewClient(a.JetStream, worker.ClientConfig{Stream: stream})
	if err != nil {
		return nil, "", "", fail(http.StatusBadRequest, "%.100q is no stream of jobs.", stream)
	}
	return client, pattern, fmt.Sprintf("handler %q of %s", pattern, stream), nil
}

func (c *Console) planPause(r *request) (deed, error) {
	client, pattern, target, err := c.pauseForm(r)
	if err != nil {
		return deed{}, err
	}
	minutes, err := strconv.Atoi(r.PostForm.Get("minutes"))
	if err != nil || minutes < 1 || minutes > maxPause {
		return deed{}, fail(http.StatusBadRequest, "It may be paused for 1 to %s minutes, and you wrote %.20q.",
			number(maxPause), r.PostForm.Get("minutes"))
	}
	pause := worker.Pause{
		By: access.From(r.Context()).Name, Pattern: pattern, Until: time.Now().UTC().Add(time.Duration(minutes) * time.Minute),
	}
	return deed{
		Do: func(ctx context.Context) (int, error) {
			err := client.Pause(ctx, pause)
			if untaken, ok := errors.AsType[*worker.UntakenError](err); ok {
				return 0, fail(http.StatusConflict, "No worker takes such jobs, so nothing was paused: %v.", untaken)
			}
			return min(1, minutes), err
		},
		Note: func(int) string {
			return fmt.Sprintf("%s is paused until %s UTC. Workers follow within seconds; jobs that run go on. The same in a shell: %s", pattern,
				pause.Until.Format("15:04:05"), pauseLine("pause", r.PostForm, "--for", strconv.Itoa(minutes)+"m"))
		},
		Target: target,
	}, nil
}

func (c *Console) planResume(r *request) (deed, error) {
	client, pattern, target, err := c.pauseForm(r)
	return deed{
		Do: func(ctx context.Context) (int, error) {
			was, err := client.Resume(ctx, pattern)
			if err == nil && !was {
				return 0, fail(http.StatusConflict, "%q is not paused any more.", pattern)
			}
			return 1, err
		},
		Note: func(int) string {
			return pattern + " goes on. The same in a shell: " + pauseLine("resume", r.PostForm)
		},
		Target: target,
	}, err
}

// pauseLine returns the command line with the effect of a form.
func pauseLine(verb string, form url.Values, more ...string) string {
	return jobsLine(form.Get("account"), form.Get("stream"), verb, append([]string{form.Get("pattern")}, more...)...)
}

// jobsLine returns a command line of expediter jobs about a stream.
func jobsLine(account, stream, verb string, more ...string) string {
	return (&operate.JobSelection{Account: account, Stream: stream}).Line(verb, more...)
}
