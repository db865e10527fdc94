package worker

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// ended is a delivery of an attempt that has begun.
func ended(sequence uint64) *delivery {
	return &delivery{started: time.Now(), info: Info{Attempt: 1, ID: fmt.Sprint(sequence), Sequence: sequence, Subject: "jobs.mail"}}
}

// The last attempts are kept, the latest first, and all are counted. Deliveries that did not come to a handler are neither, unless
// their jobs were given up.
func TestRecentKeepsTheLastAttempts(t *testing.T) {
	t.Parallel()
	var r recent
	const n = maxRecent + 50
	for i := range n {
		r.add(ended(uint64(i)), outcome{kind: OutcomeCompleted}, nil, time.Now())
	}
	r.add(&delivery{}, outcome{kind: OutcomeLimited}, nil, time.Now())
	r.add(&delivery{info: Info{Sequence: n}}, outcome{kind: OutcomeDead}, errExhausted, time.Now())
	all := r.latest()
	if len(all) != maxRecent || all[0].Outcome != "dead" || all[0].Ran != 0 || all[0].Error == "" {
		t.Fatalf("%d attempts, the latest %+v", len(all), all[0])
	}
	for i, a := range all {
		if a.Sequence != uint64(n-i) {
			t.Fatalf("place %d has the job %d, want %d", i, a.Sequence, n-i)
		}
	}
	if got := r.counted(); len(got) != 2 || got["completed"] != n || got["dead"] != 1 {
		t.Errorf("counted %v", got)
	}
}

func TestSafeText(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"dial nats://host:4222: EOF": fmt.Errorf("dial nats://u:hunter2@host:4222: %w", io.EOF),
		`worker: payload of "jobs.mail" cannot be decoded: see its dead letter`: &DecodeError{Cause: errors.New("hunter2"), Subject: "jobs.mail"},
		strings.Repeat("x", maxLong): errors.New(strings.Repeat("x", 1000)),
	} {
		if got := safeText(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// That a worker may not answer inspectors is no reason why its requests are not answered.
func TestDenialOfInspectionIsToldApart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`Permissions Violation for Subscription to "worker.v1.info"`: true, `Permissions Violation for Subscription to "$SRV.PING"`: true,
		`Permissions Violation for Publish to "$JS.API.STREAM.NAMES"`: false,
	} {
		if got := isOfInspection(errors.New(text)); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
}

// An attempt that completes costs no memory once there are 200.
func TestRecentAllocatesNothing(t *testing.T) {
	var r recent
	d, now := ended(1), time.Now()
	add := func() { r.add(d, outcome{kind: OutcomeCompleted}, nil, now) }
	for range maxRecent {
		add()
	}
	if n := testing.AllocsPerRun(1000, add); n != 0 {
		t.Errorf("%v allocations for an attempt", n)
	}
}

func BenchmarkRecent(b *testing.B) {
	var r recent
	now := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for d := ended(1); pb.Next(); {
			r.add(d, outcome{kind: OutcomeCompleted}, nil, now)
		}
	})
}
