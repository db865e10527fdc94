// Package wolttest is a local server that implements the part of Wolt's consumer API that package wolt uses, for tests and
// demonstrations.
//
// It answers POST /v1/pages/search and GET /v1/cities in the documented shape, from a list of venues, and it requires the
// documented headers: without `platform: Web` an answer is a no-content page, without a client version it is a 410. Each
// [Fault] is a failure that clients of the real API have met. A test sets the faults of the next calls, or one for all calls
// until [Server.Recover]. The server counts the calls.
package wolttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/service/servicetest"
)

// maxRequest bounds the body of a request.
const maxRequest = 64 << 10

// Config sets up a [Server].
type Config struct {
	// Cities are served as /v1/cities. Defaults to [Cities].
	Cities []City

	// InMemory keeps the server off the network: only [Server.Transport] reaches
	// it. It then works under the fake time of testing/synctest. Defaults to false:
	// a random port of 127.0.0.1.
	InMemory bool

	// Venues are the venues to search. Defaults to none.
	Venues []Venue
}

// Call is a call that the server got.
type Call struct {
	// Fault is the name of the fault it was answered with, or empty.
	Fault string

	// Header is the header of the request.
	Header http.Header

	// Lat and Lon are where venues were searched for.
	Lat, Lon float64

	// Path is the path of the request.
	Path string

	// Query is the text that was searched for.
	Query string

	// Target is the target of the search: venues, items, or empty for both.
	Target string
}

// Server is a stand-in for Wolt's API. It is safe for concurrent use.
type Server struct {
	config    Config
	http      *http.Server
	listener  net.Listener
	quit      chan struct{}
	serving   sync.WaitGroup // the accept loop and every handler
	transport *http.Transport
	url       string

	mu     sync.Mutex
	always Fault
	calls  []Call
	closed bool
	next   []Fault
	venues []Venue
}

// Start starts a server. Close stops it.
func Start(config Config) (*Server, error) {
	if config.Cities == nil {
		config.Cities = Cities()
	}
	s := &Server{config: config, quit: make(chan struct{}), transport: &http.Transport{}, venues: config.Venues}
	if config.InMemory {
		pipes := servicetest.NewPipes()
		s.listener, s.transport.DialContext, s.url = pipes, pipes.DialContext, "http://localhost"
	} else {
		var err error
		s.listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0") //nolint:forbidigo // Waits for nothing.
		if err != nil {
			return nil, fmt.Errorf("listen on loopback: %w", err)
		}
		s.url = "http://" + s.listener.Addr().String()
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/cities", s.serveCities)
	mux.HandleFunc("POST /v1/pages/search", s.serveSearch)
	s.http = &http.Server{Handler: s.counted(mux), ReadHeaderTimeout: time.Minute}
	s.serving.Go(func() { _ = s.http.Serve(s.listener) }) //nolint:errcheck // It ends with Close.
	return s, nil
}

// Calls returns the calls so far, in the order in which they came.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Call(nil), s.calls...)
}

// Close stops the server, ends hanging calls and waits for every handler. It is to
// be called once.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	close(s.quit)
	err := s.http.Close()
	s.transport.CloseIdleConnections()
	s.serving.Wait()
	if err != nil {
		return fmt.Errorf("close server: %w", err)
	}
	return nil
}

// Fail has the next calls, of either kind, answered with one of the faults each. A
// Fault that is zero lets its call be answered properly.
func (s *Server) Fail(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = append(s.next, faults...)
}

// FailAlways has every call from now on answered with a fault.
func (s *Server) FailAlways(fault Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always = fault
}

// Recover has calls answered properly again.
func (s *Server) Recover() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always, s.next = Fault{}, nil
}

// Searches counts the searches so far by their text.
func (s *Server) Searches() map[string]int {
	counts := make(map[string]int)
	for _, call := range s.Calls() {
		if call.Path == "/v1/pages/search" {
			counts[call.Query]++
		}
	}
	return counts
}

// SetVenues replaces the venues to search.
func (s *Server) SetVenues(venues []Venue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.venues = venues
}

// Transport reaches the server, also one that is InMemory.
func (s *Server) Transport() http.RoundTripper { return s.transport }

// URL is the base URL of the API.
func (s *Server) URL() string { return s.url }

func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		closed := s.closed
		if !closed {
			s.serving.Add(1)
		}
		s.mu.Unlock()
		if closed {
			panic(http.ErrAbortHandler)
		}
		defer s.serving.Done()
		next.ServeHTTP(w, r)
	})
}

// begin records a call and takes the fault that it is to be answered with.
func (s *Server) begin(call Call) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	fault := s.always
	if len(s.next) > 0 {
		fault, s.next = s.next[0], s.next[1:]
	}
	call.Fault = fault.Name
	s.calls = append(s.calls, call)
	return fault
}

func (s *Server) serveCities(w http.ResponseWriter, r *http.Request) {
	fault := s.begin(Call{Header: r.Header, Path: r.URL.Path})
	s.answer(w, r, fault, citiesPage(s.config.Cities))
}

func (s *Server) serveSearch(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Lat    float64 `json:"lat"`
		Lon    float64 `json:"lon"`
		Q      string  `json:"q"`
		Target string  `json:"target"`
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
	if err = errors.Join(err, json.Unmarshal(body, &ask)); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fault := s.begin(Call{
		Header: r.Header, Lat: ask.Lat, Lon: ask.Lon, Path: r.URL.Path, Query: ask.Q, Target: ask.Target,
	})
	switch {
	case r.Header.Get("Client-Version") == "" || r.Header.Get("X-Wolt-Web-Clientid") == "":
		fault = Status(http.StatusGone)
	case r.Header.Get("Platform") != "Web":
		fault = NoContent()
	}
	s.mu.Lock()
	venues := s.venues
	s.mu.Unlock()
	s.answer(w, r, fault, searchPage(venues, ask.Q, r.Header.Get("App-Language"), ask.Lat, ask.Lon))
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, fault Fault, page any) {
	body, err := json.Marshal(page)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if fault.serve != nil {
		fault.serve(exchange{body: body, quit: s.quit, r: r, w: w})
		return
	}
	writeJSON(w, body)
}

func writeJSON(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // The client may be gone.
}
