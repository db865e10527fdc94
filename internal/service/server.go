package service

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // of net/http
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
)

const (
	// drainTimeout bounds the wait for requests under way.
	drainTimeout = 5 * time.Second

	// unusedTimeout bounds the part of that wait for a connection on which no request has come. Browsers open such connections ahead of use,
	// and net/http would wait 5 seconds for each.
	unusedTimeout = 500 * time.Millisecond

	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	idleTimeout       = 2 * time.Minute

	// maxHeader bounds the header of a request, in bytes: a token has at most 16 KiB.
	maxHeader = 32 << 10
)

// None is the listen address of a service without HTTP.
const None = "-"

// ServerConfig describes a server.
type ServerConfig struct {
	// Connections is the largest number of connections at a time. Defaults to that of [LimitConfig].
	Connections int

	// Handler answers the requests. Required.
	Handler http.Handler

	// Logger gets the errors of connections and the panics of handlers. Defaults to slog.Default().
	Logger *slog.Logger

	// Name is the name of the service. Required.
	Name string

	// Telemetry times and traces the requests, except those of probes. Defaults to none.
	Telemetry *natsotel.Telemetry

	// WriteTimeout bounds an answer; streams set their own. Defaults to 1 minute.
	WriteTimeout time.Duration
}

// Server is an HTTP server whose every wait is bounded. A nil Server serves nothing.
type Server struct {
	listener net.Listener
	name     string
	server   *http.Server
	tls      *tls.Config // nil for none
}

// Listen listens on an address, such as ":8080" or "127.0.0.1:0". For [None] it returns nil and no error.
func Listen(ctx context.Context, name, address string) (*Server, error) {
	if address == None {
		return nil, nil
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s: listen on %q: %w", name, address, err)
	}
	return On(name, listener), nil
}

// On returns a server that takes its connections from a listener.
func On(name string, listener net.Listener) *Server { return &Server{listener: listener, name: name} }

// UseTLS makes the server speak TLS, with the certificate and the key in two files. They are read again when they change; if they then
// cannot be used, an error is logged and the former ones stay in force. Without a certificate it changes nothing. It is called before
// Serve.
func (s *Server) UseTLS(cert, key string, logger *slog.Logger) error {
	if s == nil || cert == "" {
		return nil
	}
	c, err := newCertificate(s.name, cert, key, logger)
	if err == nil {
		s.tls = c.config()
	}
	return err
}

// Serve answers requests in a goroutine of the group until Stop, which ends open event streams at once instead of waiting
// for them.
func (s *Server) Serve(group *Group, cfg ServerConfig) {
	if s == nil {
		return
	}
	connections := bounded(s.listener, LimitConfig{Connections: cfg.Connections}.limits(nil).Connections)
	base, endStreams := context.WithCancel(group.ctx)
	s.server = &http.Server{
		Handler:           cfg.Telemetry.Handler(cfg.Name, quiet, connections.handler(cfg.Handler)),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       connContext,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      cmp.Or(cfg.WriteTimeout, time.Minute),
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		TLSConfig:         s.tls,
		ErrorLog:          log.New(&serverLog{cmp.Or(cfg.Logger, slog.Default()), newSparse()}, "", 0),
	}
	s.server.RegisterOnShutdown(endStreams)
	s.server.RegisterOnShutdown(func() { time.AfterFunc(unusedTimeout, connections.closeWaiting) })
	group.Go(func(context.Context) error {
		defer endStreams()
		serve := s.server.Serve
		if s.tls != nil {
			serve = func(l net.Listener) error { return s.server.ServeTLS(l, "", "") }
		}
		if err := serve(connections); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("%s: serve HTTP: %w", s.name, err)
		}
		return nil
	})
}

// serverLog is the log of a server, of whose lines clients cause most, such as those of handshakes that fail.
type serverLog struct {
	logger *slog.Logger
	lines  *sparse
}

func (l *serverLog) Write(line []byte) (int, error) {
	if left, ok := l.lines.turn(); ok || bytes.Contains(line, []byte("panic serving")) {
		l.logger.Error(string(bytes.TrimSpace(line)), "unlogged", left)
	}
	return len(line), nil
}

// URL returns the base URL, "" for a nil server.
func (s *Server) URL() string {
	if s == nil {
		return ""
	}
	host, port, err := net.SplitHostPort(s.listener.Addr().String())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http://"
	if s.tls != nil {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port)
}

// Stop takes no more requests and waits for those under way. It cuts off those that take longer than 5 seconds.
func (s *Server) Stop() error {
	if s == nil {
		return nil
	}
	if s.server == nil {
		return s.listener.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout) //nolint:forbidigo // the caller's may be over
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("%s: requests still under way after %s are cut off: %w", s.name, drainTimeout, err), s.server.Close())
	}
	return nil
}

// requestTimeout bounds the answer to a request, from its last byte on, unless the service says otherwise.
const requestTimeout = 15 * time.Second

// timed answers a request within the Timeout of a, from the last byte of its body on. For a slow body the server has a deadline of its
// own. The error matches [context.DeadlineExceeded] when the time was too short.
func (a *Router) timed(w http.ResponseWriter, r *http.Request, answer func(http.ResponseWriter, *http.Request) error) error {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	timer := time.AfterFunc(a.cfg.Timeout, func() { cancel(errSilent) })
	defer timer.Stop()
	r = r.WithContext(ctx)
	r.Body = &arriving{ReadCloser: r.Body, arrived: func() { timer.Reset(a.cfg.Timeout) }}
	err := answer(w, r)
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		err = fmt.Errorf("%w: %w", errSilent, err)
	}
	return err
}

// arriving calls arrived for each part of a body.
type arriving struct {
	io.ReadCloser

	arrived func()
}

func (a *arriving) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if n > 0 {
		a.arrived()
	}
	return n, err
}

// describe adds the documents: the description of the API, and the schemas of messages. Everybody may read them.
func (a *Router) describe(api []byte) {
	const media = "application/json"
	op := Op{
		Name: "getOpenAPI", Route: "GET /openapi.json", Need: access.Public(), Tag: "documents", Summary: "This document.",
		Gives: map[string]any{media: map[string]any{}}, Good: Versioned,
		Headers: map[string]string{"ETag": "Identifies the version of the answer."},
	}
	a.Add(NewRoute[Known](op, document(media, string(api))))
	op.Name, op.Route, op.Bad = "getSchema", "GET /schemas/v1/{schema}", []int{http.StatusNotFound}
	op.Summary = "The JSON Schema (2020-12) of a message."
	op.Description = "Its $id is `https://schemas.expediter.io/v1/` and the name, and the `dataschema` of CloudEvents."
	a.Add(NewRoute[KnownSchema](op, func(w http.ResponseWriter, r *http.Request) error {
		name, isJSON := strings.CutSuffix(r.PathValue("schema"), ".json")
		data, err := contracts.Schema(name)
		if err != nil || !isJSON {
			return fmt.Errorf("%w: %.200q", errNoRoute, r.URL.Path)
		}
		return document(media, string(data))(w, r)
	}))
}

// Versioned are the good answers of a document that clients may keep.
var Versioned = map[int]string{
	http.StatusOK: "A document that changes with the version of the program.", http.StatusNotModified: "The client has it.",
}

// Known describes the parameter of a document.
type Known struct {
	// ETag is the ETag that the client has.
	ETag string `header:"If-None-Match"`
}

// KnownSchema describes the parameters of a schema.
type KnownSchema struct {
	Known

	// Schema is the name of the schema and `.json`.
	Schema string `example:"event.json" path:"schema"`
}

// document returns a handler whose answer clients may cache: they then ask whether it has changed.
func document(media, text string) func(http.ResponseWriter, *http.Request) error {
	tag := `"` + digest(text) + `"`
	return func(w http.ResponseWriter, r *http.Request) error {
		h := w.Header()
		h.Set("Cache-Control", "no-cache")
		h.Set("Content-Type", media)
		h.Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
		return nil
	}
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}
