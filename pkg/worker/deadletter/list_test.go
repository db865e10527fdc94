package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

func sequences(entries []deadletter.Entry) []uint64 {
	var all []uint64
	for _, e := range entries {
		all = append(all, e.Sequence)
	}
	return all
}

// putAllKinds stores three groups of letters, and messages of other programs.
func putAllKinds(t *testing.T, b *bundle) {
	t.Helper()

	b.put(t, letter(1))
	b.put(t, letter(2, func(l *worker.DeadLetter) { l.Subject = "jobs.mail.eu.2" }))
	b.put(t, letter(3, func(l *worker.DeadLetter) { l.Reason, l.Signature = worker.ReasonDiscarded, "no such user" }))
	b.put(t, letter(4, func(l *worker.DeadLetter) { l.Stream, l.Subject = "OTHER", "other.4" }))

	for _, foreign := range []string{"dead.JOBS.jobs.mail.5", "dead.note"} { // 5, 6
		check.OK(t, check.Err(b.js.Publish(t.Context(), foreign, []byte("not a letter"))))
	}

	b.advise(t, "MAX_DELIVERIES.JOBS.c", "{") // 7
}

// TestListSelects filters letters and other messages, which are listed whole. The others are not replayed, and can be discarded.
func TestListSelects(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	putAllKinds(t, b)

	middle := b.list(t, deadletter.Filter{Sequences: []uint64{3}}, deadletter.OldestFirst)[0].StoredAt

	for name, c := range map[string]struct {
		filter deadletter.Filter
		want   []uint64
	}{
		"everything":   {deadletter.Filter{}, []uint64{1, 2, 3, 4, 5, 6, 7}},
		"kind":         {deadletter.Filter{Kind: deadletter.KindUnreadable}, []uint64{5, 6}},
		"stranded":     {deadletter.Filter{Kind: deadletter.KindStranded}, []uint64{7}},
		"reason":       {deadletter.Filter{Reason: worker.ReasonDiscarded}, []uint64{3}},
		"sequences":    {deadletter.Filter{Sequences: []uint64{4, 2, 2, 99}}, []uint64{2, 4}},
		"signature":    {deadletter.Filter{Signature: "smtp: code #"}, []uint64{1, 2, 4}},
		"stream":       {deadletter.Filter{Stream: "OTHER"}, []uint64{4}},
		"subject":      {deadletter.Filter{Subject: "jobs.mail.*"}, []uint64{1, 3}},
		"deep subject": {deadletter.Filter{Subject: "jobs.mail.>", Signature: "smtp: code #"}, []uint64{1, 2}},
		"since":        {deadletter.Filter{Since: middle}, []uint64{3, 4, 5, 6, 7}},
		"until":        {deadletter.Filter{Until: middle}, []uint64{1, 2}},
		"before":       {deadletter.Filter{Before: 4, Since: middle}, []uint64{3}},
		"before all":   {deadletter.Filter{Before: 1}, nil},
		"nothing":      {deadletter.Filter{Signature: "x"}, nil},
	} {
		diff := cmp.Diff(c.want, sequences(b.list(t, c.filter, deadletter.OldestFirst)))
		check.That(t, diff == "", "%s (-want +got):\n%s", name, diff)

		slices.Reverse(c.want)

		diff = cmp.Diff(c.want, sequences(b.list(t, c.filter, deadletter.NewestFirst)))
		check.That(t, diff == "", "%s, newest first (-want +got):\n%s", name, diff)
	}

	all := b.list(t, deadletter.Filter{}, deadletter.OldestFirst)
	diff := cmp.Diff(letter(1), all[0].DeadLetter, cmpopts.EquateApproxTime(time.Hour))
	check.That(t, diff == "" && all[0].Problem == nil, "letter (-want +got):\n%s", diff)

	for _, i := range []int{4, 5, 6} {
		check.That(t, errors.Is(all[i].Problem, deadletter.ErrUnreadable), "entry %d: %v, want ErrUnreadable", all[i].Sequence, all[i].Problem)
	}

	// None of them is replayed, and all can be discarded.
	check.OK(t, check.Err(b.store.Discard(t.Context(), deadletter.Filter{Sequences: []uint64{1, 2, 3, 4}}, deadletter.DiscardOptions{})))

	b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Skipped: 3})

	r, err := b.store.Discard(t.Context(), deadletter.Filter{}, deadletter.DiscardOptions{})
	check.That(t, err == nil && r.Done == 3 && b.messages(t, "DEAD") == 0, "%+v, %v, %d left", r, err, b.messages(t, "DEAD"))
}

func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()

	const n = 1100

	b := setup(t, nil)
	for i := range n {
		b.put(t, letter(i+1, func(l *worker.DeadLetter) { l.Signature = fmt.Sprint("s", i) }))
	}

	overview, err := b.store.Survey(t.Context(), deadletter.Filter{}, deadletter.SurveyOptions{})
	check.That(t, err == nil && len(overview.Groups) == 1000 && overview.Others == n-1000 && overview.Total == n,
		"%d groups, %d others, %d in all, %v", len(overview.Groups), overview.Others, overview.Total, err)
}

// TestListReadsAcrossGaps is about windows of sequences: dense, sparse and empty ranges.
func TestListReadsAcrossGaps(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)

	var want []uint64

	for i := 1; i <= 1500; i++ {
		seq := b.put(t, letter(i))
		if i <= 3 || i > 1000 && i < 1200 || i == 1500 || i%97 == 0 {
			want = append(want, seq)
		}
	}

	dead := check.Must(b.js.Stream(t.Context(), "DEAD"))(t)

	for seq := uint64(1); seq <= 1500; seq++ {
		if !slices.Contains(want, seq) {
			check.OK(t, dead.DeleteMsg(t.Context(), seq))
		}
	}

	check.Equal(t, sequences(b.list(t, deadletter.Filter{}, deadletter.OldestFirst)), want)

	slices.Reverse(want)

	check.Equal(t, sequences(b.list(t, deadletter.Filter{}, deadletter.NewestFirst)), want)

	for _, order := range []deadletter.Order{deadletter.NewestFirst, deadletter.OldestFirst} { // a list that is left yields nothing more
		for _, err := range b.store.List(t.Context(), deadletter.Filter{}, order) {
			check.OK(t, err)
			break
		}
	}
}

func TestOpenNamesWhatIsWrong(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)

	_, err := deadletter.Open(t.Context(), nil, deadletter.Config{DeadSubject: "a.*", RequestTimeout: -1, Stream: "a b"})
	for _, field := range []string{"JetStream", "DeadSubject", "RequestTimeout", "Stream"} {
		check.That(t, err != nil && contains(err, field), "%s is not named: %v", field, err)
	}

	check.ErrorIs(t, check.Err(deadletter.Open(t.Context(), b.js, deadletter.Config{Stream: "NONE"})), deadletter.ErrNoStream)
	for _, seq := range []uint64{0, 1} {
		check.ErrorIs(t, check.Err(b.store.Get(t.Context(), seq)), deadletter.ErrNotFound, seq)
	}
	outcomes := b.replay(t, deadletter.Filter{Sequences: []uint64{7}}, deadletter.ReplayOptions{}, deadletter.Result{Skipped: 1})
	check.ErrorIs(t, outcomes[0].Err, deadletter.ErrNotFound)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	for name, filter := range map[string]deadletter.Filter{
		"Kind": {Kind: "x"}, "Stream": {Stream: "a.b"}, "Subject": {Subject: "a..b"}, "Since": {Since: time.Unix(2, 0), Until: time.Unix(1, 0)},
	} {
		_, err := b.store.Survey(t.Context(), filter, deadletter.SurveyOptions{})
		check.That(t, err != nil && contains(err, "Filter."+name), "%s is not named: %v", name, err)
	}

	_, err = b.store.Replay(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{Rate: -2})
	check.That(t, err != nil, "a negative rate was taken")

	check.ErrorIs(t, check.Err(b.store.Replay(ctx, deadletter.Filter{}, deadletter.ReplayOptions{})), context.Canceled)
}

// A group's filter selects its letters, and no others, whatever they are grouped by.
func TestSurveyGroupsWhatItsFiltersSelect(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	putAllKinds(t, b)
	b.put(t, letter(8, func(l *worker.DeadLetter) { l.Subject = "jobs.import" }))
	b.put(t, letter(9, func(l *worker.DeadLetter) { l.Worker = "vm-3" }))
	b.put(t, letter(10, func(l *worker.DeadLetter) { l.Worker = "vm-3" }))
	check.Equal(t, len(b.list(t, deadletter.Filter{Worker: "vm-3"}, deadletter.OldestFirst)), 2, "letters of vm-3")
	for by, want := range map[deadletter.Grouping]int{deadletter.BySignature: 5, deadletter.BySubject: 5, deadletter.ByStream: 4, deadletter.ByWorker: 5} {
		for _, within := range []deadletter.Filter{{}, {Subject: "jobs.mail.>"}, {Signature: "smtp: code #"}, {Stream: "JOBS"}, {Worker: "vm-3"}} {
			o := check.Must(b.store.Survey(t.Context(), within, deadletter.SurveyOptions{By: by}))(t)
			total := 0
			for _, g := range o.Groups {
				got := len(b.list(t, g.Filter(within), deadletter.OldestFirst))
				check.That(t, got == g.Count && g.By == by && (g.Error != "") == (g.Kind != deadletter.KindStranded) && g.Example > 0,
					"%s of %+v: the filter of %+v selects %d", by, within, g, got)
				total += got
			}
			check.That(t, total == o.Total && total == len(b.list(t, within, deadletter.OldestFirst)), "%s of %+v: %+v", by, within, o)
			if within.Subject+within.Signature+within.Stream+within.Worker == "" {
				check.Equal(t, len(o.Groups), want, "groups by "+string(by))
			}
		}
	}
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
		check.That(t, o.Total == want && o.Partial == (want < 100), "newest %d: %+v", newest, o)
	}
	var remove []uint64
	for seq := uint64(3); seq < 98; seq++ {
		if seq%10 != 0 {
			remove = append(remove, seq)
		}
	}
	check.OK(t, check.Err(b.store.Discard(t.Context(), deadletter.Filter{Sequences: remove}, deadletter.DiscardOptions{})))
	left := b.list(t, deadletter.Filter{}, deadletter.OldestFirst)
	check.Equal(t, len(left), 14, "letters left")
	for newest := uint64(1); newest < 15; newest++ {
		o := survey(time.Time{}, newest)
		check.That(t, o.Total <= int(newest) && o.Total >= int(newest-newest/10) && o.Partial == (newest < 14),
			"newest %d of 14 with gaps: %+v", newest, o)
	}
	for at, e := range slices.Backward(left) {
		o := survey(e.StoredAt, 7)
		all := len(left) - at
		check.That(t, o.Total == min(all, 7) && o.Partial == (all > 7), "since %d of 14: %s", at, fmt.Sprint(o))
	}
}
