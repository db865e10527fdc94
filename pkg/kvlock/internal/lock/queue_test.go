package lock

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func members(q queue) (all []string) {
	for _, r := range q {
		for range r.places {
			all = append(all, r.member)
		}
	}
	return all
}

func TestQueue(t *testing.T) {
	t.Parallel()
	var q queue
	want := func(all ...string) {
		t.Helper()
		if got := members(q); !slices.Equal(got, all) {
			t.Errorf("got %q, want %q", got, all)
		}
	}
	q = q.fit("a", "A", 2)
	q = q.fit("b", "B", 1)
	q = q.fit("a", "A", 3)
	want("a", "a", "b", "a")
	if len(q.before("a")) != 0 || len(q.before("b")) != 1 || !slices.Equal(q.before("c"), []string{"a", "b"}) {
		t.Error("miscounted the members that come before")
	}
	q = q.leave("a")
	want("a", "b", "a")
	q = q.fit("a", "A", 1)
	want("a", "b")
	q = q.leave("a")
	want("b")
	q = q.fit("b", "B", 3)
	want("b", "b", "b")
	if len(q) != 1 {
		t.Errorf("%d runs", len(q))
	}
	q = q.leave("c").without("c")
	want("b", "b", "b")
	q = q.fit("c", "C", 1).without("b")
	want("c")
}

// After any operation on a queue nothing is changed in place, the others keep their order, and a member has as many
// places as requested where there is room.
func TestRandomQueues(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, seed))
	var q queue
	var last lastQueue
	for range 20_000 {
		member := string(rune('a' + r.IntN(26)))
		before, shown := slices.Clone(q), members(q)
		var next queue
		switch r.IntN(3) {
		case 0:
			next = q.leave(member)
		case 1:
			next = q.without(member)
			if next.count(member) != 0 {
				t.Fatalf("%s is left in %v", member, next)
			}
		default:
			places := r.IntN(12)
			next = q.fit(member, "i", places)
			if got := next.count(member); got != places {
				t.Fatalf("%d places, want %d", got, places)
			}
		}
		if !reflect.DeepEqual(before, slices.Clone(q)) {
			t.Fatal("the queue was changed in place")
		}
		shown = slices.DeleteFunc(shown, func(m string) bool { return m == member })
		others := slices.DeleteFunc(members(next), func(m string) bool { return m == member })
		if !slices.Equal(others, shown) {
			t.Fatalf("others were %q, and are %q", shown, others)
		}
		read, err := last.parse(string(next.append(nil)))
		if err != nil || len(read) != len(next) || len(next) > 0 && !reflect.DeepEqual(read, next) {
			t.Fatalf("read %v, %v; wrote %v", read, err, next)
		}
		q = read
	}
}

// A queue is bounded: a member that finds no room keeps the places that it has.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	var q queue
	for i := range maxRuns {
		q = q.fit(string(rune('a'+i%2)), "i", q.count(string(rune('a'+i%2)))+1)
	}
	if len(q) != maxRuns || q.room("c") || !q.fits("c", 1) || q.fit("c", "i", 1).count("c") != 0 {
		t.Error("there is room in a full queue")
	}
	last := q[len(q)-1].member
	if !q.room(last) || q.fit(last, "i", 1000).count(last) != 1000 {
		t.Error("the last run cannot grow")
	}
	if _, err := parseQueue(nil, string(q.append(nil))); err != nil {
		t.Error(err)
	}
	if _, err := parseQueue(nil, string(append(q, run{"c", "i", 1}).append(nil))); err == nil {
		t.Error("a queue that is too long was read")
	}
}

// The lines that a queue has in common with the last one are not read again.
func TestOnlyNewLinesOfAQueueAreRead(t *testing.T) {
	t.Parallel()
	text := func(members string) (lines string) {
		for _, m := range members {
			lines += string(m) + " 1 \"read\"\n"
		}
		return lines
	}
	for members, want := range map[string]string{
		"abcd": "kkkk", "bcd": "kkk", "cd": "kk", "d": "r", "abcde": "kkkkr", "bcdef": "kkkrr", "": "",
		"acd": "rrr", "xabcd": "rrrrr", "abc": "rrr",
	} {
		var last lastQueue
		last.of.Store(&writtenQueue{text: text("abcd"), queue: slices.Repeat(queue{{instance: "known"}}, 4)})
		q, err := last.parse(text(members))
		got := ""
		for _, r := range q {
			got += r.instance[:1]
		}
		if err != nil || got != want || last.of.Load().text != text(members) {
			t.Errorf("%q: %s, %v, want %s", members, got, err, want)
		}
	}
}
