package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	jobsLooked = 10_000 // the number of messages of a stream that a selection by filter reads
	jobsAtOnce = 1000   // the largest number of jobs of one action
)

// selectionPage has the jobs that an action on all matching jobs would change, among the messages that were read so far.
type selectionPage struct {
	*jobsQuery

	Actions []selectionAction
	Looked  int
	More    string // the address that reads on, "" when the jobs of one action have been read
	Title   string
	Next    string // the place of the first message that was not read, "" at the end
}

type selectionAction struct {
	Count                          int
	Line, Past, Title, Verb, Words string
}

// showSelection shows the number of jobs that an action on all matching jobs would change. It reads some messages, in three round trips,
// and then goes on by itself: its address has the counts so far.
func (c *Console) showSelection(r *request) error {
	query := r.URL.Query()
	q, err := c.jobsQuery(r, query)
	if err != nil {
		return err
	}
	p, most := selectionPage{jobsQuery: q}, 0
	for _, tab := range jobTabs[1:] {
		if tab.Key == q.Tab {
			p.Title = tab.Title
		}
	}
	before := func(name string) int {
		n, _ := strconv.Atoi(query.Get(name)) // 0 then
		return min(max(n, 0), jobsLooked)
	}
	actions := []JobAction{CancelJobs, RunJobs}
	for _, a := range actions {
		most = max(most, before(a.Verb))
	}
	f := q.filter()
	f.Limit, f.Look = max(jobsAtOnce-most, 1), lookedOfPage
	page, err := q.client.Jobs(r.Context(), f)
	if err != nil {
		return sayJobs(err)
	}
	p.Looked, p.Next, most = before("looked")+page.Looked, place(page.Next), 0
	next := q.to(q.Tab, page.Next)
	next.Set("looked", strconv.Itoa(p.Looked))
	for _, a := range actions {
		can := selectionAction{Count: before(a.Verb), Past: a.Past, Title: a.Title, Verb: a.Verb}
		for _, j := range page.Jobs {
			if a.Can(j) {
				can.Count++
			}
		}
		most = max(most, can.Count)
		can.Line = q.command(a.Verb, "--all", "--yes")
		can.Words = fmt.Sprintf("%s can be %s.", counted(can.Count, "job"), a.Past)
		next.Set(a.Verb, strconv.Itoa(can.Count))
		p.Actions = append(p.Actions, can)
	}
	if p.Next != "" && p.Looked < jobsLooked && most < jobsAtOnce {
		p.More = c.href("/jobs", q.Stream, "all") + "?" + next.Encode()
	}
	r.Command = q.command("list", "--limit", strconv.Itoa(jobsAtOnce))
	return r.render("jobsall", "All that match in "+q.Stream, p)
}

// JobAction is an action on jobs, [CancelJobs] or [RunJobs].
type JobAction struct {
	// Verb names the action, and Title begins a sentence. Past and Done say that it was done to jobs, and Lapsed that it did not apply to
	// them any more.
	Verb, Title, Past, Done, Lapsed string

	// Can reports whether the action applies to a job.
	Can func(worker.StoredJob) bool

	// Do acts on a job, and returns its state before.
	Do func(*worker.Client, context.Context, worker.JobRef) (worker.StoredJob, error)
}

// The actions on jobs.
var (
	CancelJobs = JobAction{
		Verb: "cancel", Title: "Cancel", Past: "cancelled", Done: "Cancelled", Lapsed: "had ended",
		Do: (*worker.Client).Cancel, Can: func(j worker.StoredJob) bool { return !hasEnded(j) },
	}
	RunJobs = JobAction{
		Verb: "run", Title: "Run now", Past: "run now", Done: "Queued", Lapsed: "were not delayed any more",
		Do: (*worker.Client).RunNow, Can: func(j worker.StoredJob) bool { return j.State == worker.StateScheduled },
	}
)

// DoAll acts on jobs one by one, and returns the number of those that it changed, and of those to which it did not apply any more. It ends
// with the first error.
func (a JobAction) DoAll(ctx context.Context, client *worker.Client, refs []worker.JobRef) (done, lapsed int, err error) {
	for _, ref := range refs {
		was, err := a.Do(client, ctx, ref)
		switch {
		case err == nil && a.Can(was):
			done++
		case err == nil, errors.Is(err, worker.ErrNoJob):
			lapsed++
		default:
			return done, lapsed, err
		}
	}
	return done, lapsed, nil
}

// hasEnded reports whether a job will never run again.
func hasEnded(j worker.StoredJob) bool {
	return j.State == worker.StateDone || j.State == worker.StateDead || j.State == worker.StateCancelled
}

// RefOf returns the reference of a job that was found, even after it has moved.
func RefOf(j worker.StoredJob) worker.JobRef {
	return worker.JobRef{ID: j.ID, Sequence: j.Sequence, Subject: j.Subject}
}

// RefsOf returns the references of jobs, as RefOf does.
func RefsOf(jobs ...worker.StoredJob) (refs []worker.JobRef) {
	for _, j := range jobs {
		refs = append(refs, RefOf(j))
	}
	return refs
}

// planJobs plans an action on the jobs that a form names, or on all jobs that match its filter, if their number was typed.
func (c *Console) planJobs(r *request, a JobAction) (deed, error) {
	q, err := c.jobsQuery(r, r.PostForm)
	if err != nil {
		return deed{}, err
	}
	var refs []worker.JobRef
	target := ""
	if r.PostForm.Has("typed") {
		all := worker.Selection{Can: a.Can, Filter: q.filter(), Look: jobsLooked + jobsAtOnce, Until: q.Until}
		jobs, _, err := q.client.Select(r.Context(), all)
		if err != nil {
			return deed{}, sayJobs(err)
		}
		if typed := strings.ReplaceAll(strings.TrimSpace(r.PostForm.Get("typed")), ",", ""); typed != strconv.Itoa(len(jobs)) {
			return deed{}, fail(http.StatusConflict,
				"You typed %.20q, and %s jobs match now. Nothing was done: look again, and type the number that is shown.", typed, number(len(jobs)))
		}
		refs = RefsOf(jobs...)
		target = fmt.Sprintf("%d jobs of %s that match a filter", len(refs), q.Stream)
	} else if refs, err = namedJobs(r.PostForm); err != nil {
		return deed{}, err
	}
	switch {
	case len(refs) == 1:
		target = fmt.Sprintf("job %s:%d", q.Stream, refs[0].Sequence)
	case target == "": // a subject may contain the id of a user
		target = fmt.Sprintf("%d jobs of %s from %d to %d", len(refs), q.Stream, refs[0].Sequence, refs[len(refs)-1].Sequence)
	}
	lapsed := 0
	return deed{
		Target: target, To: c.href("/jobs") + "/" + q.To(q.Tab, worker.Cursor{}),
		Do: func(ctx context.Context) (n int, err error) {
			n, lapsed, err = a.DoAll(ctx, q.client, refs)
			if err != nil {
				err = fail(http.StatusServiceUnavailable, "%s %s of %s jobs, then it failed: %v.", a.Done, number(n), number(len(refs)), err)
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
