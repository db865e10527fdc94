package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/worker"
)

// jobsAtOnce is the largest number of jobs of one action.
const jobsAtOnce = 1000

// selectionPage has the jobs that an action on all matching jobs would change.
type selectionPage struct {
	*jobsQuery

	Actions []selectionAction
}

type selectionAction struct {
	operate.JobAction

	All         bool // there are no more behind these
	Count       int
	Last        uint64 // the last of these: later jobs are not meant
	Line, Words string
}

// showSelection shows the number of jobs that an action on all matching jobs would change. It reads 10,000 messages at most for each
// action.
func (c *Console) showSelection(r *request) error {
	q, err := c.jobsQuery(r, r.URL.Query())
	if err != nil {
		return err
	}
	p := selectionPage{jobsQuery: q}
	for _, a := range []operate.JobAction{operate.CancelJobs, operate.RunJobs} {
		jobs, all, err := q.client.Select(r.Context(), q.Filter(), a.Can)
		if err != nil {
			return sayJobs(err)
		}
		action := selectionAction{
			JobAction: a, All: all, Count: len(jobs), Line: operate.Line("jobs "+a.Verb, &q.JobSelection, "--all", "--yes"),
			Words: fmt.Sprintf("%s can be %s.", counted(len(jobs), "job"), a.Past),
		}
		if len(jobs) > 0 {
			action.Last = jobs[len(jobs)-1].Sequence
		}
		p.Actions = append(p.Actions, action)
	}
	r.Command = operate.Line("jobs list", &q.JobSelection, "--limit", strconv.Itoa(jobsAtOnce))
	return r.render("jobsall", "All that match in "+q.Stream, p)
}

// planJobs plans an action on the jobs that a form names, or on all jobs that match its filter, if their number was typed.
func (c *Console) planJobs(r *request, a operate.JobAction) (deed, error) {
	q, err := c.jobsQuery(r, r.PostForm)
	if err != nil {
		return deed{}, err
	}
	var refs []worker.JobRef
	if r.PostForm.Has("typed") {
		last, _ := strconv.ParseUint(r.PostForm.Get("last"), 10, 64) // none match then
		jobs, _, err := q.client.Select(r.Context(), q.Filter(), func(j worker.StoredJob) bool { return a.Can(j) && j.Sequence <= last })
		if err != nil {
			return deed{}, sayJobs(err)
		}
		typed := strings.ReplaceAll(strings.TrimSpace(r.PostForm.Get("typed")), ",", "")
		if typed != strconv.Itoa(len(jobs)) || len(jobs) == 0 {
			return deed{}, fail(http.StatusConflict,
				"You typed %.20q, and %s of the jobs that were counted match now. Nothing was done: type the number that is shown.",
				typed, number(len(jobs)))
		}
		refs = operate.RefsOf(jobs...)
	} else if refs, err = namedJobs(r.PostForm); err != nil {
		return deed{}, err
	}
	lapsed := 0
	return deed{
		Target: operate.JobsTarget(q.Stream, refs), To: c.href("/jobs") + "/" + q.To(q.State, 0),
		Do: func(ctx context.Context) (n int, err error) {
			if n, lapsed, err = a.Do(ctx, q.client, refs); err != nil {
				err = fail(http.StatusServiceUnavailable, "%v.", err)
			}
			return n, err
		},
		Note: func(n int) string {
			note := fmt.Sprintf("%s %s.", a.Done, counted(n, "job"))
			if lapsed > 0 {
				note += fmt.Sprintf(" Of the others, %s %s.", number(lapsed), a.Lapsed)
			}
			return note
		},
	}, nil
}

// namedJobs reads the jobs that a form names by their numbers.
func namedJobs(form url.Values) (refs []worker.JobRef, err error) {
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
		refs = append(refs, worker.JobRef{ID: id, Sequence: n})
	}
	return refs, nil
}
