package service

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/service/access"
)

// retryAfter is the Retry-After of every 503 and 507, in seconds.
const retryAfter = "2"

// RouterConfig describes the routes that every API has.
type RouterConfig struct {
	// Access admits the callers of routes. Defaults to none: everybody may use all routes.
	Access *access.Guard

	// Admin moves the probes, /metrics and the routes that need the scope operate from the router to [Router.Admin]. Defaults to false.
	Admin bool

	// Errors maps the service's own errors. Defaults to the errors that all services have.
	Errors ErrorMapper

	// Exports have the metrics of /metrics. Defaults to none: the router then has no /metrics.
	Exports *export.Exports

	// Heartbeat is the time after which an idle stream gets a heartbeat, so that proxies keep it open. Defaults to 15 seconds.
	Heartbeat time.Duration

	// Hosts are further hosts that requests may name, with the wildcards of [path.Match]. Defaults to addresses and localhost, and with
	// Access to all hosts.
	Hosts []string

	// Limits are the quotas of callers. Defaults to none.
	Limits LimitConfig

	// Logger gets the errors that clients are not shown. Required.
	Logger *slog.Logger

	// Name is the name of the service. Required.
	Name string

	// OpenAPI describes the API in JSON. The router then has /openapi.json and /schemas. Defaults to none.
	OpenAPI []byte

	// Origins are the origins of pages, such as https://app.example.com, that may use the API. Defaults to none but its own.
	Origins []string

	// Ready returns the results of the checks of readiness by name, nil or a [Note] for a passed check. Required.
	Ready func() map[string]error

	// Timeout bounds answers, except event streams and WebSockets, from the last byte of the request on. Defaults to 15 seconds.
	Timeout time.Duration

	// Version is the answer of /version. Required.
	Version string
}

// Note is the result of a passed check of readiness with a remark, which the verbose answer shows.
type Note string //nolint:errname // not a failure

// Error returns the note.
func (n Note) Error() string { return string(n) }

// Router is the handler of all routes. A request without a route gets a problem, as for other errors.
type Router struct {
	admin    *Router // the router itself, unless Admin is set
	callers  *callers
	cfg      RouterConfig
	failures *sparse                // lines of the log
	needs    map[string]access.Need // by the patterns of routes
	ops      *[]Op                  // of this router and of those from apart
	refusals *sparse                // lines of the log
	routes   *http.ServeMux
	sockets  *sync.WaitGroup // the WebSockets of this router and of those from apart
	trusted  *http.CrossOriginProtection
}

// NewRouter returns a router that has /livez, /readyz, /version and, with exports, /metrics.
func NewRouter(cfg RouterConfig) *Router {
	cfg.Heartbeat, cfg.Timeout = cmp.Or(cfg.Heartbeat, Heartbeat), cmp.Or(cfg.Timeout, requestTimeout)
	r := (&Router{
		callers: newCallers(cfg.Name, cfg.Limits, cfg.Access), cfg: cfg, failures: newSparse(), ops: new([]Op), refusals: newSparse(),
		sockets: &sync.WaitGroup{},
		trusted: trusting(cfg.Origins),
	}).apart()
	r.admin = r
	if cfg.Admin {
		r.admin = r.apart()
	}
	r.addProbes()
	if cfg.OpenAPI != nil {
		r.describe(cfg.OpenAPI)
	}
	return r
}

// Verbosity describes the parameter of /readyz.
type Verbosity struct {
	// Verbose asks for the line of each check.
	Verbose string `empty:"true" example:"true" query:"verbose"`
}

// addProbes adds the routes for load balancers, Prometheus and operators.
func (a *Router) addProbes() {
	text := func(body string) func(http.ResponseWriter, *http.Request) error {
		return func(w http.ResponseWriter, _ *http.Request) error {
			_, _ = w.Write([]byte(body + "\n"))
			return nil
		}
	}
	line := Op{Gives: map[string]any{"text/plain": nil}, Need: access.Public(), Tag: "operations"}
	live, metrics, ready, version := line, line, line, line
	live.Name, live.Route, live.Summary = "getLivez", "GET /livez", "Whether the process runs."
	ready.Name, ready.Route, ready.Summary = "getReadyz", "GET /readyz", "Whether the service takes requests."
	ready.Description = "A caller who may read, and is not bound to a user, gets a line for each check."
	ready.Good = map[int]string{http.StatusOK: "The service is ready.", http.StatusServiceUnavailable: "A check has failed."}
	version.Name, version.Route, version.Summary = "getVersion", "GET /version", "The version of the program."
	a.Add(NewRoute[struct{}](live, text("ok")), NewRoute[Verbosity](ready, a.ready), NewRoute[struct{}](version, text(a.cfg.Version)))
	if a.cfg.Exports == nil {
		return
	}
	// Prometheus has its own quota.
	scraped := *a.admin
	scraped.admin = &scraped
	if a.cfg.Limits.Rate > 0 {
		scraped.callers = newCallers("", scrapes, a.cfg.Access)
	}
	metrics.Name, metrics.Route, metrics.Summary = "getMetrics", "GET /metrics", "Metrics in the text format of Prometheus."
	metrics.Need = access.All(access.Read)
	scraped.Add(NewRoute[struct{}](metrics, func(w http.ResponseWriter, r *http.Request) error {
		a.cfg.Exports.Metrics.ServeHTTP(w, r)
		return nil
	}))
}

// Add adds the routes of operations, as [Router.Handle] does.
func (a *Router) Add(ops ...Op) {
	for _, op := range ops {
		*a.ops = append(*a.ops, op)
		serve := func(w http.ResponseWriter, r *http.Request) error { return op.serve(a, w, r) }
		switch {
		case op.Route == "": // only over NATS
		case op.socket:
			a.HandleSocket(op.Route, op.Need, serve)
		default:
			a.handle(op.Route, op.Need, op.streams, serve)
		}
	}
}

// Ops returns all operations that were added.
func (a *Router) Ops() []Op { return *a.ops }

// apart returns a router like this one but without routes, for another listener.
func (a *Router) apart() *Router {
	return &Router{
		admin: a.admin, callers: a.callers, cfg: a.cfg, failures: a.failures, needs: map[string]access.Need{}, ops: a.ops, refusals: a.refusals,
		routes: http.NewServeMux(), sockets: a.sockets, trusted: a.trusted,
	}
}

// Admin returns the router of the probes, of /metrics, and of the routes that need the scope operate. It is the router itself
// unless RouterConfig.Admin is set.
func (a *Router) Admin() *Router { return a.admin }

// Handle adds a route, with a pattern of [http.ServeMux], for callers that meet the need, see [access.From]. Errors become problems.
// Handle panics for the zero Need, which is a mistake of the program.
func (a *Router) Handle(pattern string, need access.Need, answer func(http.ResponseWriter, *http.Request) error) {
	a.handle(pattern, need, false, answer)
}

// HandleStream is Handle for a route that answers with an event stream, which counts towards the caller's quota of streams. The context of
// the request ends when the caller's key or token expires.
func (a *Router) HandleStream(pattern string, need access.Need, answer func(http.ResponseWriter, *http.Request) error) {
	a.handle(pattern, need, true, answer)
}

func (a *Router) handle(pattern string, need access.Need, stream bool, answer func(http.ResponseWriter, *http.Request) error) {
	if need == (access.Need{}) {
		panic(fmt.Sprintf("service: the route %q says nothing of its callers", pattern))
	}
	if isAdmin(pattern, need) {
		a = a.admin
	}
	a.needs[pattern] = need
	_, path, _ := strings.Cut(pattern, " ")
	probe := quiet[path] && need.IsPublic()
	a.routes.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if probe { // has no quota, asks nobody, and is told to everybody
			if err := answer(w, r); err != nil {
				a.Fail(w, r, err)
			}
			return
		}
		r, err := a.admit(r, need)
		var end func()
		if err == nil {
			end, err = a.callers.begin(r, stream)
		}
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		defer end()
		r = natsotel.Trace(w, r)
		if name := access.From(r.Context()).Name; name != "" {
			trace.SpanFromContext(r.Context()).SetAttributes(attribute.String("enduser.id", name))
		}
		if err := a.within(w, r, stream, answer); err != nil {
			a.Fail(w, r, err)
		}
	})
}

// within answers a request of a known caller.
func (a *Router) within(w http.ResponseWriter, r *http.Request, stream bool, answer func(http.ResponseWriter, *http.Request) error) error {
	if stream {
		if expires := access.From(r.Context()).Expires; !expires.IsZero() {
			ctx, cancel := context.WithDeadline(r.Context(), expires)
			defer cancel()
			r = r.WithContext(ctx)
		}
		// The end of the answer is written too, and the deadline of the last event may be over.
		defer func() {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(farewellTimeout)) // the client may have gone
		}()
		return answer(w, r)
	}
	return a.timed(w, r, answer)
}

// admit identifies the caller. Requests that need the scope operate are logged, and of those
// that are refused, which the metrics count, some.
func (a *Router) admit(r *http.Request, need access.Need) (*http.Request, error) {
	if err := a.sameOrigin(r, need); err != nil {
		return r, err
	}
	r, err := a.cfg.Access.Admit(r, need)
	if over := a.callers.take(r); over != nil {
		return r, over
	}
	caller := access.From(r.Context())
	if caller.Name != "" {
		if conn, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			conn.known.Store(true)
		}
	}
	switch {
	case err != nil:
		if left, ok := a.refusals.turn(); ok {
			a.cfg.Logger.InfoContext(r.Context(), a.cfg.Name+": request refused",
				"method", r.Method, "path", r.URL.Path, "caller", caller.Name, "error", err, "unlogged", left)
		}
	case a.cfg.Access != nil && need.Scope() == access.Operate:
		a.cfg.Logger.InfoContext(r.Context(), a.cfg.Name+": operator's request",
			"method", r.Method, "path", r.URL.Path, "caller", caller.Name)
	}
	return r, err
}

// Needs returns the needs of all routes of this router by their patterns.
func (a *Router) Needs() map[string]access.Need { return maps.Clone(a.needs) }

// HandleSocket is [Router.HandleStream] for a route that answers with [Router.ServeSocket]. Wait waits for its WebSockets.
func (a *Router) HandleSocket(pattern string, need access.Need, answer func(http.ResponseWriter, *http.Request) error) {
	a.HandleStream(pattern, need, func(w http.ResponseWriter, r *http.Request) error {
		a.sockets.Add(1)
		defer a.sockets.Done()
		return answer(w, r)
	})
}

// Wait waits until every WebSocket has ended, after the contexts of their requests have ended: [http.Server.Shutdown] does not wait for
// WebSockets. A client that does not read delays Wait by a second. It does nothing for a nil Router.
func (a *Router) Wait() {
	if a != nil {
		a.sockets.Wait()
	}
}

// ServeHTTP answers one request. Browsers do not guess the type of an answer, and do not store it unless its handler says otherwise.
func (a *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := a.knownHost(r); err != nil {
		a.refuse(w, r, err)
		return
	}
	if a.share(w, r) {
		return
	}
	if refusal, pattern := a.routes.Handler(r); pattern == "" && a.unrouted(w, r, refusal) {
		return
	}
	a.routes.ServeHTTP(w, r)
}

// ready answers GET /readyz. The answer has a line for each check if the query has verbose or a check has failed, and the caller may read
// and is not bound to a user: the lines name streams and addresses.
func (a *Router) ready(w http.ResponseWriter, r *http.Request) error {
	checks := a.cfg.Ready()
	status := http.StatusOK
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		err := checks[name]
		if note, ok := errors.AsType[Note](err); ok {
			text.WriteString("[+]" + name + " ok, but: " + strings.ReplaceAll(string(note), "\n", "\n    ") + "\n")
			continue
		}
		if err != nil {
			status = http.StatusServiceUnavailable
			text.WriteString("[-]" + name + " failed: " + err.Error() + "\n")
			continue
		}
		text.WriteString("[+]" + name + " ok\n")
	}
	w.WriteHeader(status)
	var caller access.Caller
	if r.URL.Query().Has("verbose") || status != http.StatusOK {
		r, _ = a.cfg.Access.Admit(r, access.Public()) // who admits everybody
		caller = access.From(r.Context())
	}
	switch {
	case caller.May(access.Read) && caller.User == "":
		_, _ = w.Write([]byte(text.String()))
	case status != http.StatusOK:
		_, _ = w.Write([]byte("not ready\n"))
	default:
		_, _ = w.Write([]byte("ok\n"))
	}
	return nil
}

// Fail answers with a problem. Details that the client may not know are logged. A request whose context has ended gets an answer too: the
// client may have disconnected, but the service may also be stopping.
func (a *Router) Fail(w http.ResponseWriter, r *http.Request, err error) {
	p := a.cfg.Errors.Of(err)
	if p.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		if left, ok := a.failures.turn(); ok {
			a.cfg.Logger.WarnContext(r.Context(), a.cfg.Name+": request failed",
				"path", r.URL.Path, "caller", access.From(r.Context()).Name, "status", p.Status, "error", err, "unlogged", left)
		}
	}
	if quota, ok := errors.AsType[*quotaError](err); ok {
		w.Header().Set("Retry-After", quota.retryAfter())
	}
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusInsufficientStorage {
		w.Header().Set("Retry-After", retryAfter)
	}
	if p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden {
		if challenge := access.Challenge(a.cfg.Name, err); challenge != "" {
			w.Header().Set("WWW-Authenticate", challenge)
		}
	}
	write(w, p.Status, "application/problem+json", p)
}

// refuse is Fail for a request whose body nobody has read.
func (a *Router) refuse(w http.ResponseWriter, r *http.Request, err error) {
	unread(w, r)
	a.Fail(w, r, err)
}

// maxUnread bounds the body of a refused request on a connection that goes on, in bytes.
const maxUnread = 16 << 10

// unread makes the answer to a refused request wait for nobody. Otherwise net/http would first read the body, for 30 seconds if it has to.
// A connection goes on after a body that has arrived, because a client that comes back by TLS costs more.
func unread(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	switch {
	case r.ProtoMajor != 1: // a client of HTTP/2 may take no byte of the answer, and make another request
		_ = control.SetWriteDeadline(time.Now().Add(farewellTimeout))
	case r.ContentLength == 0, r.Header.Get("Expect") != "": // whose body nobody has asked for
	case control.SetReadDeadline(time.Now()) == nil:
		if _, err := io.CopyN(io.Discard, r.Body, maxUnread); !errors.Is(err, io.EOF) {
			w.Header().Set("Connection", "close")
			_ = control.SetReadDeadline(time.Now().Add(drainTimeout)) // for a client that reads when it has sent all
		}
	}
}

// unrouted answers a request without a route with a problem instead of the mux's plain text. It reports whether the mux refused: the mux
// also redirects to the path without double slashes.
func (a *Router) unrouted(w http.ResponseWriter, r *http.Request, refusal http.Handler) bool {
	said := verdict{header: http.Header{}}
	refusal.ServeHTTP(&said, r)
	switch said.status {
	case http.StatusNotFound:
		a.refuse(w, r, fmt.Errorf("%w: %.200q", errNoRoute, r.URL.Path))
	case http.StatusMethodNotAllowed:
		allowed := said.header.Get("Allow")
		w.Header().Set("Allow", allowed)
		a.refuse(w, r, fmt.Errorf("%w: %.20q, want one of %s", errMethod, r.Method, allowed))
	default:
		return false
	}
	return true
}

// verdict is a ResponseWriter that drops the body.
type verdict struct {
	header http.Header
	status int
}

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) Write(b []byte) (int, error) { return len(b), nil }
func (v *verdict) WriteHeader(status int)      { v.status = status }

// write answers with JSON and a line break, for terminals.
func write(w http.ResponseWriter, status int, contentType string, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		http.Error(w, "encoding the answer failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}

// maxPromised bounds the memory that is allocated for a body before it arrives, in bytes.
const maxPromised = 64 << 10

// Body reads the body of a request, of at most limit bytes. The error matches [ErrBody] or [ErrBodyTooLarge].
func Body(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	var body bytes.Buffer
	body.Grow(int(max(min(r.ContentLength, limit, maxPromised), 0)) + bytes.MinRead)
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		return body.Bytes(), nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, fmt.Errorf("%w of %d KiB", ErrBodyTooLarge, limit>>10)
	}
	return nil, errors.Join(ErrBody, err)
}

// PathEscape makes any id one segment of a path. Unescaped, "." and ".." would lead to another path.
func PathEscape(id string) string {
	if id == "." || id == ".." {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}
