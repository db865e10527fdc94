package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/robfig/cron/v3"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/output"
	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
	"github.com/expediter-io/expediter/pkg/worker"
)

func newSchedules(g *globals) *cobra.Command {
	f := &natsFlags{globals: g}
	var format string
	cmd := &cobra.Command{
		Use:   "schedules STREAM",
		Short: "List the periodic jobs of a stream",
		Long: `Schedules lists the jobs that the server inserts into a stream again and again: the subject of the runs, when they are due
(cron, with the second first, or an interval), and since when. NEXT is computed from that. An interval begins anew when the
stream had no leader at the time of a run.`,
		Example: `  expediter schedules REPORTS
  expediter schedules REPORTS -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(format, deadFormats...); err != nil {
				return err
			}
			return f.schedules(cmd.Context(), args[0], format)
		},
	}
	f.register(cmd.Flags())
	f.registerAccount(cmd.Flags())
	outputFlag(cmd, &format, deadFormats...)
	return cmd
}

// scheduleRow is a schedule in a list.
type scheduleRow struct {
	Subject  string    `json:"subject"`
	Cron     string    `json:"cron,omitempty"`
	Every    string    `json:"every,omitempty"`
	TimeZone string    `json:"timeZone,omitempty"`
	Next     time.Time `json:"next,omitzero"`
	Since    time.Time `json:"since"`
}

func (f *natsFlags) schedules(ctx context.Context, stream, format string) (err error) {
	js, stop, err := f.connect(ctx, "expediter schedules")
	if err != nil {
		return err
	}
	defer stop()
	client, err := worker.NewClient(js, worker.ClientConfig{RequestTimeout: f.timeout, Stream: stream})
	if err != nil {
		return &UsageError{Err: err}
	}
	all, err := client.Schedules(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	if err != nil {
		return err
	}
	now := time.Now()
	out := output.NewRows(f.config.Stdout, output.Format(format),
		table.Column{Name: "SUBJECT"}, table.Column{Name: "WHEN"}, table.Column{Name: "TIME ZONE"},
		table.Column{Name: "NEXT"}, table.Column{Name: "SINCE"})
	defer func() { err = errors.Join(err, out.Close()) }()
	for _, s := range all {
		row := scheduleRow{Subject: s.Subject, Cron: s.Cron, TimeZone: s.TimeZone, Since: s.Since.UTC()}
		when := s.Cron
		if s.Every > 0 {
			row.Every = s.Every.String()
			when = "every " + row.Every
		}
		if row.Next, err = nextRun(s, now); err != nil {
			f.notef("%s: %v\n", table.Printable(s.Subject), err) // of another program
		}
		if err := out.Write(row, row.Subject, when, row.TimeZone, stampOf(row.Next), stamp(row.Since)); err != nil {
			return err
		}
	}
	return nil
}

// cronFields are those of the server, whose own parser is of the same origin.
var cronFields = cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// nextRun returns when the server inserts the next run of a schedule.
func nextRun(s worker.Scheduled, now time.Time) (time.Time, error) {
	if s.Every > 0 {
		next := s.Since.Round(time.Second).Add(s.Every)
		if late := now.Sub(next); late >= 0 {
			next = next.Add(late.Truncate(s.Every) + s.Every)
		}
		return next.UTC(), nil
	}
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return time.Time{}, fmt.Errorf("next run: %w", err)
	}
	when, err := cronFields.Parse(s.Cron)
	if err != nil {
		return time.Time{}, fmt.Errorf("next run: %w", err)
	}
	return when.Next(now.In(zone)).UTC(), nil
}
