package kvlock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func token(revision uint64) kvlock.Token { return kvlock.Token{Epoch: 7, Revision: revision} }

func guarded(t testing.TB, g *kvlock.Guard, key string) string {
	t.Helper()
	v := check.Must(g.Get(t.Context(), key))(t)
	return fmt.Sprintf("%s by %s", v.Value, v.Token)
}

func TestGuard(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	g, other := b.Guard(t, kvlock.GuardConfig{}), b.Guard(t, kvlock.GuardConfig{})
	v, err := g.Get(t.Context(), "k")
	check.That(t, err == nil && v.Value == nil && v.Revision == 0 && v.Token == (kvlock.Token{}), "got %+v, %v", v, err)
	put := func(g *kvlock.Guard, token kvlock.Token, value string, want error) {
		t.Helper()
		check.ErrorIs(t, g.Put(t.Context(), "k", token, []byte(value)), want)
	}
	put(g, token(5), "a", nil)
	put(other, token(5), "b\nwith lines\n", nil)
	put(other, token(9), "c", nil)
	put(g, token(8), "d", kvlock.ErrFenced)
	err = g.Put(t.Context(), "k", token(5), nil)
	fenced, ok := errors.AsType[*kvlock.FencedError](err)
	check.That(t, ok && fenced.Key == "k" && fenced.Token == token(5) && fenced.Stored == token(9), "got %v", err)
	check.Equal(t, guarded(t, other, "k"), "c by 7-9", "result")
	put(g, kvlock.Token{Epoch: 8, Revision: 1}, "e", nil)
	put(g, kvlock.Token{Epoch: 7, Revision: 100}, "f", kvlock.ErrFenced)
	put(g, kvlock.Token{Epoch: 8, Revision: 1}, "", nil)
	check.Equal(t, guarded(t, g, "k"), " by 8-1", "result")
	check.That(t, g.Put(t.Context(), "k", kvlock.Token{}, nil) != nil, "a zero token was accepted")
	check.ErrorIs(t, g.Put(t.Context(), "a b", token(1), nil), kvlock.ErrInvalidKey)
	check.ErrorIs(t, check.Err(g.Get(t.Context(), "a b")), kvlock.ErrInvalidKey)
	g.Close()
	check.ErrorIs(t, g.Put(t.Context(), "k", token(1), nil), kvlock.ErrClosed)
}

func TestTextsThatAreNoTokens(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "1", "-", "a-b", "1-", "-1", "1-2-3", "+1-2", "1--2", "18446744073709551616-1"} {
		token, err := kvlock.ParseToken(s)
		check.That(t, err != nil, "%q is the token %s", s, token)
	}
}

// A record that is no guarded value is left as it is: without its token any holder could write.
func TestGuardOfSomethingElse(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	kv := check.Must(b.JS.KeyValue(t.Context(), testbed.Bucket))(t)
	g := b.Guard(t, kvlock.GuardConfig{})
	for name, value := range map[string]string{
		"garbage": "garbage", "no-token": `{"v":1,"state":"fenced","claim":"c","owner":"o"}` + "\n",
		"newer": `{"v":2}` + "\n", "slot": `{"v":1,"state":"done","claim":"c","owner":"o"}` + "\n",
	} {
		revision := check.Must(kv.PutString(t.Context(), name, value))(t)
		check.That(t, g.Put(t.Context(), name, token(1), nil) != nil, "%s was replaced", name)
		check.That(t, check.Err(g.Get(t.Context(), name)) != nil, "%s was read", name)
		check.Equal(t, b.Present(t, name).Sequence, revision, name)
	}
}

// putUnder puts the value "5" over one of token before, if that is not 0, under a fault, and calls between before it
// looks for its outcome.
func putUnder(
	t *testing.T, b *testbed.Bed, fault natstest.Fault, before uint64, between func(other *kvlock.Guard),
) (other *kvlock.Guard, err error) {
	t.Helper()
	p := natstest.NewProxy(t, b.Srv)
	slow, other := b.Guard(t, kvlock.GuardConfig{OpTimeout: 10 * time.Second}, p.Through()), b.Guard(t, kvlock.GuardConfig{})
	if before > 0 {
		check.ErrorIs(t, other.Put(t.Context(), "k", token(before), nil), nil)
	}
	p.Slow(100 * time.Millisecond) // written at 0.1 s, read again at 0.2 s or later
	p.Hit(testbed.Writes("k"), fault, 1)
	put := make(chan error, 1)
	go func() { put <- slow.Put(t.Context(), "k", token(5), []byte("5")) }()
	natstest.Pass(150 * time.Millisecond)
	between(other)
	return other, <-put
}

// A write whose acknowledgement is lost, or whose refusal says nothing, is only said to be refused where that is so.
func TestGuardSaysWhatBecameOfAWrite(t *testing.T) {
	stored, refused, unknown, unavailable := "<nil>", "refused", "unknown", "unavailable"
	for _, c := range []struct {
		fault  natstest.Fault
		others []uint64 // the tokens that write before the outcome of 5 is looked for
		want   string
		value  string
	}{
		{natstest.ReplyLost, nil, stored, "5 by 7-5"},
		{natstest.ReplyLost, []uint64{7}, stored, "0 by 7-7"},
		{natstest.ReplyLost, []uint64{7, 8}, unknown, "1 by 7-8"},
		{natstest.ReplyLost, []uint64{5}, stored, "0 by 7-5"},
		{natstest.ReplyLost, []uint64{5, 5}, unavailable, "1 by 7-5"},
		{natstest.RefusedApplied, nil, stored, "5 by 7-5"},
		{natstest.RefusedApplied, []uint64{7}, stored, "0 by 7-7"},
		{natstest.RefusedApplied, []uint64{7, 8}, unknown, "1 by 7-8"},
		{natstest.RefusedApplied, []uint64{5}, stored, "0 by 7-5"},
		{natstest.RefusedApplied, []uint64{5, 5}, unavailable, "1 by 7-5"},
		{natstest.WriteLost, nil, stored, "5 by 7-5"},
		{natstest.WriteLost, []uint64{7}, refused, "0 by 7-7"},
		{natstest.WriteLost, []uint64{7, 8}, unknown, "1 by 7-8"},
		{natstest.WriteLost, []uint64{5}, stored, "5 by 7-5"},
		{natstest.WriteLost, []uint64{5, 5}, unavailable, "1 by 7-5"},
		{natstest.WriteLost, []uint64{4}, stored, "5 by 7-5"},
		{natstest.WriteLost, []uint64{4, 4}, stored, "5 by 7-5"},
	} {
		for _, before := range []uint64{0, 3} {
			testbed.RunInBubble(t, fmt.Sprint(c.fault, " ", c.others, " over ", before), func(t *testing.T, b *testbed.Bed) {
				other, err := putUnder(t, b, c.fault, before, func(other *kvlock.Guard) {
					for i, with := range c.others {
						check.ErrorIs(t, other.Put(t.Context(), "k", token(with), fmt.Append(nil, i)), nil)
					}
				})
				got := fmt.Sprint(err)
				if fenced, ok := errors.AsType[*kvlock.FencedError](err); ok {
					got = map[bool]string{false: refused, true: unknown}[fenced.Unknown]
				} else if errors.Is(err, kvlock.ErrUnavailable) {
					got = unavailable
				}
				check.That(t, got == c.want, "got %s, %v; want %s", got, err, c.want)
				check.Equal(t, guarded(t, other, "k"), c.value, "the value")
			})
		}
	}
}
