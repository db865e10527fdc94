package natsotel_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// shop answers requests with the status and in the way that their paths name.
func shop() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "refused" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch r = natsotel.Trace(w, r); r.PathValue("id") {
		case "hints":
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusTeapot)
		case "body":
			_, _ = w.Write([]byte("soup"))
			w.WriteHeader(http.StatusTeapot) // too late
		case "full":
			w.WriteHeader(http.StatusInsufficientStorage)
		case "panic":
			panic(http.ErrAbortHandler)
		}
	})
	return mux
}

// served returns the labels of a request.
func served(method string, status int, route string) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("http.request.method", method), attribute.Int("http.response.status_code", status),
		attribute.String("network.protocol.name", "http"), attribute.String("network.protocol.version", "1.1"),
		attribute.String("server.address", "shop"), attribute.String("url.scheme", "http"),
	}
	if route != "" {
		all = append(all, attribute.String("http.route", route))
	}
	return all
}

// A request has a span below that of the client, and counts by its route and status, whatever path, host, method and version the client
// chose. One that is refused counts, and has no span.
func TestHandler(t *testing.T) {
	t.Parallel()
	const route = "/v1/orders/{id}"
	for _, c := range []struct {
		method, path string
		title        string
		code         codes.Code
		labels       []attribute.KeyValue
	}{
		{"POST", "/v1/orders/7", "POST " + route, codes.Unset, served("POST", 200, route)},
		{"POST", "/v1/orders/body", "POST " + route, codes.Unset, served("POST", 200, route)},
		{"POST", "/v1/orders/hints", "POST " + route, codes.Unset, served("POST", 418, route)},
		{"POST", "/v1/orders/full", "POST " + route, codes.Error, served("POST", 507, route)},
		{"POST", "/v1/orders/panic", "POST " + route, codes.Error, served("POST", 500, route)},
		{"POST", "/v1/orders/refused", "", codes.Unset, served("POST", 401, route)},
		{"POST", "/v2", "", codes.Unset, served("POST", 404, "")},
		{"BREW", "/v1/orders/7", "", codes.Unset, served("_OTHER", 405, "")},
	} {
		b := setup(t, nil)
		header, client := published(t, b)
		r := httptest.NewRequestWithContext(t.Context(), c.method, "http://any.test:12345"+c.path, strings.NewReader("soup"))
		r.ProtoMinor = 7
		b.propagate(header, r.Header)
		func() {
			defer func() {
				check.That(t, (recover() != nil) == strings.HasSuffix(c.path, "panic"), "%s: the panic is not the server's", c.path)
			}()
			b.Handler("shop", nil, shop()).ServeHTTP(httptest.NewRecorder(), r)
		}()
		check.Equal(t, b.value(t, "http.server.request.duration", c.labels...), 1, c.path+" is counted")
		ended := b.spans.Ended()[1:] // behind that of the client
		check.Equal(t, len(ended) == 1, c.title != "", c.path+" has a span")
		if c.title == "" {
			continue
		}
		span := ended[0]
		if span.Name() != c.title || span.SpanKind() != trace.SpanKindServer || span.Parent().SpanID() != client.SpanID() ||
			span.Status().Code != c.code {
			t.Errorf("%s: %q %s below %s: %v", c.path, span.Name(), span.SpanKind(), span.Parent().SpanID(), span.Status())
		}
		got := attribute.NewSet(span.Attributes()...)
		for _, want := range append(c.labels, attribute.String("url.path", c.path), attribute.String("network.peer.address", "192.0.2.1")) {
			value, _ := got.Value(want.Key)
			check.Equal(t, value.String(), want.Value.String(), c.path+": "+string(want.Key))
		}
	}
}

// propagate writes the trace context of the headers of a message into those of a request.
func (*bundle) propagate(from map[string][]string, to http.Header) {
	for name, values := range from {
		to.Set(name, values[0])
	}
}

// Requests for quiet paths are not measured. Without a recorder of spans a request is counted, and passes the client's context on. A
// server without telemetry has its handler as it is.
func TestHandlerMeasuresNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t, func(cfg *natsotel.Config) { cfg.TracerProvider = noop.NewTracerProvider() })
	var got trace.SpanContext
	h := b.Handler("shop", map[string]bool{"/livez": true}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = trace.SpanContextFromContext(natsotel.Trace(w, r).Context())
	}))
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, path := range []string{"/livez", "/orders"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		r.Header.Set("Traceparent", parent)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	check.Equal(t, got.TraceID().String(), strings.Split(parent, "-")[1], "trace")
	check.Equal(t, b.value(t, "http.server.request.duration", served("GET", 200, "")...), 1, "requests")
	var none *natsotel.Telemetry
	mux := http.NewServeMux()
	check.That(t, none.Handler("shop", nil, mux) == http.Handler(mux), "a nil Telemetry wraps the handler")
}

// A handler can flush its answer, and take its connection, as it can without telemetry.
func TestHandlerKeepsTheConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	server := httptest.NewServer(b.Handler("shop", nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if r.URL.Path == "/stream" {
			_, _ = w.Write([]byte("first\n"))
			check.OK(t, control.Flush())
			<-r.Context().Done() // the client has read the first line
			return
		}
		conn, _, err := control.Hijack()
		check.OK(t, err)
		check.OK(t, check.Err(conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\n\r\n"))))
		check.OK(t, conn.Close())
	})))
	t.Cleanup(server.Close)
	for path, want := range map[string]string{"/stream": "first\n", "/socket": ""} {
		r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, http.NoBody))(t)
		resp := check.Must(server.Client().Do(r))(t)
		line, err := bufio.NewReader(resp.Body).ReadString('\n')
		check.That(t, line == want && (err == nil || errors.Is(err, io.EOF)), "%s: %q, %v", path, line, err)
		check.OK(t, resp.Body.Close())
	}
}

// A request without traces costs few allocations.
func TestHandlerAllocates(t *testing.T) {
	b := setup(t, func(cfg *natsotel.Config) {
		cfg.TracerProvider = noop.NewTracerProvider()
		cfg.Propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	})
	h := b.Handler("shop", nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { natsotel.Trace(w, r) }))
	r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/orders", http.NoBody), httptest.NewRecorder()
	got := testing.AllocsPerRun(100, func() { h.ServeHTTP(w, r) })
	check.That(t, got <= 3, "a request costs %v allocations, want at most 3", got)
}
