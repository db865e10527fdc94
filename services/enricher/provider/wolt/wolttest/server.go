// Package wolttest is a local server that implements the part of Wolt's consumer API that package wolt uses, for tests and
// demonstrations.
//
// It answers POST /v1/pages/search and GET /v1/cities in the documented shape, from a list of venues, and it requires the
// documented headers: without `platform: Web` an answer is a no-content page, without a client version it is a 410. Each
// [Fault] is a failure that clients of the real API have met. A test sets the faults of the next calls, or one for all calls
// until [Server.Recover]. The server counts the calls.
package wolttest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
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
	config Config
	http   *httptest.Server
	quit   chan struct{}

	mu     sync.Mutex
	always Fault
	calls  []Call
	next   []Fault
	venues []Venue
}

// Start starts a server. Close stops it.
func Start(config Config) *Server {
	if config.Cities == nil {
		config.Cities = Cities()
	}
	s := &Server{config: config, quit: make(chan struct{}), venues: config.Venues}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/cities", s.serveCities)
	mux.HandleFunc("POST /v1/pages/search", s.serveSearch)
	if !config.InMemory {
		s.http = httptest.NewServer(mux)
		return s
	}
	pipes := servicetest.NewPipes()
	s.http = &httptest.Server{Config: &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}, Listener: pipes}
	s.http.Start()
	s.http.Client().Transport = &http.Transport{DialContext: pipes.DialContext}
	return s
}

// Calls returns the calls so far, in the order in which they came.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Call(nil), s.calls...)
}

// Close stops the server, ends hanging calls and waits for every handler. It is to
// be called once.
func (s *Server) Close() {
	close(s.quit)
	s.http.CloseClientConnections()
	s.http.Close()
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
func (s *Server) Transport() http.RoundTripper { return s.http.Client().Transport }

// URL is the base URL of the API.
func (s *Server) URL() string { return s.http.URL }

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
