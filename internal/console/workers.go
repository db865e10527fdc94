package console

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/operate/watch"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	askTime  = 2 * time.Second // for all workers
	maxPause = 7 * 24 * 60     // minutes
)

func (c *Console) addWorkers() {
	c.page("GET /workers", nil, c.showWorkers)
	c.page("GET /workers/{instance}", []string{"account"}, c.showWorker)
	c.action("POST /workers/pause", nil, c.planPause)
	c.action("POST /workers/resume", nil, c.planResume)
	c.action("POST /workers/{instance}/drain", nil, c.planDrain(false))
	c.action("POST /workers/{instance}/resume", nil, c.planDrain(true, "--resume"))
}

type workerRow struct {
	found

	Link template.URL
	Odd  bool          // its version differs from that of most workers of its stream
	Wait time.Duration // see inspect.Wait95
}

// allWorkers returns all workers: those that answered the collector of the overview, which asks every 2 seconds. If none did, or the
// collector does not run, it asks the workers itself, which takes 250 ms after the last answer.
func (c *Console) allWorkers(ctx context.Context) ([]found, error) {
	if all := c.overview.latest(); len(all) > 0 {
		return all, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	all, _, err := c.findWorkers(ctx)
	return all, err
}

// findWorkers asks the workers of each account, and for the connections of the operator's own: its workers are those that have one, since
// beside accounts of services it takes the answers of all. here is nil where the user may not ask for them.
func (c *Console) findWorkers(ctx context.Context) (all []found, here map[string]watch.Connection, err error) {
	var asking sync.WaitGroup
	var mu sync.Mutex
	for _, a := range c.cfg.Accounts {
		asking.Go(func() {
			infos, failed := inspect.Workers(ctx, a.JetStream)
			mu.Lock()
			defer mu.Unlock()
			if a.Name == "" && c.denied.May(ctx, watch.SubjectConnections) {
				here, _ = watch.Connected(ctx, c.cfg.Conn) // nil then
			}
			if a.Name == "" && len(c.cfg.Accounts) > 1 {
				infos, failed = watch.Own(infos, here), nil
			}
			for _, info := range infos {
				all = append(all, found{info, a.Name, a.JetStream})
			}
			if !errors.Is(failed, inspect.ErrNoWorker) { // of this account
				err = errors.Join(err, failed)
			}
		})
	}
	asking.Wait()
	if len(all) == 0 && err == nil {
		err = inspect.ErrNoWorker
	}
	return all, here, err
}

// askWorkers returns descriptions of all workers. It is not an error if there is none.
func (c *Console) askWorkers(ctx context.Context) ([]workerRow, error) {
	all, err := c.allWorkers(ctx)
	if err != nil && len(all) == 0 && !errors.Is(err, inspect.ErrNoWorker) {
		return nil, err
	}
	return c.rowsOf(all), nil
}

// rowsOf describes workers, sorted by account and stream.
func (c *Console) rowsOf(all []found) []workerRow {
	votes := map[streamID]map[string]int{} // by stream and version
	rows := make([]workerRow, 0, len(all))
	for _, w := range all {
		row := workerRow{found: w, Link: c.href("/workers", w.Instance, query("account", w.Account))}
		row.Wait, _ = inspect.Wait95(w.Info)
		if votes[w.of()] == nil {
			votes[w.of()] = map[string]int{}
		}
		votes[w.of()][w.Version]++
		rows = append(rows, row)
	}
	for i, row := range rows {
		for _, n := range votes[row.of()] {
			rows[i].Odd = rows[i].Odd || n > votes[row.of()][row.Version]
		}
	}
	slices.SortFunc(rows, func(a, b workerRow) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.ID, b.ID), a.Started.Compare(b.Started))
	})
	return rows
}

// paused is a pause of a stream's handlers.
type paused struct {
	worker.Pause

	Account, Stream string
}

// pauses returns the pauses of the worker's stream. One round trip.
func (w found) pauses(ctx context.Context) (all []paused, err error) {
	a, err := Account{w.js, w.Account}.of(ctx)
	if err != nil || !subject.IsSafeToken(w.Stream) { // a worker may say any stream
		return nil, err
	}
	client, err := worker.NewClient(a.JetStream, worker.ClientConfig{Stream: w.Stream})
	if err != nil {
		return nil, err
	}
	pauses, err := client.Pauses(ctx)
	for _, p := range pauses {
		all = append(all, paused{p, w.Account, w.Stream})
	}
	return all, err
}

// Covers reports whether the pause holds every job of a handler.
func (p paused) Covers(pattern string) bool { return subject.Covers(p.Pattern, pattern) }

type workersPage struct {
	Paused  []paused
	Workers []workerRow
}

// showWorkers shows the workers that run, and the pauses of their streams. One round trip for each stream.
func (c *Console) showWorkers(r *request) error {
	rows, err := c.askWorkers(r.Context())
	if err != nil {
		return err
	}
	page := workersPage{Workers: rows}
	for i, row := range rows {
		if i > 0 && rows[i-1].of() == row.of() {
			continue
		}
		all, err := row.pauses(r.Context())
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) { // there is no bucket for pauses
			return err
		}
		page.Paused = append(page.Paused, all...)
	}
	r.Command, r.Live = "expediter jobs workers", topicTick
	return r.render("workers", "Workers", page)
}

type workerPage struct {
	workerRow

	Paused   []paused
	Recent   inspect.Recent
	Running  inspect.Stacks
	Problems []string
}

// worker returns the worker that a request names. The collector may not know one that has just begun, so that it is asked itself then.
func (c *Console) worker(r *request) (workerRow, error) {
	instance, account := r.PathValue("instance"), r.URL.Query().Get("account")
	is := func(w workerRow) bool { return w.Instance == instance && w.Account == account }
	rows, err := c.askWorkers(r.Context())
	if err != nil {
		return workerRow{}, err
	}
	if i := slices.IndexFunc(rows, is); i >= 0 {
		return rows[i], nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), askTime)
	defer cancel()
	all, _, err := c.findWorkers(ctx)
	for _, row := range c.rowsOf(all) {
		if is(row) {
			return row, nil
		}
	}
	if err != nil && !errors.Is(err, inspect.ErrNoWorker) {
		return workerRow{}, err
	}
	return workerRow{}, fail(http.StatusNotFound,
		"No worker %.100q answers. It has ended, or has no connection: look at the list of workers.", instance)
}

// showWorker shows one worker. Three questions to the worker, and a round trip. The question for stacks stops the worker for a moment.
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
	p.Recent, err = inspect.RecentOf(ctx, row.js, instance)
	ask(err)
	p.Last = inspect.Sum(p.Recent.Attempts) // the attempts on the page, which the collector may not know yet
	p.Wait, _ = inspect.Wait95(p.Info)
	p.Running, err = inspect.StacksOf(ctx, row.js, instance)
	ask(err)
	p.Paused, err = row.pauses(r.Context())
	ask(err)
	r.Command = jobsLine(row.Account, row.Stream, "workers", instance, "--recent")
	return r.render("worker", "Worker "+p.ID, p)
}

// planDrain makes a worker take no more jobs, or take jobs again.
func (c *Console) planDrain(resume bool, flags ...string) func(*request) (deed, error) {
	return func(r *request) (deed, error) {
		row, err := c.worker(r)
		if err != nil {
			return deed{}, err
		}
		a := operate.DrainWorker(row.js, &row.Info, resume)
		do := a.Do
		a.Do = func(ctx context.Context) (n int, done string, err error) {
			if n, done, err = do(ctx); err == nil {
				c.overview.changed(row.found)
			}
			return n, done, err
		}
		return deed{Action: a, Line: jobsLine(row.Account, row.Stream, "drain", append([]string{row.Instance}, flags...)...)}, nil
	}
}

func (c *Console) pauseForm(r *request) (client *worker.Client, of operate.JobSelection, pattern string, err error) {
	of = operate.JobSelection{Account: r.PostForm.Get("account"), Stream: r.PostForm.Get("stream")}
	pattern = r.PostForm.Get("pattern")
	a, err := c.account(r, of.Account)
	if err != nil {
		return nil, of, "", err
	}
	if err := subject.CheckPattern(pattern); err != nil {
		return nil, of, "", fail(http.StatusBadRequest, "%.100q is no pattern of subjects: %v.", pattern, err)
	}
	if client, err = worker.NewClient(a.JetStream, worker.ClientConfig{Stream: of.Stream}); err != nil {
		err = fail(http.StatusBadRequest, "%.100q is no stream of jobs.", of.Stream)
	}
	return client, of, pattern, err
}

func (c *Console) planPause(r *request) (deed, error) {
	client, of, pattern, err := c.pauseForm(r)
	if err != nil {
		return deed{}, err
	}
	minutes, err := strconv.Atoi(r.PostForm.Get("minutes"))
	if err != nil || minutes < 1 || minutes > maxPause {
		return deed{}, fail(http.StatusBadRequest, "It may be paused for 1 to %s minutes, and you wrote %.20q.",
			number(maxPause), r.PostForm.Get("minutes"))
	}
	until := time.Now().UTC().Add(time.Duration(minutes) * time.Minute)
	a := operate.PauseHandlers(client, of.Stream, worker.Pause{By: access.From(r.Context()).Name, Pattern: pattern, Until: until})
	return deed{Action: a, Line: of.Line("pause", pattern, "--for", strconv.Itoa(minutes)+"m")}, nil
}

func (c *Console) planResume(r *request) (deed, error) {
	client, of, pattern, err := c.pauseForm(r)
	if err != nil {
		return deed{}, err
	}
	return deed{Action: operate.ResumeHandlers(client, of.Stream, pattern), Line: of.Line("resume", pattern)}, nil
}

func jobsLine(account, stream, verb string, more ...string) string {
	return (&operate.JobSelection{Account: account, Stream: stream}).Line(verb, more...)
}
