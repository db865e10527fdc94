package flight

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/internal/compress"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestStatesAndOutcomesHaveNames(t *testing.T) {
	t.Parallel()
	for state, want := range map[State]string{Absent: "absent", Pending: "pending", Done: "done", Failed: "failed", 9: "State(9)"} {
		check.That(t, state.String() == want, "got %q, want %q", state, want)
		check.That(t, state > Failed || parseState(want) == state, "%q is read as %s", want, parseState(want))
	}
	for outcome, want := range map[Outcome]string{Cached: "cached", Computed: "computed", Coalesced: "coalesced", 9: "Outcome(9)"} {
		check.That(t, outcome.String() == want, "got %q, want %q", outcome, want)
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	id, revision, attempt, err := parseRef(formatRef("AbC09", 7, 3))
	check.That(t, err == nil && id == "AbC09" && revision == 7 && attempt == 3, "got %q, %d, %d, %v", id, revision, attempt, err)
	for _, ref := range []string{
		"", ".", "..", "a", "a.1", "a.1.", "a.1.0", "a.1.-1", "a.-1.1", "a.1.1.1", ".1.1", "a.x.1", "a.1.x", "a b.1.1", "a\n.1.1", "ä.1.1",
		"a.99999999999999999999.1", "a.1.99999999999", strings.Repeat("a", kv.MaxIDBytes+1) + ".1.1", "a." + strings.Repeat("0", 1000) + "1.1",
	} {
		_, _, _, err := parseRef(ref)
		check.That(t, errors.Is(err, ErrInvalidRef), "%q is %v, want ErrInvalidRef", ref, err)
	}
}

func FuzzReference(f *testing.F) {
	f.Add("abc.1.1")
	f.Add("...")
	f.Fuzz(func(t *testing.T, ref string) {
		id, revision, attempt, err := parseRef(ref)
		if err != nil {
			return
		}
		id2, revision2, attempt2, err := parseRef(formatRef(id, revision, attempt))
		check.That(t, err == nil && id2 == id && revision2 == revision && attempt2 == attempt && kv.IsID(id),
			"%q: got %q.%d.%d, then %q.%d.%d, %v", ref, id, revision, attempt, id2, revision2, attempt2, err)
	})
}

func TestRecordThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, data, want string
		newer            bool
	}{
		{name: "empty", data: "", want: "no line feed"},
		{name: "no line feed", data: `{"v":1}`, want: "no line feed"},
		{name: "line feed too late", data: `{"v":1,"reason":"` + strings.Repeat("x", kv.MaxLineBytes) + "\"}\n", want: "no line feed"},
		{name: "not JSON", data: "PENDING\nvalue", want: "not a record"},
		{name: "wrong type", data: `{"v":1,"state":7}` + "\n", want: "not a record"},
		{name: "no version", data: `{"state":"done","claim":"c","owner":"o"}` + "\n", want: "version 0"},
		{name: "negative version", data: `{"v":-1}` + "\n", want: "version -1"},
		{name: "unknown state", data: `{"v":1,"state":"cooking","claim":"c","owner":"o"}` + "\n", want: `unknown state "cooking"`},
		{name: "no claim", data: `{"v":1,"state":"done","owner":"o"}` + "\n", want: "without claim"},
		{name: "no owner", data: `{"v":1,"state":"done","claim":"c"}` + "\n", want: "without claim or owner"},
		{name: "negative TTL", data: `{"v":1,"state":"done","claim":"c","owner":"o","ttl":-1}` + "\n", want: "out of range"},
		{name: "endless TTL", data: `{"v":1,"state":"done","claim":"c","owner":"o","ttl":9223372036854775807}` + "\n", want: "out of range"},
		{name: "newer", data: `{"v":2,"state":"cooking"}` + "\n", want: "version 2", newer: true},
		{name: "newer with other types", data: `{"state":{"is":"done"},"v":2}` + "\n", want: "version 2", newer: true},
	} {
		_, _, err := decodeRecord([]byte(tt.data))
		check.That(t, err != nil && strings.Contains(err.Error(), tt.want) && errors.Is(err, kvlock.ErrVersion) == tt.newer,
			"%s: got %v, want an error with %q, kvlock.ErrVersion %v", tt.name, err, tt.want, tt.newer)
	}
}

// With any texts of a caller in its record, a claim that could be begun can be completed and failed.
func TestRecordOfTheWorstTextFits(t *testing.T) {
	t.Parallel()
	for _, worst := range []string{"\x00", "<", "\u2028", `"`, "é"} {
		id := strings.Repeat("x", kv.MaxIDBytes)
		fill := func(n int) string { return redact.Clip(strings.Repeat(worst, n), n) }
		r := claimRecord{
			Head: kv.Head{
				Version: kv.Version, State: "pending", Claim: fill(kv.MaxIDBytes), Owner: "0123456789012345678901",
				Instance: fill(kv.MaxInstanceBytes),
			},
			Attempt: maxAttempt, Fingerprint: fill(maxFingerprintBytes), HandOff: true, Reason: fill(maxReasonBytes), Released: true,
			TTL: int64(kv.MaxTTL / time.Second), Member: id, Server: id,
		}
		check.OK(t, checkFingerprint(r.Fingerprint))
		data, err := kv.Encode(r, nil)
		if err != nil {
			t.Errorf("filled with %q: %v", worst, err)
			continue
		}
		_, _, err = decodeRecord(data)
		check.That(t, err == nil, "filled with %q: %v", worst, err)
	}
	_, err := kv.Encode(claimRecord{Reason: strings.Repeat("x", kv.MaxLineBytes)}, nil)
	check.That(t, err != nil, "a first line over the limit was encoded")
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(`{"v":1,"state":"done","claim":"c","owner":"o","ttl":5}` + "\nvalue"))
	f.Add([]byte(`{"v":1,"state":"pending","claim":"c","owner":"o","ttl":9}` + "\nvalue"))
	f.Add([]byte(`{"v":2}` + "\n"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, value, err := decodeRecord(data)
		if err != nil {
			return
		}
		again, err := kv.Encode(r, value)
		if err != nil {
			return // escaping made it too long
		}
		r2, value2, err := decodeRecord(again)
		check.That(t, err == nil && r2 == r && bytes.Equal(value, value2), "%q decoded to %+v, and encoded again to %+v, %v", data, r, r2, err)
		s := r.entry("k", value, 1, time.Now()).readable()
		check.That(t, s.State == Done || s.Value == nil, "%s has a value: %+v", s.State, s)
	})
}

// Processes of two builds share a bucket during a rollout, so the stored form of a record is fixed.
func TestRecordAsStored(t *testing.T) {
	t.Parallel()
	r := claimRecord{
		Head: kv.Head{Version: 1, State: "pending", Claim: "c", Owner: "o", Instance: "i"}, Attempt: 2, Fingerprint: "f", HandOff: true,
		Job: "j", Reason: "<r>", Released: true, TTL: 60, Value: packed{Codec: "zstd", Size: 9}, Member: "m", Server: "s",
	}
	const want = `{"v":1,"state":"pending","claim":"c","owner":"o","instance":"i","attempt":2,"fingerprint":"f","handoff":true,"job":"j",` +
		`"reason":"\u003cr\u003e","released":true,"ttl":60,"value":{"codec":"zstd","size":9},"member":"m","server":"s"}` + "\nvalue"
	data, err := kv.Encode(r, []byte("value"))
	check.That(t, err == nil && string(data) == want, "stored as\n%s, %v, not\n%s", data, err, want)
	got, value, err := decodeRecord(data)
	check.That(t, err == nil && got == r && string(value) == "value", "read as %+v with %q, %v", got, value, err)
}

func TestWholeSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]time.Duration{
		-time.Second: 0, 0: 0, 1: time.Second, time.Second: time.Second, 1001 * time.Millisecond: 2 * time.Second,
		kv.MaxTTL: kv.MaxTTL, kv.MaxTTL + 1: kv.MaxTTL, 1<<63 - 1: kv.MaxTTL,
	} {
		check.Equal(t, wholeSeconds(d), want, d.String())
	}
}

func TestConfigReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	err := Config{
		Bucket: "a.b", ClaimTTL: 1500 * time.Millisecond, ResultTTL: -time.Second, OpTimeout: -1, Instance: strings.Repeat("x", 300),
		MaxValue: 1<<30 + 1, LargeValueBucket: "a.b",
	}.validate()
	for _, want := range []string{"Bucket", "ClaimTTL", "ResultTTL", "OpTimeout", "Instance", "MaxValue is 1073741825", "LargeValueBucket"} {
		check.That(t, err != nil && strings.Contains(err.Error(), want), "%s is not named in %v", want, err)
	}
	check.ErrorIs(t, (Config{Bucket: "b"}).withDefaults().validate(), nil, "defaults")
	for _, bucket := range []string{"", "a/b", "a b", "a=", "*", "ä"} {
		check.That(t, (Config{Bucket: bucket}).withDefaults().validate() != nil, "bucket %q was taken", bucket)
	}
}

// Without an observer events cost nothing. It is not parallel: the allocations of other tests would count.
func TestNoObserverCostsNothing(t *testing.T) {
	f := &Flight{store: &kv.Store{Instance: "i"}}
	claim := &Claim{flight: f, id: "c", key: "k", taken: time.Now()}
	entry := Entry{Key: "k", State: Failed, Claim: "c", Owner: "o", Reason: "r"}
	err := &FailedError{Key: "k"}
	n := testing.AllocsPerRun(1000, func() {
		ctx := t.Context()
		f.emit(ctx, Event{Kind: EventReturned, Key: "k", Claim: "c", Owner: "o", Outcome: Cached, Elapsed: 1, Err: err})
		f.emit(ctx, entry.event(EventWaiting))
		claim.tell(ctx, EventAcquired, err)
		claim.tellReleased(ctx, entry)
	})
	check.That(t, n == 0, "%.1f allocations", n)
}

// Callers that want a value at the same time open it once; a large one is not kept after the last caller.
func TestContentIsOpenedOnce(t *testing.T) {
	t.Parallel()
	for _, n := range []int{keptOpen, keptOpen + 1} {
		f := &Flight{codec: compress.New()}
		data, _, err := f.codec.Compress(make([]byte, n))
		check.OK(t, err)
		c := packed{Codec: compress.Zstd, Size: n}.seal(data)
		const users = 50
		c.turn <- struct{}{}
		var all sync.WaitGroup
		values := make([][]byte, users)
		for i := range users {
			c.enter() // so that none of them is the last before all came
			all.Go(func() {
				defer c.leave()
				values[i], _, _ = c.open(context.WithoutCancel(t.Context()), f, "k") // compared below
			})
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err = c.open(ended, f, "k")
		check.That(t, errors.Is(err, context.Canceled), "the caller that gave up got %v", err)
		<-c.turn
		all.Wait()
		for i := range values {
			check.Require(t, len(values[i]) == n && &values[i][0] == &values[0][0],
				"caller %d has a value of its own, of %d bytes", i, len(values[i]))
		}
		kept := c.value != nil
		check.That(t, kept == (n <= keptOpen) && c.users == 0, "%d bytes: kept is %v, with %d users", n, kept, c.users)
	}
}

// A computation that is woken while it looks looks again.
func TestWakeWhileRunning(t *testing.T) {
	t.Parallel()
	c := &computation{}
	c.state.Store(running)
	c.wake()
	check.That(t, !c.park(), "it rests though it was woken")
	c.state.Store(running)
	check.That(t, c.park(), "it does not rest though nothing woke it")
}

// A watcher returns the latest entry of each key once, in the order in which the keys first changed.
func TestWatcherCoalesces(t *testing.T) {
	t.Parallel()
	w := newWatcher(nil, []string{"a", "b"}, nil)
	entry := func(key string, revision uint64, state State) *Entry {
		return &Entry{Key: key, Revision: revision, State: state}
	}
	w.note(entry("a", 1, Done), false)
	check.That(t, w.take() == nil, "got what others knew before it came")
	w.note(entry("a", 1, Pending), true)
	w.note(entry("b", 2, Pending), true)
	w.note(entry("a", 3, Done), false)
	w.note(entry("a", 1, Pending), true) // late
	for _, want := range []*Entry{entry("a", 3, Done), entry("b", 2, Pending)} {
		got := w.take()
		check.That(t, got != nil && got.Key == want.Key && got.Revision == want.Revision, "got %+v; want %+v", got, want)
	}
	check.That(t, w.take() == nil, "got an entry twice")
}

func TestWatcherSkipsTheEndOfAMarker(t *testing.T) {
	t.Parallel()
	w := newWatcher(nil, []string{"a"}, nil)
	w.note(&Entry{Key: "a", Revision: 4, State: Failed, marker: true, Claim: "c"}, true)
	got := w.take()
	check.That(t, got != nil && got.past, "got %+v; want a failure that is past", got)
	w.note(&Entry{Key: "a"}, false)
	check.That(t, w.take() == nil, "got the end of a marker")
}
