package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

func (c *Console) addSchedules() {
	c.page("GET /schedules", c.showSchedules)
	c.action("POST /schedules/run", "run", func(r *request) (deed, error) { return c.planSchedule(r, true) })
	c.action("POST /schedules/remove", "unschedule", func(r *request) (deed, error) { return c.planSchedule(r, false) })
}

// scheduleRow is a schedule.
type scheduleRow struct {
	worker.Scheduled

	Account, Stream string
	Last            *try // the last run that a worker remembers
	Next            time.Time
	Problem         string
}

// Command returns the command line of expediter jobs that does the same.
func (s scheduleRow) Command(verb string) string {
	more := []string{s.Subject, "--schedule", "--yes"}
	if verb != "run" {
		more = slices.Delete(more, 1, 2)
	}
	return jobsLine(s.Account, s.Stream, verb, more...)
}

// schedulesPage is the page.
type schedulesPage struct {
	Hidden    []string // streams
	Schedules []scheduleRow
	Unasked   string
}

// showSchedules lists the schedules of all streams that can have some. One round trip for each schedule, some for each stream, and one for
// the last runs of each worker.
func (c *Console) showSchedules(r *request) error {
	streams, err := c.streams(r.Context(), worker.HasJobs)
	if err != nil {
		return err
	}
	p := &schedulesPage{}
	now := time.Now()
	for _, s := range streams {
		if s.Hidden && s.Config.AllowMsgSchedules {
			p.Hidden = append(p.Hidden, s.Config.Name)
		}
		if s.Hidden || !s.Config.AllowMsgSchedules {
			continue
		}
		client, err := c.jobsClient(r, s.Account, s.Config.Name)
		if err != nil {
			return err
		}
		all, err := client.Schedules(r.Context())
		if err != nil {
			return err
		}
		for _, one := range all {
			row := scheduleRow{Account: s.Account, Stream: s.Config.Name, Scheduled: one}
			if row.Next, err = one.Next(now); err != nil {
				row.Problem = "another program's: " + err.Error()
			}
			p.Schedules = append(p.Schedules, row)
		}
	}
	if len(p.Schedules) > 0 {
		p.Unasked = c.askTries(r.Context(), "", func(w inspect.Info, a inspect.Attempt) {
			for i := range p.Schedules {
				s := &p.Schedules[i]
				if s.Stream == w.Stream && s.Subject == a.Subject && (s.Last == nil || a.Started.After(s.Last.Started)) {
					s.Last = &try{a, w.ID}
				}
			}
		})
	}
	r.Command = "expediter schedules"
	return r.render("schedules", "Schedules", p)
}

// jobsClient returns the client of a stream.
func (c *Console) jobsClient(r *request, account, stream string) (*worker.Client, error) {
	a, err := c.ownAccount(r, account)
	if err != nil {
		return nil, err
	}
	client, err := worker.NewClient(a.JetStream, worker.ClientConfig{
		Bucket: contracts.BucketJobs, DeadStream: contracts.StreamDead, Stream: stream,
	})
	if err != nil {
		return nil, fail(http.StatusBadRequest, "%.100q is no name of a stream.", stream)
	}
	return client, nil
}

// planSchedule runs a schedule now, or ends it.
func (c *Console) planSchedule(r *request, run bool) (deed, error) {
	form := r.PostForm
	client, err := c.jobsClient(r, form.Get("account"), form.Get("stream"))
	if err != nil {
		return deed{}, err
	}
	all, err := client.Schedules(r.Context())
	if err != nil {
		return deed{}, err
	}
	at := slices.IndexFunc(all, func(s worker.Scheduled) bool { return s.Subject == form.Get("subject") })
	if at < 0 {
		return deed{}, fail(http.StatusConflict, "No schedule inserts jobs on %.200q any more. Nothing was done.", form.Get("subject"))
	}
	s := all[at]
	d := deed{Target: fmt.Sprintf("schedule %q of %s", s.Subject, form.Get("stream")), To: c.href("/schedules")}
	if run {
		d.Do = func(ctx context.Context) (int, error) {
			_, err := client.RunSchedule(ctx, s.Subject)
			return 1, err
		}
		d.Note = func(int) string { return "A run of " + s.Subject + " is queued." }
		return d, nil
	}
	if form.Get("typed") != s.Subject {
		return deed{}, fail(http.StatusConflict, "You typed %.200q. Nothing was done: type %s to remove its schedule.",
			form.Get("typed"), s.Subject)
	}
	d.Do = func(ctx context.Context) (int, error) { return 1, client.Unschedule(ctx, s.Subject) }
	d.Note = func(int) string {
		return "Ended the schedule of " + s.Subject + ". The jobs that it has inserted stay."
	}
	return d, nil
}
