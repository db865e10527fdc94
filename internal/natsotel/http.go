package natsotel

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/semconv/v1.43.0/httpconv"
	"go.opentelemetry.io/otel/trace"
)

// requestMetrics are the instruments of requests over HTTP.
type requestMetrics struct {
	took httpconv.ServerRequestDuration
	made *cache[requestKind, labels]
}

func newRequestMetrics(m *maker) requestMetrics {
	took, err := httpconv.NewServerRequestDuration(m.meter, seconds)
	m.errs = append(m.errs, err)
	return requestMetrics{took: took, made: newCache[requestKind, labels]()}
}

// requestKind has the labels of a request. A client chooses none of them freely, so there are few.
type requestKind struct {
	method, route, server string
	protocol              [2]int // major and minor version
	secure                bool
	status                int
}

// methods are the methods that labels name.
var methods = []string{
	http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPatch, http.MethodPost,
	http.MethodPut, http.MethodTrace,
}

func requestKindOf(r *http.Request, server string) requestKind {
	// HTTP/1.7 is HTTP/1.1 to net/http, and a client may name any of ten.
	k := requestKind{method: "_OTHER", protocol: [2]int{r.ProtoMajor, min(r.ProtoMinor, 1)}, secure: r.TLS != nil, server: server}
	if slices.Contains(methods, r.Method) {
		k.method = r.Method
	}
	return k
}

// attributes returns the attributes that a request has before it is answered.
func (k requestKind) attributes() []attribute.KeyValue {
	scheme, version := "http", strconv.Itoa(k.protocol[0])
	if k.secure {
		scheme = "https"
	}
	if k.protocol[0] == 1 {
		version += "." + strconv.Itoa(k.protocol[1])
	}
	return []attribute.KeyValue{
		attribute.String("http.request.method", k.method), attribute.String("network.protocol.name", "http"),
		attribute.String("network.protocol.version", version), attribute.String("server.address", k.server),
		attribute.String("url.scheme", scheme),
	}
}

// answered returns the attributes that an answer adds.
func (k requestKind) answered() []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.Int("http.response.status_code", k.status)}
	if k.route != "" {
		all = append(all, attribute.String("http.route", k.route))
	}
	return all
}

func (m *requestMetrics) labels(k requestKind) labels {
	made, ok := m.made.load(k)
	if !ok {
		made = newLabels(append(k.attributes(), k.answered()...)...)
		m.made.store(k, made)
	}
	return made
}

// Handler returns a handler that times and traces the requests that next answers, under the names of the semantic conventions for HTTP
// servers. The label server.address is server, whatever host a client names. Requests for the quiet paths, such as those of probes, are
// not measured. A request has a span from [Trace] on. next uses the optional methods of its writer by [http.ResponseController]. Without
// traces a request costs three small allocations.
func (t *Telemetry) Handler(server string, quiet map[string]bool, next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if quiet[r.URL.Path] {
			next.ServeHTTP(w, r)
			return
		}
		t.serve(w, r, server, next)
	})
}

// Trace begins the span of a request that the handler of [Telemetry.Handler] got with w, a child of the client's span, whose context is in
// the headers, and returns the request for what follows. It is called for a request that is admitted: one that is refused costs no span,
// whatever its headers say.
func Trace(w http.ResponseWriter, r *http.Request) *http.Request {
	a, ok := w.(*answerWriter)
	if !ok {
		return r
	}
	if a.ctx = a.t.propagator.Extract(r.Context(), propagation.HeaderCarrier(r.Header)); a.t.traces {
		//nolint:spancheck // serve ends it
		a.ctx, a.span = a.t.tracer.Start(a.ctx, a.kind.method, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(a.start),
			trace.WithAttributes(a.kind.attributes()...), trace.WithAttributes(attribute.String("network.peer.address", peer(r)),
				attribute.String("url.path", r.URL.Path), attribute.String("user_agent.original", r.UserAgent())))
	}
	if a.ctx == r.Context() {
		return r
	}
	return r.WithContext(a.ctx)
}

func (t *Telemetry) serve(w http.ResponseWriter, r *http.Request, server string, next http.Handler) {
	a := &answerWriter{ResponseWriter: w, ctx: r.Context(), kind: requestKindOf(r, server), start: time.Now(), t: t}
	a.kind.status = http.StatusInternalServerError // that of a handler that panics, unless it has begun to answer
	defer func() {
		kind, span := a.kind, a.span
		if a.status != 0 {
			kind.status = a.status
		}
		if at := strings.IndexByte(r.Pattern, '/'); at >= 0 { // a pattern may begin with a method and a host
			kind.route = r.Pattern[at:]
		}
		t.requests.took.Inst().Record(a.ctx, time.Since(a.start).Seconds(), t.requests.labels(kind).record...)
		if span == nil {
			return
		}
		if kind.route != "" {
			span.SetName(kind.method + " " + kind.route)
		}
		span.SetAttributes(kind.answered()...)
		if kind.status >= http.StatusInternalServerError {
			span.SetAttributes(attribute.String("error.type", strconv.Itoa(kind.status)))
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}()
	next.ServeHTTP(a, r)
	a.kind.status = http.StatusOK // unless it has chosen another
}

// peer returns the address of the client, or of a proxy.
func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// answerWriter notes the status of an answer, and has what its measurement needs.
type answerWriter struct {
	http.ResponseWriter

	ctx    context.Context // that of the span, when it has begun
	kind   requestKind
	span   trace.Span // nil before [Trace], and without traces
	start  time.Time
	status int // 0 before the answer begins
	t      *Telemetry
}

// WriteHeader begins the answer. Statuses below 200 may precede another one, unless they change the protocol.
func (a *answerWriter) WriteHeader(status int) {
	if a.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the body.
func (a *answerWriter) Write(data []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(data)
}

// Unwrap returns the writer below, for [http.ResponseController].
func (a *answerWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }
