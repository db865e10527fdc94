package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	jobsOfPage   = 50  // of the list
	lookedOfPage = 200 // messages read for a page with a filter: each costs the server 10 µs
)

// jobTabs are the selections of jobs by their states, as the server counts them.
var jobTabs = []jobTab{ //nolint:gochecknoglobals // a table
	{State: "", Title: "All"},
	{State: "queued", Title: "Waiting"},
	{State: "delivered,running,retrying", Title: "With a worker"},
	{State: "scheduled", Title: "Delayed"},
	{State: "done,dead,cancelled", Title: "Ended and kept"},
}

// jobTab is a selection of jobs by their states.
type jobTab struct {
	State, Title string
	Count        string // empty when it is not known
}

func (c *Console) addJobs() {
	c.page("GET /jobs", c.showStreams)
	c.page("GET /jobs/{stream}", c.showJobs)
	c.page("GET /jobs/{stream}/all", c.showSelection)
	c.page("GET /jobs/{stream}/{sequence}", c.showJob)
	c.action("POST /jobs/{stream}/cancel", "cancel", func(r *request) (deed, error) { return c.planJobs(r, operate.CancelJobs) })
	c.action("POST /jobs/{stream}/run", "run", func(r *request) (deed, error) { return c.planJobs(r, operate.RunJobs) })
}

// accountStream is a stream of an account.
type accountStream struct {
	*jetstream.StreamInfo

	Account string
	Hidden  bool // the console's user may not read its messages
}

// Bucket returns the name of the bucket of the stream.
func (s accountStream) Bucket() string { return strings.TrimPrefix(s.Config.Name, "KV_") }

// streams lists the streams for which want is true. One round trip for each 256 streams of each account.
func (c *Console) streams(ctx context.Context, want func(jetstream.StreamConfig) bool) (all []accountStream, err error) {
	for _, a := range c.cfg.Accounts {
		if a, err = a.of(ctx); err != nil {
			return nil, err
		}
		streams := a.JetStream.ListStreams(ctx)
		for info := range streams.Info() {
			if want(info.Config) {
				hidden := info.Config.AllowDirect && !c.denied.May(ctx, jsapi.Prefix(a.JetStream)+"DIRECT.GET."+info.Config.Name)
				all = append(all, accountStream{info, a.Name, hidden})
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

// jobsQuery selects jobs of a stream, from a message on.
type jobsQuery struct {
	operate.JobSelection

	From uint64

	client *worker.Client
	js     jetstream.JetStream
}

// jobsQuery reads the filter of an address or a form.
func (c *Console) jobsQuery(r *request, q url.Values) (*jobsQuery, error) {
	p := &jobsQuery{}
	operate.Read(&p.JobSelection, q)
	a, err := c.ownAccount(r, p.Account)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(jobTabs, func(t jobTab) bool { return t.State == p.State }) {
		return nil, fail(http.StatusBadRequest, "There is no state %.30q: use one of the tabs.", p.State)
	}
	p.Account, p.Stream, p.js = a.Name, r.PathValue("stream"), a.JetStream
	if from := q.Get("from"); from != "" {
		if p.From, err = strconv.ParseUint(from, 10, 64); err != nil {
			return nil, fail(http.StatusBadRequest, "%.50q is no place in the list: begin with its first page.", from)
		}
	}
	p.client, err = c.jobsClient(r, p.Account, p.Stream)
	return p, err
}

// To returns the address of the list with another state, from a message on, 0 for the first page.
func (p *jobsQuery) To(state string, from uint64) string {
	of := *p
	of.State = state
	q := of.Query()
	if from > 0 {
		q.Set("from", strconv.FormatUint(from, 10))
	}
	return strings.TrimSuffix(p.Stream+"?"+q.Encode(), "?")
}

// All returns the address of the page about all jobs of the list.
func (p *jobsQuery) All() string { return p.Stream + "/all?" + p.Query().Encode() }

// Query returns the filter without a place in the list.
func (p *jobsQuery) Query() url.Values {
	jobs := p.JobSelection
	jobs.Stream = "" // which is in the path
	return operate.Query(&jobs)
}

// Filtered reports whether the list leaves jobs out.
func (p *jobsQuery) Filtered() bool { return p.State != "" || p.Subject != "" || p.Key != "" }

// Line returns the command line of a verb for one job.
func (p *jobsQuery) Line(verb string, job any) string {
	return p.JobSelection.Line(verb, fmt.Sprint(job), "--yes")
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
	f := q.Filter()
	f.Count, f.From.Sequence, f.Limit, f.Look = true, q.From, jobsOfPage, lookedOfPage
	if p.JobPage, err = q.client.Jobs(r.Context(), f); err != nil {
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
	r.Command, r.Live = operate.Line("jobs list", &q.JobSelection), topicTick
	return r.render("jobs", "Jobs of "+q.Stream, p)
}

// sayJobs returns an error of the client in words for readers.
func sayJobs(err error) error {
	missing, drift := &worker.MissingError{}, &worker.DriftError{}
	switch {
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
