package deadletter_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// A group's filter selects its letters, and no others, whatever they are grouped by.
func TestSurveyGroupsWhatItsFiltersSelect(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	graveyard(t, b)
	b.put(t, letter(8, func(l *worker.DeadLetter) { l.Subject = "jobs.import" }))
	b.put(t, letter(9, func(l *worker.DeadLetter) { l.Worker = "vm-3" }))
	old := nats.NewMsg("dead.JOBS.jobs.mail.10") // of a version whose headers have no worker
	old.Header = nats.Header{worker.HeaderDeadReason: {string(worker.ReasonExhausted)}, worker.HeaderDeadSignature: {"smtp: code #"}}
	old.Data = check.Must(json.Marshal(letter(10, func(l *worker.DeadLetter) { l.Worker = "vm-3" })))(t)
	check.OK(t, check.Err(b.js.PublishMsg(t.Context(), old)))
	check.Same(t, "letters of vm-3", len(b.list(t, deadletter.Filter{Worker: "vm-3"}, deadletter.OldestFirst)), 2)
	for by, want := range map[deadletter.Grouping]int{deadletter.BySignature: 5, deadletter.BySubject: 5, deadletter.ByStream: 4, deadletter.ByWorker: 5} {
		for _, within := range []deadletter.Filter{{}, {Subject: "jobs.mail.>"}, {Signature: "smtp: code #"}, {Stream: "JOBS"}, {Worker: "vm-3"}} {
			o := check.Must(b.store.Survey(t.Context(), within, deadletter.SurveyOptions{By: by, Parts: 3}))(t)
			total := 0
			for _, g := range o.Groups {
				got := len(b.list(t, g.Filter(within), deadletter.OldestFirst))
				parts := 0
				for _, n := range g.Times {
					parts += n
				}
				check.That(t, got == g.Count && parts == g.Count && g.By == by, "%s of %+v: the filter of %+v selects %d", by, within, g, got)
				total += got
			}
			check.That(t, total == o.Total && total == len(b.list(t, within, deadletter.OldestFirst)), "%s of %+v: %+v", by, within, o)
			if within.Subject+within.Signature+within.Stream+within.Worker == "" {
				check.Same(t, "groups by "+string(by), len(o.Groups), want)
			}
		}
	}
}

// A survey with an index finds what one without does, whatever came and went since, and reads only what came.
func TestSurveyWithIndex(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	random, n := crash.Random(t)(0), 0
	for _, newest := range []uint64{0, 20} {
		x := &deadletter.Index{}
		for step := range 60 {
			for range random.IntN(4) {
				n++
				b.put(t, letter(n, func(l *worker.DeadLetter) { l.Subject = fmt.Sprint("jobs.mail.", random.IntN(3)) }))
			}
			letters := b.list(t, deadletter.Filter{}, deadletter.OldestFirst)
			if len(letters) > 0 && random.IntN(3) == 0 {
				gone := deadletter.Filter{Sequences: []uint64{letters[random.IntN(len(letters))].Sequence}}
				check.OK(t, check.Err(b.store.Discard(t.Context(), gone, deadletter.DiscardOptions{})))
			}
			f := deadletter.Filter{Subject: []string{"", "jobs.mail.1"}[step%2]}
			if step%5 == 4 && len(letters) > 0 {
				f.Since = letters[len(letters)/2].StoredAt
			}
			opts := deadletter.SurveyOptions{Newest: newest, Parts: 3}
			want := check.Must(b.store.Survey(t.Context(), f, opts))(t)
			opts.Index = x
			got := check.Must(b.store.Survey(t.Context(), f, opts))(t)
			if want.Looked != got.Looked { // either looks at nine in ten of the newest, at least
				check.That(t, max(want.Looked, got.Looked)-min(want.Looked, got.Looked) <= newest/10, "looked at %d and %d", want.Looked, got.Looked)
				continue
			}
			got.Until = want.Until // that of the server
			for i := range got.Groups {
				got.Groups[i].Times, want.Groups[i].Times = nil, nil // which that moves
			}
			check.Equal(t, want, got)
		}
	}
	x := &deadletter.Index{}
	read := func() uint64 {
		before := b.nc.Stats().InMsgs
		check.OK(t, check.Err(b.store.Survey(t.Context(), deadletter.Filter{}, deadletter.SurveyOptions{Index: x})))
		return b.nc.Stats().InMsgs - before
	}
	all, again := read(), read()
	check.That(t, all > 60 && again < 10, "%d messages were read, and then %d", all, again)
}

// A bounded survey reads the newest messages, also when most were removed, and says when there may be more.
func TestSurveyIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for n := range 100 {
		b.put(t, letter(n+1))
	}
	survey := func(since time.Time, newest uint64) deadletter.Overview {
		t.Helper()
		return check.Must(b.store.Survey(t.Context(), deadletter.Filter{Since: since}, deadletter.SurveyOptions{Newest: newest}))(t)
	}
	for newest, want := range map[uint64]int{10: 10, 1: 1, 99: 99, 100: 100, 1000: 100, 0: 100} {
		o := survey(time.Time{}, newest)
		check.That(t, o.Total == want && o.Looked == uint64(want) && o.Messages == 100 && o.Partial == (want < 100), "newest %d: %+v", newest, o)
	}
	var remove []uint64
	for seq := uint64(3); seq < 98; seq++ {
		if seq%10 != 0 {
			remove = append(remove, seq)
		}
	}
	_, err := b.store.Discard(t.Context(), deadletter.Filter{Sequences: remove}, deadletter.DiscardOptions{})
	check.OK(t, err)
	left := b.list(t, deadletter.Filter{}, deadletter.OldestFirst)
	check.Same(t, "letters left", len(left), 14)
	for newest := uint64(1); newest < 15; newest++ {
		o := survey(time.Time{}, newest)
		check.That(t, o.Total <= int(newest) && o.Total >= int(newest-newest/10) && o.Partial == (newest < 14), "newest %d of 14 with gaps: %+v", newest, o)
	}
	for at, e := range slices.Backward(left) {
		o := survey(e.StoredAt, 7)
		all := len(left) - at
		check.That(t, o.Total == min(all, 7) && o.Partial == (all > 7), "since %d of 14: %s", at, fmt.Sprint(o))
	}
}
