package console

import (
	"net/http"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
)

func (c *Console) addSchedules() {
	c.page("GET /schedules", nil, c.showSchedules)
	c.action("POST /schedules/remove", nil, c.planUnschedule)
}

type scheduleRow struct {
	operate.Schedule

	Account string
}

// Command returns the command line that ends the schedule.
func (s scheduleRow) Command() string {
	return jobsLine(s.Account, s.Stream, "unschedule", s.Subject, "--yes")
}

type schedulesPage struct {
	Hidden    []string // streams
	Schedules []scheduleRow
}

// showSchedules lists the schedules of all streams that can have some. One round trip for each schedule, and some for each stream.
func (c *Console) showSchedules(r *request) error {
	streams, err := c.streams(r.Context())
	if err != nil {
		return err
	}
	p := &schedulesPage{}
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
		all, err := operate.Schedules(r.Context(), client, s.Config.Name)
		if err != nil {
			return err
		}
		for _, one := range all {
			p.Schedules = append(p.Schedules, scheduleRow{one, s.Account})
		}
	}
	r.Command = "expediter schedules"
	return r.render("schedules", "Schedules", p)
}

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

// planUnschedule ends a schedule, if its subject was typed.
func (c *Console) planUnschedule(r *request) (deed, error) {
	stream, subject, typed := r.PostForm.Get("stream"), r.PostForm.Get("subject"), r.PostForm.Get("typed")
	client, err := c.jobsClient(r, r.PostForm.Get("account"), stream)
	if err != nil {
		return deed{}, err
	}
	a, err := operate.Unschedule(r.Context(), client, stream, subject)
	if err == nil && typed != subject {
		err = fail(http.StatusConflict, "You typed %.200q. Nothing was done: type %s to remove its schedule.", typed, subject)
	}
	return deed{Action: a, To: c.href("/schedules")}, err
}
