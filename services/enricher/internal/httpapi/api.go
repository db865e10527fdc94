package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
)

// Config says what the API serves, and how.
type Config struct {
	// Heartbeat is how often an idle event stream gets a comment, so that proxies keep it open.
	// Defaults to 15 seconds.
	Heartbeat time.Duration

	// Logger gets what went wrong in answering. Defaults to slog.Default().
	Logger *slog.Logger

	// Origins are the hosts, with wildcards as path.Match has them, whose pages may open a WebSocket, beside the
	// service's own. Defaults to none.
	Origins []string

	// Ready returns the checks of readiness by name, nil for one that is passed. Required.
	Ready func(context.Context) map[string]error

	// Service answers. Required.
	Service *enrich.Service

	// Version is what /version tells. Defaults to "unknown".
	Version string
}

const (
	defaultHeartbeat = 15 * time.Second
	writeTimeout     = 10 * time.Second // for one event to a client that does not read
	closeTimeout     = time.Second      // for a client to agree to the end of a WebSocket
	retryAfter       = "2"              // seconds, with every 503
)

// API is the handler of all routes.
type API struct {
	Config

	routes  *http.ServeMux
	sockets sync.WaitGroup
}

// New returns the API.
func New(cfg Config) *API {
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = defaultHeartbeat
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Version == "" {
		cfg.Version = "unknown"
	}
	mux := http.NewServeMux()
	a := &API{Config: cfg, routes: mux}
	mux.HandleFunc("POST /v1/enrich", a.enrich)
	mux.HandleFunc("GET /v1/requests/{requestId}", a.request)
	mux.HandleFunc("GET /v1/requests/{requestId}/events", a.events)
	mux.HandleFunc("GET /v1/requests/{requestId}/ws", a.webSocket)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", a.ready)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(a.Version + "\n")) })
	return a
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.routes.ServeHTTP(w, r) }

// Wait waits until every WebSocket has ended, after the contexts of their requests have: a server that shuts down does
// not know of them any more. A client that does not read holds it up for a second.
func (a *API) Wait() { a.sockets.Wait() }

// enrich answers POST /v1/enrich. The query parameter wait, a duration such as 5s, is waitMs of the body for those who
// cannot change the body.
func (a *API) enrich(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, contracts.MaxBody))
	if err != nil {
		a.fail(w, r, readError(err))
		return
	}
	req, err := contracts.Decode[contracts.EnrichRequest](body)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	if wait := r.URL.Query().Get("wait"); wait != "" {
		d, err := time.ParseDuration(wait)
		if err != nil || d < 0 || d > contracts.MaxWait {
			a.fail(w, r, &contracts.ValidationError{Type: "query", Fields: []contracts.FieldError{
				{Path: "?wait", Problem: "must be a duration such as 5s, at most " + contracts.MaxWait.String()},
			}})
			return
		}
		req.WaitMS = int(d.Milliseconds())
	}
	resp, err := a.Service.Enrich(r.Context(), req)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	data, err := contracts.Encode(resp)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if resp.Pending > 0 {
		w.Header().Set("Link", `</v1/requests/`+pathEscape(resp.RequestID)+`/events>; rel="monitor"`)
	}
	_, _ = w.Write(data)
}

// readError is what is wrong with a body that could not be read.
func readError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errTooLarge
	}
	return errors.Join(errBody, err)
}

// request answers GET /v1/requests/{requestId} with where the request stands, for those who poll.
func (a *API) request(w http.ResponseWriter, r *http.Request) {
	sub, err := a.Service.Subscribe(r.Context(), r.PathValue("requestId"), "")
	if err != nil {
		a.fail(w, r, err)
		return
	}
	defer sub.Close()
	update, _, err := sub.Next(r.Context())
	if err != nil {
		a.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, "application/json", update.Body)
}

// ready answers GET /readyz, with a line for each check when the query has verbose.
func (a *API) ready(w http.ResponseWriter, r *http.Request) {
	checks := a.Ready(r.Context())
	status := http.StatusOK
	var text strings.Builder
	for _, name := range sortedKeys(checks) {
		if err := checks[name]; err != nil {
			status = http.StatusServiceUnavailable
			text.WriteString("[-]" + name + " failed: " + err.Error() + "\n")
			continue
		}
		text.WriteString("[+]" + name + " ok\n")
	}
	w.WriteHeader(status)
	if r.URL.Query().Has("verbose") || status != http.StatusOK {
		_, _ = w.Write([]byte(text.String()))
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		http.Error(w, "encoding the answer failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(data)
}
