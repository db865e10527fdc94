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
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	jobsOfPage   = 50  // of the list
	lookedOfPage = 200 // messages read for a page with a filter: each costs the server 10 µs
)

// jobTabs are the selections of jobs by their states that the server counts.
var jobTabs = []string{"", "queued", "delivered,running,retrying", "scheduled", "done,dead,cancelled"}

// jobTab is a selection of jobs by their states.
type jobTab struct {
	State, Title string
	Count        string // empty when it is not known
}

func (c *Console) addJobs() {
	c.page("GET /jobs", nil, c.showStreams)
	c.page("GET /jobs/{stream}", names(&operate.JobSelection{}, "from"), c.showJobs)
	c.page("GET /jobs/{stream}/{sequence}", names(&operate.JobSelection{}, "id"), c.showJob)
	for _, action := range []operate.JobAction{operate.CancelJobs, operate.RunJobs} {
		parameters := names(&operate.JobSelection{}, "all", "job", "last", "typed")
		c.action("POST /jobs/{stream}/"+action.Verb, parameters, func(r *request) (deed, error) {
			return c.planJobs(r, action)
		})
	}
}

type accountStream struct {
	*jetstream.StreamInfo

	Account string
	Hidden  bool // the console's user may not read its messages
}

// streams lists the streams with jobs. One round trip for each 256 streams of each account.
func (c *Console) streams(ctx context.Context) (all []accountStream, err error) {
	for _, a := range c.cfg.Accounts {
		if a, err = a.of(ctx); err != nil {
			return nil, err
		}
		streams, err := operate.Streams(ctx, a.JetStream)
		if err != nil {
			return nil, err
		}
		for _, info := range streams {
			hidden := info.Config.AllowDirect && !c.denied.May(ctx, jsapi.Prefix(a.JetStream)+"DIRECT.GET."+info.Config.Name)
			all = append(all, accountStream{info, a.Name, hidden})
		}
	}
	slices.SortStableFunc(all, func(a, b accountStream) int { return strings.Compare(a.Config.Name, b.Config.Name) })
	return all, nil
}

func (c *Console) showStreams(r *request) error {
	all, err := c.streams(r.Context())
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
	for _, state := range p.JobSelection.Filter().States {
		if !slices.Contains(operate.States, string(state)) {
			return nil, fail(http.StatusBadRequest, "There is no state %.30q. States are %s.", state, strings.Join(operate.States, ", "))
		}
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

// To returns the query of the list with another state, from a message on, 0 for the first page.
func (p *jobsQuery) To(state string, from uint64) url.Values {
	of := p.JobSelection
	of.State, of.Stream = state, "" // which is in the path
	q := operate.Query(&of)
	if from > 0 {
		q.Set("from", strconv.FormatUint(from, 10))
	}
	return q
}

// Filtered reports whether the list leaves jobs out.
func (p *jobsQuery) Filtered() bool { return p.State != "" || p.Subject != "" || p.Key != "" }

// Line returns the command line of a verb for one job.
func (p *jobsQuery) Line(verb string, job any) string {
	return p.JobSelection.Line(verb, fmt.Sprint(job), "--yes")
}

type jobsPage struct {
	*jobsQuery
	worker.JobPage

	Tabs   []jobTab
	Unseen string
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
	p.Unseen = operate.Unseen(p.Displaced)
	n := p.Counts
	known := []string{number(n.Messages), number(n.Queued), number(n.Delivered), "", ""}
	if n.Detailed {
		known[3], known[4] = number(n.Scheduled), number(n.Ended)
	}
	tabs := jobTabs
	if !slices.Contains(tabs, q.State) { // which the server does not count
		tabs, known = append(slices.Clone(tabs), q.State), append(known, "")
	}
	for i, state := range tabs {
		p.Tabs = append(p.Tabs, jobTab{state, cmp.Or(strings.ReplaceAll(state, ",", ", "), "all"), known[i]})
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

const jobsAtOnce = 1000

// planJobs plans an action on the jobs that a form names, or on all jobs that match its filter. The question about these has the last of
// them, and its answer is for no later ones.
func (c *Console) planJobs(r *request, a operate.JobAction) (d deed, err error) {
	q, err := c.jobsQuery(r, r.PostForm)
	if err != nil {
		return d, err
	}
	var jobs []worker.StoredJob
	var lines []string
	more := ""
	if r.PostForm.Has("all") || r.PostForm.Has("last") {
		d.Filter, lines = operate.Query(&q.JobSelection), []string{operate.Line("jobs "+a.Verb, &q.JobSelection, "--all", "--yes")}
		jobs, more, err = c.matching(r, q, a)
	} else {
		jobs, err = namedJobs(r.PostForm)
		for _, j := range jobs {
			lines = append(lines, q.Line(a.Verb, j.Sequence))
		}
	}
	if err != nil {
		return d, sayJobs(err)
	}
	d.Of, d.Things, d.Line, d.To = len(jobs), "job", strings.Join(lines, " && "), c.href("/jobs", q.Stream, q.To(q.State, 0))
	d.Action, err = a.Plan(r.Context(), q.js, q.client, q.Stream, jobs, more)
	return d, err
}

// matching returns the jobs that match, up to the last one of a question.
func (c *Console) matching(r *request, q *jobsQuery, a operate.JobAction) ([]worker.StoredJob, string, error) {
	if r.PostForm.Has("last") {
		last, _ := strconv.ParseUint(r.PostForm.Get("last"), 10, 64) // none match then
		can := a.Can
		a.Can = func(j worker.StoredJob) bool { return can(j) && j.Sequence <= last }
	}
	jobs, more, err := a.Select(r.Context(), q.client, q.Filter())
	if err == nil && !r.PostForm.Has("last") {
		r.PostForm.Del("job")
		r.PostForm.Del("all")
		r.PostForm.Set("last", strconv.FormatUint(jobs[len(jobs)-1].Sequence, 10))
	}
	return jobs, more, err
}

func namedJobs(form url.Values) (jobs []worker.StoredJob, err error) {
	names := form["job"]
	if len(names) == 0 || len(names) > jobsAtOnce {
		return nil, fail(http.StatusBadRequest, "%s are selected: select 1 to %s. Nothing was done.",
			counted(len(names), "job"), number(jobsAtOnce))
	}
	for _, name := range names {
		place, id, _ := strings.Cut(name, " ")
		n, err := strconv.ParseUint(place, 10, 64)
		if err != nil || n == 0 {
			return nil, fail(http.StatusBadRequest, "%.30q is no job: want its number. Nothing was done.", name)
		}
		jobs = append(jobs, worker.StoredJob{ID: id, Sequence: n})
	}
	return jobs, nil
}
