package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

func TestReplayPublishesTheJobAgainAndRemovesTheLetter(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)

	// The job itself went through this stream a moment ago, so its ID is remembered.
	check.OK(t, check.Err(b.js.Publish(t.Context(), "jobs.mail.1", []byte(`{"n":1}`), jetstream.WithMsgID("id-1"))))

	b.work(t, 1, worker.Discard(errors.New("smtp: code 1")))

	died := b.list(t, deadletter.Filter{}, deadletter.NewestFirst)
	check.Require(t, len(died) == 1 && died[0].DeadLetter.ID == "id-1" && b.messages(t, "JOBS") == 0, "letters: %+v", died)

	outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})
	msg := b.job(t, outcomes[0].Sequence)

	check.That(t, msg.Subject == "jobs.mail.1" && string(msg.Data) == `{"n":1}`, "replayed %s: %s", msg.Subject, msg.Data)

	id := msg.Header.Get(nats.MsgIdHdr)
	msg.Header.Del(nats.MsgIdHdr)

	want := nats.Header{
		"Job-Id": {"id-1"}, "Job-Replay": {"1"}, "Job-Replay-Of": {"DEAD:1"}, "Job-Replay-Record": {"2"}, "Job-Resume": {died[0].DeadLetter.Resume()},
		"Nats-Expected-Stream": {"JOBS"},
	}
	diff := cmp.Diff(want, msg.Header)
	check.That(t, diff == "" && id != "id-1" && id != "", "ID %q, headers (-want +got):\n%s", id, diff)

	check.Equal(t, b.messages(t, "DEAD"), 0, "messages are left in the dead letter stream")

	// It dies again and is replayed again: a new letter, the same job.
	b.work(t, 1, errors.New("still broken"))
	outcomes = b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})

	msg = b.job(t, outcomes[0].Sequence)
	check.That(t, msg.Header.Get("Job-Replay") == "2" && msg.Header.Get("Job-Id") == "id-1", "headers of the second replay: %v", msg.Header)

	s := b.work(t, 1, nil)
	check.That(t, s[0].ID == "id-1" && s[0].Outcome == worker.OutcomeCompleted, "%s: %s", s[0].ID, s[0].Outcome)

	check.Equal(t, b.messages(t, "DEAD"), 0, "messages are left in the dead letter stream")
}

func TestReplayDropsWhatTheServerReads(t *testing.T) {
	t.Parallel()

	b := setup(t, nil, func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true })
	b.put(t, letter(1, func(l *worker.DeadLetter) {
		l.Header = map[string][]string{
			"Nats-Expected-Last-Sequence": {"77"}, "Nats-Rollup": {"all"}, "Nats-Scheduler": {"x"}, "Nats-TTL": {"1h"}, "mine": {"a", "b"},
		}
	}))

	check.OK(t, check.Err(b.js.Publish(t.Context(), "jobs.other", nil)))

	outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})

	header := b.job(t, outcomes[0].Sequence).Header
	diff := cmp.Diff([]string{"a", "b"}, header["mine"])
	check.That(t, diff == "" && header.Get("Nats-TTL") == "1h", "headers: %v", header)

	check.That(t, b.messages(t, "JOBS") == 2, "the roll-up of the original happened again")
}

// TestReplayGoesToTheWholeSubject replays jobs whose subjects are longer than the subject of a dead letter may be.
func TestReplayGoesToTheWholeSubject(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for i, long := range []string{strings.Repeat("x", 3900), strings.Repeat("é", 1950), strings.Repeat("a.", 1900) + "a"} {
		b.put(t, letter(i+1, func(l *worker.DeadLetter) { l.Subject = "jobs." + long }))
		outcomes := b.replay(t, deadletter.Filter{Subject: "jobs.>"}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})
		check.Equal(t, b.job(t, outcomes[0].Sequence).Subject, "jobs."+long, "subject")
	}
}

// watched is a JetStream context that calls back before a message is published, and after, before its publisher has the answer.
type watched struct {
	jetstream.JetStream

	before, published func(subject string)
}

func (w watched) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if w.before != nil {
		w.before(msg.Subject)
	}
	ack, err := w.JetStream.PublishMsg(ctx, msg, opts...)
	if err == nil && w.published != nil {
		w.published(msg.Subject)
	}
	return ack, err
}

// TestLettersAreReplayedOrDiscarded has one call do all of its work at a moment of another. One of them counts the letter, and the job runs
// only if that is the replay.
func TestLettersAreReplayedOrDiscarded(t *testing.T) {
	t.Parallel()
	const record, job = "dead.", "jobs."
	done, skipped := deadletter.Result{Done: 1}, deadletter.Result{Skipped: 1}
	for name, c := range map[string]struct {
		discards, after bool   // what is interrupted, and where
		at              string // the first message to this prefix
		first, second   deadletter.Result
		letters         uint64 // before the interrupted call goes on
	}{
		"a discard before a replay's record": {at: record, first: skipped, second: done},
		"a discard after a replay's record":  {at: record, after: true, first: done, second: skipped, letters: 2},
		"a discard before a replay's job":    {at: job, first: done, second: skipped, letters: 2},
		"a discard after a replay's job":     {at: job, after: true, first: done, second: skipped, letters: 2},
		"a replay before a discard's record": {discards: true, at: record, first: skipped, second: done},
		"a replay after a discard's record":  {discards: true, at: record, after: true, first: done, second: skipped, letters: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.put(t, letter(1))
			act := func(store *deadletter.Store, discards bool, want deadletter.Result) {
				t.Helper()
				var got deadletter.Result
				var err error
				if discards {
					got, err = store.Discard(t.Context(), deadletter.Filter{}, deadletter.DiscardOptions{})
				} else {
					got, err = store.Replay(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{})
				}
				check.That(t, err == nil && got == want, "discards %t: %+v, %v; want %+v", discards, got, err, want)
			}
			interrupted := false
			other := func(subject string) {
				if strings.HasPrefix(subject, c.at) && !interrupted {
					interrupted = true
					act(b.store, !c.discards, c.second)
					check.Equal(t, b.messages(t, "DEAD"), c.letters, "messages in the dead letter stream")
				}
			}
			w := watched{JetStream: b.js, before: other}
			if c.after {
				w = watched{JetStream: b.js, published: other}
			}
			act(b.open(t, w), c.discards, c.first)
			check.That(t, interrupted, "nothing was interrupted")
			replayed := (c.first == done) != c.discards
			b.wantLeft(t, map[bool]uint64{true: 1}[replayed], 0)
		})
	}
}

// TestInterruptedReplayIsDiscarded discards the letter of a replay that died, when it is sure that it does not go on.
func TestInterruptedReplayIsDiscarded(t *testing.T) {
	for published, want := range map[bool]deadletter.Result{false: {Done: 1}, true: {Skipped: 1}} {
		natstest.RunBubble(t, fmt.Sprintf("published %t", published), func(t *testing.T, srv *natsrun.Server) {
			b := setup(t, srv)
			b.put(t, letter(1))
			b.die(t, "jobs.", published)
			for _, c := range []deadletter.Result{{Skipped: 1}, want} {
				r, err := b.store.Discard(t.Context(), deadletter.Filter{}, deadletter.DiscardOptions{})
				check.That(t, err == nil && r == c, "%+v, %v; want %+v", r, err, c)
				natstest.Pass(2 * time.Minute)
			}
			b.wantLeft(t, map[bool]uint64{true: 1}[published], 0)
		})
	}
}

// TestWorkerThatIsFasterThanAReplay works a job before the replay removes its letter, so that the worker's note is stored.
func TestWorkerThatIsFasterThanAReplay(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	b.put(t, letter(1))

	fast := b.open(t, watched{JetStream: b.js, published: func(subject string) {
		if strings.HasPrefix(subject, "dead.") {
			return
		}
		b.work(t, 1, nil)
		check.Equal(t, b.messages(t, "DEAD"), 3, "messages in the dead letter stream: the letter, the record, the note")
	}})
	result, err := fast.Replay(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{})
	check.That(t, err == nil && result == (deadletter.Result{Done: 1}), "%+v, %v; want one letter", result, err)
	check.Equal(t, b.messages(t, "DEAD"), 0, "messages are left in the dead letter stream")
}

// TestReplayIsOfSeveralAtOnce has each publication take a second. Letters of one key follow each other.
func TestReplayIsOfSeveralAtOnce(t *testing.T) {
	const n = 48

	for name, test := range map[string]struct {
		keys, limit int
		want        time.Duration
	}{
		"16 keys":                {16, n, 3 * time.Second},
		"one key":                {1, n, n * time.Second},
		"16 keys, a limit of 20": {16, 20, 2 * time.Second},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			b := setup(t, srv)
			for i := range n {
				b.put(t, letter(i+1, func(l *worker.DeadLetter) { l.Subject = fmt.Sprintf("jobs.mail.%d", i%test.keys) }))
			}

			begun, far := time.Now(), *b
			far.store = b.open(t, watched{JetStream: b.js, published: func(subject string) {
				if strings.HasPrefix(subject, "jobs.") {
					natstest.Pass(time.Second)
				}
			}})
			want := test.limit
			outcomes := far.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{Limit: test.limit, Rate: -1}, deadletter.Result{Done: want})
			check.Equal(t, time.Since(begun).Truncate(time.Second), test.want, "time")

			jobs := map[string]uint64{}
			for i, o := range outcomes {
				check.Equal(t, o.Entry.Sequence, uint64(i+1), "letter")
				check.That(t, o.Sequence > jobs[o.Entry.DeadLetter.Subject], "letter %d became job %d, one before it %d", i+1, o.Sequence,
					jobs[o.Entry.DeadLetter.Subject])
				jobs[o.Entry.DeadLetter.Subject] = o.Sequence
			}
			check.Equal(t, b.messages(t, "DEAD"), uint64(n-want), "messages left")
		})
	}
}

// TestLettersCountOnce has several calls work on the same letters.
func TestLettersCountOnce(t *testing.T) {
	t.Parallel()
	const n = 100
	for name, discards := range map[string]int{"replays": 0, "replays and discards": 2} {
		b := setup(t, nil)
		for i := range n {
			b.put(t, letter(i+1))
		}
		var group sync.WaitGroup
		var done atomic.Int32
		for i := range 3 + discards {
			group.Go(func() {
				act := func() (deadletter.Result, error) {
					return b.store.Replay(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{Rate: -1})
				}
				if i >= 3 {
					act = func() (deadletter.Result, error) {
						return b.store.Discard(t.Context(), deadletter.Filter{}, deadletter.DiscardOptions{})
					}
				}
				result, err := act()
				check.That(t, err == nil && result.Failed == 0, "%s: %+v, %v", name, result, err)
				done.Add(int32(result.Done))
			})
		}
		group.Wait()
		check.Equal(t, done.Load(), n, name+": letters done")
		jobs, letters := b.messages(t, "JOBS"), b.messages(t, "DEAD")
		check.That(t, (jobs == n || discards > 0) && letters == 0, "%s: %d jobs, %d letters; want %d, 0", name, jobs, letters, n)
	}
}

func TestReplayKeepsItsRate(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)
		for i := range 21 {
			b.put(t, letter(i+1))
		}

		begun := time.Now()
		b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{DryRun: true, Rate: 0.001}, deadletter.Result{Done: 21})

		took := time.Since(begun)
		check.That(t, took <= time.Second, "a dry run took %s, want no wait", took)

		b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{Limit: 11, Rate: 2}, deadletter.Result{Done: 11})

		took = time.Since(begun)
		check.That(t, took >= 5*time.Second && took <= 6*time.Second, "11 letters took %s, want 5s at 2 a second", took)

		begun = time.Now()
		b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{Rate: -1}, deadletter.Result{Done: 10})

		took = time.Since(begun)
		check.That(t, took <= time.Second, "10 letters took %s without a limit", took)
	})
}

// TestDryRunFindsWhatAReplayFinds has one letter that can be replayed, and others that cannot.
func TestDryRunFindsWhatAReplayFinds(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	b.stream(t, jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"moved.>"}})
	b.stream(t, jetstream.StreamConfig{Name: "SMALL", Subjects: []string{"small.>"}, MaxMsgSize: 400})
	b.stream(t, jetstream.StreamConfig{
		Name: "ONCE", Subjects: []string{"once.>"}, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgs: 9, MaxMsgsPerSubject: 1,
	})
	check.OK(t, check.Err(b.js.Publish(t.Context(), "once.1", nil)))

	in := func(stream, subject string) func(*worker.DeadLetter) {
		return func(l *worker.DeadLetter) { l.Stream, l.Subject = stream, subject }
	}
	wants := []string{
		"", "no such stream: NOWHERE", `stream JOBS does not take "moved.1"`, "raise max_payload", "raise max_payload", "in its place by now (once.1, sequence 1)",
		`header "trace/id"`, "was not UTF-8",
	}
	for i, mutate := range []func(*worker.DeadLetter){
		in("JOBS", "jobs.mail.1"), in("NOWHERE", "nowhere.1"), in("JOBS", "moved.1"), func(l *worker.DeadLetter) { l.Payload = make([]byte, 1<<20-100) },
		func(l *worker.DeadLetter) { l.Stream, l.Subject, l.Payload = "SMALL", "small.1", make([]byte, 300) }, in("ONCE", "once.1"),
		func(l *worker.DeadLetter) { l.Header["trace/id"] = []string{"1"} }, in("JOBS", "jobs.\xff"),
	} {
		b.put(t, letter(i+1, mutate))
	}
	before := b.messages(t, "DEAD")
	r, err := b.store.Discard(t.Context(), deadletter.Filter{}, deadletter.DiscardOptions{DryRun: true})
	check.That(t, err == nil && r.Done == len(wants), "%+v, %v", r, err)
	for _, dry := range []bool{true, false} {
		outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{DryRun: dry, Rate: -1}, deadletter.Result{Done: 1, Failed: 6, Skipped: 1})
		for i, want := range wants {
			got := fmt.Sprint(outcomes[i].Err)
			check.That(t, strings.Contains(got, want) && (want == "") == (outcomes[i].Err == nil), "letter %d, dry %t: %s, want %s", i+1, dry,
				got, want)
		}
		done := uint64(1)
		if dry {
			done = 0
		}
		check.Equal(t, b.messages(t, "DEAD"), before-done, "messages in the dead letter stream")
		check.Equal(t, b.messages(t, "JOBS"), done, "jobs")
	}
}

func TestReplayWithEditedPayload(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	for i := range 5 {
		b.put(t, letter(i+1))
	}

	broken := errors.New("no JSON")
	outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{Edit: func(l worker.DeadLetter) ([]byte, error) {
		switch l.ID {
		case "id-1":
			return []byte("edited"), nil
		case "id-2":
			return nil, fmt.Errorf("%w: fine as it is", deadletter.ErrSkip)
		case "id-4":
			panic(broken)
		case "id-5":
			runtime.Goexit()
		}
		return nil, broken
	}}, deadletter.Result{Done: 1, Failed: 3, Skipped: 1})

	check.Equal(t, string(b.job(t, outcomes[0].Sequence).Data), "edited", "published")

	check.ErrorContains(t, outcomes[3].Err, "letter 4: ReplayOptions.Edit panicked: no JSON")
	check.ErrorContains(t, outcomes[4].Err, "runtime.Goexit")
	check.That(t, errors.Is(outcomes[2].Err, broken) && b.messages(t, "DEAD") == 4,
		"%v; %d letters left, want 4", outcomes[2].Err, b.messages(t, "DEAD"))
}

func TestReplayReportsAKeyThatIsTaken(t *testing.T) {
	t.Parallel()

	unique := func(l *worker.DeadLetter) { l.Header[worker.HeaderKeep] = []string{"0s"} }
	b := setup(t, nil, func(c *jetstream.StreamConfig) { c.Subjects = []string{"jobs.>", "jobs-done.>", "jobs-later.>"} })

	// 1 is free, 2 has been reinserted, 3 is scheduled, 4 has its own record, 5 somebody else's.
	for i := 1; i <= 5; i++ {
		b.put(t, letter(i, unique))
	}

	for subject, id := range map[string]string{"jobs.mail.2": "new", "jobs-later.mail.3": "new", "jobs-done.mail.4": "id-4", "jobs-done.mail.5": "new"} {
		header := nats.Header{"Job-Id": {id}, "Job-Sequence": {"4"}, "Job-State": {"dead"}}
		check.OK(t, check.Err(b.js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: header})))
	}

	for _, dry := range []bool{true, false} {
		outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{DryRun: dry}, deadletter.Result{Done: 2, Skipped: 3})
		for i, want := range map[int]string{1: "jobs.mail.2", 2: "jobs-later.mail.3", 4: "jobs-done.mail.5"} {
			var taken *deadletter.TakenError
			check.That(t, errors.As(outcomes[i].Err, &taken) && taken.Subject == want,
				"letter %d: %v, want that %s has its key", i+1, outcomes[i].Err, want)
		}
	}

	check.Equal(t, b.messages(t, "DEAD"), 3, "messages left")
}

// TestUniqueJobIsReplayedInItsKey is a unique job from its insertion to its end.
func TestUniqueJobIsReplayedInItsKey(t *testing.T) {
	t.Parallel()

	b := setup(t, nil, func(c *jetstream.StreamConfig) {
		c.AllowMsgTTL, c.AllowRollup, c.Subjects = true, true, []string{"jobs.>", "jobs-done.>", "jobs-later.>"}
	})

	client := check.Must(worker.NewClient(b.js, worker.ClientConfig{Stream: "JOBS"}))(t)

	insert := func() worker.Receipt {
		unique := &worker.Unique{HoldDead: true, Keep: time.Hour}
		return check.Must(client.Insert(t.Context(), worker.NewJob{Args: 1, Subject: "jobs.mail.u1", Unique: unique}))(t)
	}

	first := insert()
	b.work(t, 1, worker.Discard(errors.New("boom")))

	again := insert()
	check.Require(t, again.Duplicate && again.State == worker.StateDead, "while dead: %+v", again)

	b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})

	again = insert()
	check.That(t, again.Duplicate && again.State == worker.StateQueued && again.ID == first.ID, "while it waits again: %+v", again)

	check.Equal(t, b.work(t, 1, nil)[0].ID, first.ID, "worked")

	again = insert()
	check.That(t, again.Duplicate && again.State == worker.StateDone, "when done: %+v", again)
}
