package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// errFailed is returned when a test failed: the report says which.
var errFailed = errors.New("a test failed")

// again does what the arguments ask for and reports to w. It returns errFailed if a test failed.
func again(ctx context.Context, args []string, w io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.scratch, err = os.MkdirTemp("", "again"); err != nil {
		return fmt.Errorf("build the tests: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.scratch)) }()
	tests, err := o.tests(ctx)
	if err != nil {
		return err
	}
	r := newReport(o, w)
	for _, k := range o.kinds {
		if err = each(ctx, k, o.parallel, tests, r); err != nil {
			break
		}
	}
	if interrupted := ctx.Err() != nil; interrupted {
		r.printf("\ninterrupted: what was under way is not counted, but for the tests that had failed\n")
		err = ctx.Err()
	}
	if r.summary() && (err == nil || ctx.Err() != nil) {
		err = errFailed
	}
	return errors.Join(err, r.err)
}

// each runs the tests under one condition, some of the runs at the same time. It ends when a run cannot be made.
func each(ctx context.Context, k kind, parallel int, tests tests, r *report) (err error) {
	stop, err := busy(k.loops)
	if err != nil {
		return err
	}
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int)
	var runs sync.WaitGroup
	for range min(parallel, k.runs) {
		runs.Go(func() {
			for n := range numbers {
				if err := r.add(ctx, k, n, tests); err != nil {
					cancel(err)
				}
			}
		})
	}
	for n := range k.runs {
		select {
		case numbers <- n + 1:
		case <-ctx.Done():
		}
	}
	close(numbers)
	runs.Wait()
	return context.Cause(ctx)
}

// busy starts processes that each keep a core busy. They end with stop, or with this process.
func busy(loops int) (stop func(), err error) {
	const loop = `while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done`
	var all []*exec.Cmd
	stop = func() {
		for _, cmd := range all {
			_ = cmd.Process.Kill() //nolint:errcheck // it runs until then
			_ = cmd.Wait()         //nolint:errcheck // it was killed
		}
	}
	for range loops {
		cmd := exec.Command("/bin/sh", "-c", loop) //nolint:noctx // stop ends it
		if err := cmd.Start(); err != nil {
			stop()
			return nil, fmt.Errorf("keep a core busy: %w", err)
		}
		all = append(all, cmd)
	}
	return stop, nil
}

// spent is what a run took.
type spent struct{ wall, cpu time.Duration }
