package test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/worker"
)

func TestTypeSendsJobsToItsHandler(t *testing.T) {
	t.Parallel()

	b := keyed(t, nil)
	c := client(t, b.js)

	w, err := worker.New(b.js, b.config(t))
	if err != nil {
		t.Fatal(err)
	}

	orders := worker.Type[order]{
		Keep: time.Hour, Key: func(o order) string {
			if o.N == 0 {
				return ""
			}

			return strconv.Itoa(o.N) + " *"
		}, Policy: worker.Policy{MaxAttempts: 3}, Subject: "jobs.order",
	}
	texts := worker.Type[string]{Subject: "jobs.text"}

	got := make(chan string, 10)

	err = orders.Handle(w, func(_ context.Context, job *worker.Job[order]) error {
		got <- strconv.Itoa(job.Args.N) + " of " + strconv.Itoa(job.MaxAttempts)

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	err = texts.Handle(w, func(_ context.Context, job *worker.Job[string]) error {
		got <- job.Args

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	start(t, w)

	for _, test := range []struct {
		job       worker.NewJob
		duplicate bool
		want      string
	}{
		{job: orders.New(order{N: 7}), want: "7 of 3"},
		{job: orders.New(order{N: 7}), duplicate: true},
		{job: orders.New(order{}), want: "0 of 3"},
		{job: orders.New(order{}), duplicate: true},
		{job: texts.New("hello"), want: "hello"},
		{job: texts.New("hello"), want: "hello"},
	} {
		if r := insert(t, c, test.job); r.Duplicate != test.duplicate {
			t.Errorf("%+v: %+v", test.job, r)
		}

		if !test.duplicate {
			if ran := receive(t, got, "the job"); ran != test.want {
				t.Errorf("ran %q, want %q", ran, test.want)
			}
		}
	}

	if err := (worker.Type[order]{Subject: "jobs.>"}).Handle(w, complete); err == nil {
		t.Error("a subject with a wildcard was accepted")
	}
}
