package enrich

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// TestProgressGoesThroughEventIDs for every number of places around the bounds of a byte.
func TestProgressGoesThroughEventIDs(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for n := range 18 {
		p := progress{nonce: "abcd1234", published: make([]published, n)}
		for i := range p.published {
			p.published[i] = published(random.IntN(3))
		}
		q := progress{nonce: p.nonce, published: make([]published, n)}
		check.Require(t, q.resume(p.eventID()), "%d places: refused", n)
		diff := cmp.Diff(p.published, q.published)
		check.That(t, diff == "", "%d places (-want +got):\n%s", n, diff)
		want := !slices.Contains(p.published, publishedNothing)
		check.That(t, p.complete() == want, "%v is complete: %t, want %t", p.published, p.complete(), want)
		grown := progress{nonce: p.nonce, published: make([]published, n+9)}
		check.Require(t, grown.resume(p.eventID()), "%d places and 9 more: refused", n)
		diff = cmp.Diff(append(slices.Clone(p.published), make([]published, 9)...), grown.published)
		check.That(t, diff == "", "%d places and 9 more (-want +got):\n%s", n, diff)
		check.That(t, !grown.complete(), "%d places and 9 more are complete", n)
	}
}

func TestProgressRefusesForeignIDs(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", ".", "abcd1234", "other.AA", "abcd1234.AAAA", "abcd1234.?", "abcd1234.A", "abcd1234.AA==", "abcd1234.AA.AA", ".AA"} {
		p := progress{nonce: "abcd1234", published: make([]published, 3)}
		check.That(t, !p.resume(id), "%q was accepted", id)
		diff := cmp.Diff(make([]published, 3), p.published)
		check.That(t, diff == "", "%q left something behind:\n%s", id, diff)
	}
}

// FuzzResume: no id, wherever it comes from, breaks anything or tells more than it can.
func FuzzResume(f *testing.F) {
	f.Add("abcd1234.AA", 3)
	f.Add("abcd1234.__8", 9)
	f.Add("abcd1234.", 0)
	f.Add("?", 100)
	f.Fuzz(func(t *testing.T, id string, n int) {
		if n < 0 || n > 1000 {
			return
		}
		p := progress{nonce: "abcd1234", published: make([]published, n)}
		if !p.resume(id) {
			return
		}
		for i, state := range p.published {
			check.That(t, state <= publishedAnswer, "place %d is %d", i, state)
		}
		q := progress{nonce: p.nonce, published: make([]published, n)}
		if !q.resume(p.eventID()) || !slices.Equal(p.published, q.published) {
			t.Errorf("%q became %q, which is %v, want %v", id, p.eventID(), q.published, p.published)
		}
	})
}

// FuzzReadState: the value of an entry is a valid state or an error.
func FuzzReadState(f *testing.F) {
	for _, value := range []string{
		`{"status":"FOUND","url":"https://wolt.com/x","updatedAt":"2026-02-03T12:00:00Z"}`, `{"status":"NOT_FOUND","url":null}`,
		`{"status":"PENDING","url":null,"outcome":"AMBIGUOUS"}`, `{"status":"FOUND","url":null}`, `null`, `[]`, ``,
	} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		state, err := contracts.ReadState(value)
		if err != nil {
			return
		}
		err = state.Validate()
		check.That(t, err == nil, "%q became %+v: %v", value, state, err)
	})
}

// TestReadState reads the plain cache entry of the document, and values that this service writes.
func TestReadState(t *testing.T) {
	t.Parallel()
	link := "https://wolt.com/en/isr/tel-aviv/restaurant/pizza-house"
	for value, want := range map[string]contracts.ProviderState{
		`{"status":"FOUND","url":"` + link + `","updatedAt":"2026-02-03T12:00:00Z"}`: contracts.FoundState(link),
		`{"status":"NOT_FOUND","url":null}`:                                          contracts.NotFoundState(),
		`{"status":"PENDING","url":null,"outcome":"ERROR"}`:                          {Status: contracts.StatusPending, Reason: contracts.ReasonProviderError},
		`{"status":"PENDING","url":null,"outcome":"AMBIGUOUS","score":"?"}`:          {Status: contracts.StatusPending, Reason: contracts.ReasonAmbiguous},
	} {
		got, err := contracts.ReadState([]byte(value))
		diff := cmp.Diff(want, got)
		check.That(t, diff == "" && err == nil, "%s: %v (-want +got):\n%s", value, err, diff)
	}
}

// TestJitter: answers that were found together do not expire together, and each is kept for a time within its bounds.
func TestJitter(t *testing.T) {
	t.Parallel()
	s := &Service{cfg: Config{FoundTTL: 100 * time.Second, NotFoundTTL: time.Second}}
	seen := map[time.Duration]bool{}
	for range 1000 {
		d := s.ttl(contracts.OutcomeFound)
		check.Require(t, d >= 90*time.Second && d <= 110*time.Second && d%time.Second == 0,
			"FOUND is kept for %s, want 90 s to 110 s in whole seconds", d)
		seen[d] = true
		d = s.ttl(contracts.OutcomeNotFound)
		check.Require(t, d == time.Second, "a second became %s: the shortest TTL there is", d)
	}
	check.That(t, len(seen) >= 10, "only %d different TTLs", len(seen))
	for _, o := range []contracts.Outcome{contracts.OutcomeAmbiguous, contracts.OutcomeError} {
		check.Same(t, fmt.Sprintf("%s is kept for", o), s.ttl(o), time.Minute)
	}
}

func TestLookups(t *testing.T) {
	t.Parallel()
	req := contracts.EnrichRequest{CityText: "Haifa", Results: []contracts.Restaurant{
		{PlaceID: "a", Name: "A"}, {PlaceID: "b/..*>", Name: "B", CityText: "Akko"}, {PlaceID: "a", Name: " a"}, {PlaceID: "a", Name: "Another"},
	}}
	list := check.Must(lookups(req, "req-1", []string{"wolt", "yelp"}))(t)
	type row struct {
		Key, Name, City, Request string
		Results                  []int
	}
	var got []row
	for _, x := range list {
		got = append(got, row{x.key(), x.job.Name, x.job.CityText, x.job.RequestID, x.results})
	}
	want := []row{
		{"wolt.a", "A", "Haifa", "req-1", []int{0, 2}},
		{"yelp.a", "A", "Haifa", "req-1", []int{0, 2}},
		{"wolt.=Yi8uLio-", "B", "Akko", "req-1", []int{1}},
		{"yelp.=Yi8uLio-", "B", "Akko", "req-1", []int{1}},
		{"wolt.a", "Another", "Haifa", "req-1", []int{3}},
		{"yelp.a", "Another", "Haifa", "req-1", []int{3}},
	}
	check.Equal(t, want, got)
	check.Failsf(t, check.Err(lookups(req, "req-1", []string{"not a name"})), "a provider that is no token was taken")
}

func TestConfigReportsEverything(t *testing.T) {
	t.Parallel()
	err := Config{
		ClaimTTL: time.Millisecond, FoundTTL: -1, LeaseTTL: 1500 * time.Millisecond, MemoryBytes: -2,
	}.Validate()
	check.Contains(t, err, "ClaimTTL", "FoundTTL", "LeaseTTL", "MemoryBytes")
}
