package enricher_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// farSide is the provider's server. It counts, and it holds chosen calls back until the test lets them go.
type farSide struct {
	*httptest.Server

	mu     sync.Mutex
	calls  map[string]int             // by place
	asked  map[string]map[string]bool // by instance: the places that it asked about
	hold   map[string]chan struct{}   // by place: the first call waits for this
	held   chan question              // a call that is held back
	served chan int                   // how many calls there have been, after each
}

func newFarSide(t *testing.T) *farSide {
	t.Helper()
	f := &farSide{
		calls: map[string]int{}, asked: map[string]map[string]bool{}, hold: map[string]chan struct{}{},
		held: make(chan question, 16), served: make(chan int, 4096),
	}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *farSide) serve(w http.ResponseWriter, r *http.Request) {
	var q question
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	hold := f.enter(q)
	defer f.leave()
	if hold == nil {
		return
	}
	f.held <- q
	select {
	case <-hold:
	case <-r.Context().Done():
	}
}

func (f *farSide) enter(q question) (hold chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[q.Name]++
	if f.asked[q.Instance] == nil {
		f.asked[q.Instance] = map[string]bool{}
	}
	f.asked[q.Instance][q.Name] = true
	hold = f.hold[q.Name]
	delete(f.hold, q.Name)
	return hold
}

func (f *farSide) leave() {
	f.mu.Lock()
	total := 0
	for _, n := range f.calls {
		total += n
	}
	f.mu.Unlock()
	f.served <- total
}

// holdFirst has the first call for a place wait until release is closed.
func (f *farSide) holdFirst(place string) (release chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	release = make(chan struct{})
	f.hold[place] = release
	return release
}

// counts returns how often each place was asked about, and which of them an instance asked about.
func (f *farSide) counts(instance string) (calls map[string]int, asked map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.calls), maps.Clone(f.asked[instance])
}
