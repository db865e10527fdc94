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

	moved func() // is called for each call

	mu     sync.Mutex
	calls  calls
	hold   map[string]chan struct{} // by place: the first call waits for this
	held   chan question            // a call that is held back
	served chan int                 // how many calls there have been, after each
	unread chan struct{}            // calls that arrive are not counted before it is closed; nil for at once
}

// calls are how often each place was asked about, by place and then by instance.
type calls map[string]map[string]int

func newFarSide(t *testing.T, moved func()) *farSide {
	t.Helper()
	f := &farSide{
		moved: moved,
		calls: calls{}, hold: map[string]chan struct{}{}, held: make(chan question, 64), served: make(chan int, 4096),
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
	f.await(q)
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

// await keeps a call back that is not to be counted yet.
func (f *farSide) await(q question) {
	f.mu.Lock()
	unread := f.unread
	f.mu.Unlock()
	if unread != nil {
		f.held <- q
		<-unread
	}
}

func (f *farSide) enter(q question) (hold chan struct{}) {
	f.moved()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls[q.Name] == nil {
		f.calls[q.Name] = map[string]int{}
	}
	f.calls[q.Name][q.Instance]++
	hold = f.hold[q.Name]
	delete(f.hold, q.Name)
	return hold
}

func (f *farSide) leave() {
	f.mu.Lock()
	total := 0
	for _, by := range f.calls {
		for _, n := range by {
			total += n
		}
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

// readLate has calls arrive from now on, and be counted and answered only when release is closed.
func (f *farSide) readLate() (release chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unread = make(chan struct{})
	return f.unread
}

// counts returns how often each place was asked about until now.
func (f *farSide) counts() calls {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := calls{}
	for place, by := range f.calls {
		all[place] = maps.Clone(by)
	}
	return all
}
