package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	jobsOfPage   = 50  // of the list
	lookedOfPage = 200 // messages read for a page with a filter: each costs the server 10 µs
)

// jobTabs are the selections of jobs by their states, as the server counts them.
var jobTabs = []jobTab{ //nolint:gochecknoglobals // a table
	{Key: "", Title: "All"},
	{Key: "waiting", Title: "Waiting", states: []worker.State{worker.StateQueued}},
	{Key: "given", Title: "With a worker", states: []worker.State{worker.StateDelivered, worker.StateRunning, worker.StateRetrying}},
	{Key: "later", Title: "Delayed", states: []worker.State{worker.StateScheduled}},
	{Key: "ended", Title: "Ended and kept", states: []worker.State{worker.StateDone, worker.StateDead, worker.StateCancelled}},
}

// jobTab is a selection of jobs by their states.
type jobTab struct {
	Key, Title string
	Count      string // empty when it is not known

	states []worker.State
}

func (c *Console) addJobs() {
	c.page("GET /jobs", c.showStreams)
	c.page("GET /jobs/{stream}", c.showJobs)
	c.page("GET /jobs/{stream}/all", c.showSelection)
	c.page("GET /jobs/{stream}/{sequence}", c.showJob)
	c.action("POST /jobs/{stream}/cancel", "cancel", func(r *request) (deed, error) { return c.planJobs(r, CancelJobs) })
	c.action("POST /jobs/{stream}/run", "run", func(r *request) (deed, error) { return c.planJobs(r, RunJobs) })
}

// accountStream is a stream of an account.
type accountStream struct {
	*jetstream.StreamInfo

	Account string
}

// Bucket returns the name of the bucket of the stream.
func (s accountStream) Bucket() string { return strings.TrimPrefix(s.Config.Name, "KV_") }

// streams lists the streams for which want is true. One round trip for each 256 streams of each account.
func (c *Console) streams(ctx context.Context, want func(jetstream.StreamConfig) bool) (all []accountStream, err error) {
	for _, a := range c.cfg.Accounts {
		streams := a.JetStream.ListStreams(ctx)
		for info := range streams.Info() {
			if want(info.Config) {
				all = append(all, accountStream{info, a.Name})
			}
		}
		if err := streams.Err(); err != nil {
			return nil, fmt.Errorf("console: list the streams: %w", err)
		}
	}
	slices.SortStableFunc(all, func(a, b accountStream) int { return strings.Compare(a.Config.Name, b.Config.Name) })
	return all, nil
}

func (c *Console) showStreams(r *request) error {
	all, err := c.streams(r.Context(), worker.HasJobs)
	if err != nil {
		return err
	}
	r.Command, r.Live = "expediter jobs streams", topicTick
	return r.render("jobstreams", "Jobs", all)
}

// jobsQuery selects jobs of a stream.
type jobsQuery struct {
	Account, Stream string
	Tab             string
	Subject, Key    string
	From, Until     worker.Cursor

	client *worker.Client
	js     jetstream.JetStream
}

// jobsQuery reads the filter of an address or a form. One round trip.
func (c *Console) jobsQuery(r *request, q url.Values) (*jobsQuery, error) {
	a, err := c.account(r, q.Get("account"))
	if err != nil {
		return nil, err
	}
	p := &jobsQuery{
		Account: a.Name, Stream: r.PathValue("stream"), Tab: q.Get("state"), Subject: q.Get("subject"), Key: q.Get("key"),
		js: a.JetStream,
	}
	if !slices.ContainsFunc(jobTabs, func(t jobTab) bool { return t.Key == p.Tab }) {
		return nil, fail(http.StatusBadRequest, "There is no state %.30q: use one of the tabs.", p.Tab)
	}
	for name, at := range map[string]*worker.Cursor{"from": &p.From, "until": &p.Until} {
		if text := q.Get(name); text != "" {
			var made string
			_, err := fmt.Sscanf(text, "%d-%s", &at.Sequence, &made)
			if err == nil {
				at.Created, err = time.Parse(time.RFC3339Nano, made)
			}
			if err != nil {
				return nil, fail(http.StatusBadRequest, "%.50q is no place in the list: begin with its first page.", text)
			}
		}
	}
	p.client, err = c.jobsClient(r, p.Account, p.Stream)
	return p, err
}

// filter returns the filter for the worker's client.
func (p *jobsQuery) filter() worker.JobFilter {
	f := worker.JobFilter{From: p.From, Key: p.Key, Limit: jobsOfPage, Look: lookedOfPage, Subject: p.Subject}
	for _, tab := range jobTabs {
		if tab.Key == p.Tab {
			f.States = tab.states
		}
	}
	return f
}

// To returns the address of the list with another state, from a cursor.
func (p *jobsQuery) To(state string, from worker.Cursor) string {
	if q := p.to(state, from); len(q) > 0 {
		return p.Stream + "?" + q.Encode()
	}
	return p.Stream
}

func (p *jobsQuery) to(state string, from worker.Cursor) url.Values {
	q := p.Query()
	q.Set("state", state)
	q.Set("from", place(from))
	for name := range q {
		if q.Get(name) == "" {
			q.Del(name)
		}
	}
	return q
}

// place writes a place in the list, "" for its beginning or end.
func place(at worker.Cursor) string {
	if at.Sequence == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%s", at.Sequence, at.Created.Format(time.RFC3339Nano))
}

// Page returns the address of the first page of the list with another state.
func (p *jobsQuery) Page(state string) string { return p.To(state, worker.Cursor{}) }

// Line returns the command line of a verb for one job.
func (p *jobsQuery) Line(verb string, job any) string {
	return jobsLine(p.Account, p.Stream, verb, fmt.Sprint(job), "--yes")
}

// Query returns the filter without a place in the list.
func (p *jobsQuery) Query() url.Values {
	return url.Values{"account": {p.Account}, "key": {p.Key}, "state": {p.Tab}, "subject": {p.Subject}}
}

// Filtered reports whether the list leaves jobs out.
func (p *jobsQuery) Filtered() bool { return p.Tab != "" || p.Subject != "" || p.Key != "" }

// command returns the command line of expediter jobs for the jobs that the filter selects.
func (p *jobsQuery) command(verb string, more ...string) string {
	var states []string
	for _, state := range p.filter().States {
		if state != worker.StateDead { // which goes alone
			states = append(states, string(state))
		}
	}
	for _, flag := range [][2]string{{"--state", strings.Join(states, ",")}, {"--subject", p.Subject}, {"--key", p.Key}} {
		if flag[1] != "" {
			more = append(more, flag[0], flag[1])
		}
	}
	return jobsLine(p.Account, p.Stream, verb, more...)
}

// jobsLine returns a command line of expediter jobs about a stream.
func jobsLine(account, stream, verb string, more ...string) string {
	args := []string{"expediter", "jobs", verb, "--stream", stream}
	if account != "" {
		args = append(args, "--account", account)
	}
	return operate.Shell(append(args, more...)...)
}

// jobsPage is the list.
type jobsPage struct {
	*jobsQuery
	worker.JobPage

	Tabs []jobTab
}

// showJobs lists jobs. Its cost does not grow with the stream: two round trips for the counts, two more if few messages are not waiting
// jobs, and three for a page.
func (c *Console) showJobs(r *request) error {
	q, err := c.jobsQuery(r, r.URL.Query())
	if err != nil {
		return err
	}
	p := jobsPage{jobsQuery: q}
	if p.JobPage, err = q.page(r.Context()); err != nil {
		return sayJobs(err)
	}
	n := p.Counts
	known := []string{number(n.Messages), number(n.Queued), number(n.Delivered), "", ""}
	if n.Detailed {
		known[3], known[4] = number(n.Scheduled), number(n.Ended)
	}
	for i, tab := range jobTabs {
		tab.Count = known[i]
		p.Tabs = append(p.Tabs, tab)
	}
	r.Command, r.Live = q.command("list"), topicTick
	return r.render("jobs", "Jobs of "+q.Stream, p)
}

// page reads a page. Delayed jobs are in the order in which they are due, unless they are too many.
func (p *jobsQuery) page(ctx context.Context) (page worker.JobPage, err error) {
	f := p.filter()
	if p.Tab == "later" && p.Subject == "" && p.Key == "" && f.From.Sequence == 0 {
		jobs, all, err := p.client.Delayed(ctx)
		if err != nil {
			return page, err
		}
		if all {
			page, err = p.client.Jobs(ctx, worker.JobFilter{Count: true, Limit: 1})
			page.Jobs, page.Looked, page.Messages, page.Next = jobs[:min(len(jobs), jobsOfPage)], len(jobs), uint64(len(jobs)), worker.Cursor{}
			return page, err
		}
	}
	f.Count = true
	return p.client.Jobs(ctx, f)
}

// sayJobs returns an error of the client in words for readers.
func sayJobs(err error) error {
	missing, drift := &worker.MissingError{}, &worker.DriftError{}
	switch {
	case errors.Is(err, worker.ErrCursor):
		return fail(http.StatusGone, "The stream was made anew since that page was shown. Begin with the first page.")
	case errors.As(err, &missing):
		return fail(http.StatusNotFound, "There is no %s. Jobs are in the streams that the page Jobs lists.", missing.Asset)
	case errors.As(err, &drift):
		return fail(http.StatusConflict, "Its jobs cannot be listed: %v.", err)
	case errors.Is(err, worker.ErrNoJob):
		return fail(http.StatusNotFound, "There is no such job. It has ended, and nothing of its end is kept, or it never was.")
	case strings.Contains(err.Error(), "JobFilter."):
		return fail(http.StatusBadRequest, "The filter is not right: %s.", strings.ReplaceAll(err.Error(), "JobFilter.", ""))
	}
	return err
}
