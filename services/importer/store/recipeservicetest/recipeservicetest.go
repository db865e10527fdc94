// Package recipeservicetest has a Recipe Service for tests of its clients.
package recipeservicetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Token is the token that the service requires.
const Token = "recipe-service-token"

// Service is a Recipe Service as the document has it, on a bad day: one call in five fails, half of these after they
// were done, one in twenty is never answered, and others are done twice, or answered twice. It is a handler, and also a transport
// that opens no connection.
type Service struct {
	mu      sync.Mutex
	created int
	luck    *rand.Rand
	recipes map[string]Made                   // by job
	refused map[string]bool                   // jobs of which it never takes that they begin
	seen    Seen                              // without what follows from the rest
	status  map[string]contracts.ImportStatus // by job
}

// Made is a recipe that was created.
type Made struct{ ID, ref, owner string }

// Seen is what a service has been asked.
type Seen struct {
	Calls, Recipes, Refused int
	Foreign                 []string // calls that are not in the document
	Twice                   []string // jobs whose recipe was to be replaced by another
}

// New returns a service whose luck is that of a seed.
func New(seed uint64) *Service {
	return &Service{
		luck:    rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // repeatable
		recipes: map[string]Made{}, refused: map[string]bool{}, status: map[string]contracts.ImportStatus{},
	}
}

// RoundTrip implements http.RoundTripper.
func (s *Service) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	w := httptest.NewRecorder()
	defer func() {
		if recover() != nil { // by http.ErrAbortHandler
			resp, err = nil, errors.New("connection reset")
		}
	}()
	s.ServeHTTP(w, r)
	return w.Result(), r.Context().Err()
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // by one that was killed
	}
	s.mu.Lock()
	s.seen.Calls++
	luck := s.luck.Float64()
	s.mu.Unlock()
	switch {
	case luck < 0.05:
		<-r.Context().Done()
		return
	case luck < 0.15:
		http.Error(w, `{"error":"bad luck"}`, http.StatusInternalServerError)
		return
	}
	status, answer := s.do(r, body)
	switch {
	case luck < 0.20:
		http.Error(w, `{"error":"bad luck"}`, http.StatusBadGateway) // it was done all the same
		return
	case luck < 0.25:
		panic(http.ErrAbortHandler) // so was this
	case luck < 0.35:
		status, answer = s.do(r, body)
	case luck < 0.45 && answerTwice(w, status, answer):
		return
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(answer))
}

// answerTwice sends an answer, and the same once more, which a client can take for that to its next question. It reports whether
// there is a connection to do so.
func answerTwice(w http.ResponseWriter, status int, answer string) bool {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	text := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(answer), answer)
	if _, err := io.WriteString(conn, text+text); err != nil {
		return true // the client has had enough
	}
	for open := true; open; { // as that of a server would be
		_, err := conn.Read(make([]byte, 1))
		open = err == nil
	}
	return true
}

// do answers a request as the document says.
func (s *Service) do(r *http.Request, body []byte) (status int, answer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Header.Get("X-Service-Token") != Token {
		return http.StatusUnauthorized, "{}"
	}
	job, call, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/internal/import-jobs/"), "/")
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/internal/recipes/from-import-job":
		return s.create(body)
	case r.Method == http.MethodGet && call == "":
		known, ok := s.status[job]
		if !ok {
			return http.StatusNotFound, "{}"
		}
		data, err := json.Marshal(known)
		if err != nil {
			return http.StatusInternalServerError, "{}"
		}
		return http.StatusOK, string(data)
	case r.Method == http.MethodPost && call == "status":
		var told contracts.ImportStatus
		if err := json.Unmarshal(body, &told); err != nil {
			return http.StatusBadRequest, "{}"
		}
		if told.Status == contracts.ImportRunning && s.refused[job] {
			return http.StatusInternalServerError, "{}"
		}
		told.JobID = job
		s.status[job] = told
		return http.StatusOK, "{}"
	case r.Method == http.MethodPost && call == "transcript":
		return http.StatusOK, "{}"
	}
	s.seen.Foreign = append(s.seen.Foreign, r.Method+" "+r.URL.Path)
	return http.StatusNotFound, "{}"
}

func (s *Service) create(body []byte) (status int, answer string) {
	var draft struct {
		JobID     string `json:"job_id"`
		OwnerID   string `json:"owner_id"`
		SourceRef string `json:"source_ref"`
	}
	if err := json.Unmarshal(body, &draft); err != nil {
		return http.StatusBadRequest, "{}"
	}
	known, ok := s.recipes[draft.JobID]
	if !ok {
		s.created++
		known = Made{ID: fmt.Sprint("recipe-", s.created), ref: draft.SourceRef, owner: draft.OwnerID}
		s.recipes[draft.JobID] = known
	}
	if known.ref != draft.SourceRef || known.owner != draft.OwnerID {
		s.seen.Twice = append(s.seen.Twice, draft.JobID)
	}
	return http.StatusOK, fmt.Sprintf(`{"recipe_id":%q}`, known.ID)
}

// Refuse has it never take that a job begins, as it happens to one in 250.
func (s *Service) Refuse(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[job] = true
}

// Ended says how a job ended for the service, and which recipe it has of it.
func (s *Service) Ended(job string) (contracts.ImportStatus, Made) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status[job], s.recipes[job]
}

// Seen returns what the service has been asked.
func (s *Service) Seen() Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	seen.Recipes, seen.Refused = len(s.recipes), len(s.refused)
	return seen
}
