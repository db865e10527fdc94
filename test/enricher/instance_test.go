package enricher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// instances are enrichers in their own processes, so that they can be killed. Each prints its URL when it is ready.
var instances = crash.Role[instance]{Name: "instance", Run: serve}

// instance is one enricher.
type instance struct{ Name, NATS, Provider string }

func TestMain(m *testing.M) { crash.Main(m, 4, instances) }

func serve(ctx context.Context, is instance) error {
	nc, err := nats.Connect(is.NATS, nats.MaxReconnects(-1), nats.ReconnectWait(nats.DefaultReconnectWait/100))
	if err != nil {
		return err
	}
	defer nc.Close()
	level := slog.LevelError
	if os.Getenv("TEST_ENRICHER_DEBUG") != "" {
		level = slog.LevelDebug
	}
	cfg := enricher.Config{
		BaseConfig: service.BaseConfig{
			CreateAssets: true, Listen: "127.0.0.1:0", MaxBytes: 1 << 30,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("instance", is.Name),
		},
		Enabled:   true,
		Providers: []provider.Provider{remote{name: is.Name, url: is.Provider}},
	}
	e, err := enricher.Start(ctx, nc, cfg)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, e.URL()); err != nil {
		return err
	}
	<-ctx.Done()
	return e.Stop()
}

// linkBase is the beginning of links. After it comes the name of the instance that found the venue.
const linkBase = "https://wolt.com/"

// remote is a provider that calls the test's remote service.
type remote struct{ name, url string }

func (remote) Name() string { return "wolt" }

func (r remote) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	body, err := json.Marshal(question{Instance: r.name, Name: place.Name})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := farClient.Do(req)
	if err != nil {
		return nil, &provider.Error{Provider: "wolt", Kind: provider.KindUnavailable, Cause: err}
	}
	defer resp.Body.Close()
	venue := provider.Venue{Place: place, ID: "v-" + place.Name, URL: linkBase + r.name + "/" + place.Name}
	venue.Aliases = nil
	return []provider.Venue{venue}, nil
}

// question is a request to the provider.
type question struct {
	Instance string `json:"instance"`
	Name     string `json:"name"`
}

// farClient has no timeout: the job's context ends a call.
var farClient = &http.Client{}

// providerServer is the provider's server. It counts, and it holds chosen calls back until the test lets them go.
type providerServer struct {
	*httptest.Server

	moved func() // is called for each call

	mu     sync.Mutex
	calls  calls
	hold   map[string]chan struct{} // by place: the first call waits for this
	held   chan question            // a call that waits
	served chan int                 // how many calls there have been, after each
}

// calls are how often each place was asked about, by place and then by instance.
type calls map[string]map[string]int

func newProviderServer(t *testing.T, moved func()) *providerServer {
	t.Helper()
	f := &providerServer{
		moved: moved,
		calls: calls{}, hold: map[string]chan struct{}{}, held: make(chan question, 64), served: make(chan int, 4096),
	}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *providerServer) serve(w http.ResponseWriter, r *http.Request) {
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

func (f *providerServer) enter(q question) (hold chan struct{}) {
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

func (f *providerServer) leave() {
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
func (f *providerServer) holdFirst(place string) (release chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	release = make(chan struct{})
	f.hold[place] = release
	return release
}

// counts returns how often each place was asked about until now.
func (f *providerServer) counts() calls {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := calls{}
	for place, by := range f.calls {
		all[place] = maps.Clone(by)
	}
	return all
}

// lookUps are the calls to the remote service, in a test that kills an instance.
type lookUps struct {
	before calls  // those that it had read when the instance was killed
	all    calls  // those that it had read at the end, the killed instance's last ones among them
	killed string // the instance
}

// check returns the fault of the look-ups of a place whose answer is of the instance found. again reports whether the
// killed instance was in the middle of looking it up: it had asked, and its answer was not stored. Then, and only then,
// one more look-up is right, by another instance, after the kill.
//
// The remote service's reads by then do not show all requests of the killed instance: calls were on their way. A call
// that it read before the kill was made before the kill.
func (l lookUps) check(place, found string) (again bool, err error) {
	var errs []error
	for instance, n := range l.all[place] {
		switch {
		case n > 1:
			errs = append(errs, fmt.Errorf("%s was looked up %d times by %s", place, n, instance))
		case instance == found:
		case instance == l.killed:
			again = true
		default:
			errs = append(errs, fmt.Errorf("%s was looked up by %s, and found by %s", place, instance, found))
		}
	}
	if l.all[place][found] == 0 {
		errs = append(errs, fmt.Errorf("%s was found by %s, which did not look it up", place, found))
	}
	if again && l.before[place][found] > 0 {
		errs = append(errs, fmt.Errorf("%s was looked up by %s and %s before %s was killed", place, l.killed, found, l.killed))
	}
	return again, errors.Join(errs...)
}

// checkOnce fails the test unless all clients have the same answer for every place, and each was looked up once. It
// returns the places that the killed instance was in the middle of.
func checkOnce(t *testing.T, clients []*client, l lookUps) (again []string) {
	t.Helper()
	for _, p := range clients[0].req.Results {
		found := map[string]int{}
		for _, c := range clients {
			found[finder(c.states[p.PlaceID])]++
		}
		if len(found) != 1 || found[""] > 0 {
			t.Errorf("clients got answers about %s from these instances: %v; it was looked up by %v", p.Name, found, l.all[p.Name])
			continue
		}
		for instance := range found {
			redone, err := l.check(p.Name, instance)
			check.ErrorIs(t, err, nil)
			if redone {
				again = append(again, p.Name)
			}
		}
	}
	return again
}

// finder returns the instance that found a place, or "".
func finder(state contracts.ProviderState) string {
	if state.Status != contracts.StatusFound || state.URL == nil {
		return ""
	}
	instance, _, _ := strings.Cut(strings.TrimPrefix(*state.URL, linkBase), "/")
	return instance
}
