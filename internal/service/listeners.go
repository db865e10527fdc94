package service

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/expediter-io/expediter/internal/service/access"
)

// adminPart names the listener of the probes, the metrics, and the routes of operators.
const adminPart = "admin"

// listener is a server and its handlers.
type listener struct {
	part   string // "" for the API
	router *Router
	server *Server // nil for none
}

// variable returns the environment variable of the listener's address.
func (l listener) variable(service string) string {
	if l.part == "" {
		return strings.ToUpper(service) + "_LISTEN"
	}
	return strings.ToUpper(service+"_"+l.part) + "_LISTEN"
}

// route makes the routers: one for the API, and one for operators when they have their own listener.
func (s *Service) route() {
	cfg := s.Config
	s.router = NewRouter(RouterConfig{
		Access: s.access, Admin: cfg.AdminListen != "", Errors: s.spec.Errors, Exports: cfg.Exports, Hosts: cfg.Hosts,
		Origins: cfg.Origins, Limits: cfg.limits(s.access), Logger: cfg.Logger, Name: s.spec.Name, OpenAPI: s.spec.OpenAPI, Ready: s.Ready,
		Timeout: s.spec.Timeout, Version: cfg.Version,
	})
	s.spec.Routes(s.router)
	s.listeners = []listener{{router: s.router}}
	if admin := s.router.Admin(); admin != s.router {
		s.listeners = append(s.listeners, listener{part: adminPart, router: admin})
	}
}

// listen begins to listen on all addresses.
func (s *Service) listen(ctx context.Context) (err error) {
	cfg := s.Config
	addresses := map[string]string{"": cfg.Listen, adminPart: cfg.AdminListen}
	for i := range s.listeners {
		l := &s.listeners[i]
		if l.part == "" && cfg.Listener != nil {
			l.server = On(s.spec.Name, cfg.Listener)
		} else if l.server, err = Listen(ctx, s.spec.Name, addresses[l.part]); err != nil {
			return fmt.Errorf("%w (%s)", err, l.variable(s.spec.Name))
		}
		if err := l.server.UseTLS(cfg.TLSCert, cfg.TLSKey, cfg.Logger); err != nil {
			return err
		}
		if err := s.exposed(*l); err != nil {
			return err
		}
	}
	return nil
}

// serve answers the requests of all listeners.
func (s *Service) serve() {
	telemetry := s.Telemetry
	if s.Config.Exports == nil {
		telemetry = nil
	}
	for _, l := range s.listeners {
		l.server.Serve(s.group, ServerConfig{
			Connections: s.Config.Connections, Handler: l.router, Logger: s.Config.Logger, Name: s.spec.Name, Telemetry: telemetry,
			WriteTimeout: s.spec.WriteTimeout,
		})
	}
}

// stopListening takes no more requests, and waits for those under way.
func (s *Service) stopListening() error {
	errs := make([]error, len(s.listeners))
	var stopping sync.WaitGroup
	for i, l := range s.listeners {
		stopping.Go(func() { errs[i] = l.server.Stop() })
	}
	stopping.Wait()
	s.router.Wait()
	return errors.Join(errs...)
}

// URL returns the base URL of the HTTP API, or "" when there is none.
func (s *Service) URL() string { return s.listenerURL("") }

// AdminURL returns the base URL of the listener of the routes of operators, or "" when they are on that of the API.
func (s *Service) AdminURL() string { return s.listenerURL(adminPart) }

func (s *Service) listenerURL(part string) string {
	for _, l := range s.listeners {
		if l.part == part {
			return l.server.URL()
		}
	}
	return ""
}

// isAdmin reports whether a route is for operators and their programs.
func isAdmin(pattern string, need access.Need) bool {
	_, path, _ := strings.Cut(pattern, " ")
	return quiet[path] || need.Scope() == access.Operate
}

// openAccess reads the keys of the callers, and prepares to check their tokens.
func (s *Service) openAccess() (err error) {
	name, cfg := s.spec.Name, s.Config
	if cfg.Keys != "" {
		if s.keys, err = access.Open(name, cfg.Keys, cfg.Logger); err != nil {
			return fmt.Errorf("%s: Keys (%s_KEYS): %w", name, strings.ToUpper(name), err)
		}
		s.keys.Audience = cmp.Or(cfg.TokenAudience, name)
		s.Go(s.keys.Run)
	}
	if cfg.OIDCIssuer != "" {
		if s.oidc, err = access.NewOIDC(access.OIDCConfig{
			Audience: cfg.OIDCAudience, Issuer: cfg.OIDCIssuer, Logger: cfg.Logger, Name: name, ScopeClaim: cfg.OIDCScopeClaim,
		}); err != nil {
			return fmt.Errorf("%s: OIDCIssuer (%s_OIDC_ISSUER): %w", name, strings.ToUpper(name), err)
		}
		s.Go(s.oidc.Run)
	}
	if s.keys != nil || s.oidc != nil {
		s.access = access.NewGuard(s.keys, s.oidc)
	}
	return nil
}

// exposed returns an error for a listener that everybody on the network could use.
func (s *Service) exposed(l listener) error {
	if s.access != nil || s.Config.Insecure || l.server == nil || isLocal(l.server.listener.Addr()) {
		return nil
	}
	name, prefix := s.spec.Name, strings.ToUpper(s.spec.Name)
	return fmt.Errorf("%s: %s can be reached from other machines, and its callers are unknown: set %s_KEYS to a file of keys "+
		"(expediter keys add), or %[3]s_OIDC_ISSUER to the issuer of their tokens, or %[4]s to an address such as 127.0.0.1:8080, "+
		"or %[3]s_INSECURE to true if a gateway knows the callers",
		name, l.server.listener.Addr(), prefix, l.variable(name))
}

// isLocal reports whether only programs of this machine can reach an address.
func isLocal(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// ErrBusy is returned for a request when the service already answers as many as it can. It becomes 503.
var ErrBusy = errors.New("the service answers as many requests as it can: ask again")

// connections is a listener with a bound of its connections. A new connection beyond the bound replaces the connection that has waited
// longest for a whole request, be it idle or slow: one of known callers if more of these wait than of strangers, else one of a stranger. So
// neither leaves the other without. An eighth of the bound is left for connections that only wait.
type connections struct {
	net.Listener

	most int // connections

	mu       sync.Mutex
	open     int
	known    *list.List // the connections of known callers without a whole request, the one that waits longest first
	requests int        // that are being answered
	strange  *list.List // those of others, likewise
}

// connection is a connection of a listener.
type connection struct {
	net.Conn

	of *connections

	closed   bool
	in       *list.List    // the list of its place
	known    atomic.Bool   // its caller had a key or token that was in force
	place    *list.Element // nil while it has a request
	requests int           // more than one with HTTP/2
}

// bounded bounds the connections of a listener.
func bounded(l net.Listener, most int) *connections {
	return &connections{Listener: l, most: most, known: list.New(), strange: list.New()}
}

// Accept returns the next connection, after it got a place.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		added, instead := c.add(conn)
		if instead != nil {
			_ = instead.Close() // its client has kept it open without a request
		}
		if added != nil {
			return added, nil
		}
	}
}

// add gives a connection a place, and returns the connection to close instead: the one that waits longest, or the new one when none waits.
func (c *connections) add(conn net.Conn) (added *connection, instead net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open >= c.most {
		if instead = c.longest(); instead == nil {
			return nil, conn
		}
	}
	c.open++
	added = &connection{Conn: conn, of: c}
	added.wait()
	return added, instead
}

// longest takes the place of the connection that others may replace, and returns it, nil for none. The caller holds the lock.
func (c *connections) longest() net.Conn {
	from := c.strange
	if c.known.Len() > from.Len() {
		from = c.known
	}
	if from.Len() == 0 {
		return nil
	}
	left := from.Front().Value.(*connection) //nolint:forcetypeassert // all are
	left.leave()
	return left.Conn
}

// wait puts a connection behind the others that wait. The caller holds the lock.
func (c *connection) wait() {
	c.in = c.of.strange
	if c.known.Load() {
		c.in = c.of.known
	}
	c.place = c.in.PushBack(c)
}

// leave gives the place of a connection back. The caller holds the lock.
func (c *connection) leave() {
	if c.closed {
		return
	}
	c.closed = true
	c.of.open--
	c.ask()
}

// ask takes a connection from those that wait. The caller holds the lock.
func (c *connection) ask() {
	if c.place != nil {
		c.in.Remove(c.place)
		c.place = nil
	}
}

// Close closes the connection, and gives its place back.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.leave()
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// closeWaiting closes the connections without a request.
func (c *connections) closeWaiting() {
	c.mu.Lock()
	var waiting []net.Conn
	for conn := c.longest(); conn != nil; conn = c.longest() {
		waiting = append(waiting, conn)
	}
	c.mu.Unlock()
	for _, conn := range waiting {
		_ = conn.Close() // nothing was asked on it
	}
}

// begin counts a request as n. It reports whether the request may be answered.
func (c *connections) begin(conn *connection, path string, n int) bool {
	bound := c.most - c.most/reserved
	if path == "/metrics" { // its client may read slowly
		bound = c.most - c.most/reserved/2
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 && c.requests >= bound {
		return false
	}
	c.requests += n
	conn.requests++
	conn.ask()
	return true
}

func (c *connections) end(conn *connection, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests -= n
	conn.requests--
	if conn.requests == 0 && !conn.closed {
		conn.wait()
	}
}

// connectionKey is the key of a connection in the contexts of its requests.
type connectionKey struct{}

// connContext is the ConnContext of [http.Server].
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// handler refuses the requests beyond the bound. Probes are answered all the same, and take nobody's place: a service with much to do is
// alive.
func (c *connections) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connectionKey{}).(*connection)
		if !conn.known.Load() {
			runtime.Gosched() // a stranger who sends many requests at once has a turn for each
		}
		n := 1
		if quiet[r.URL.Path] && r.URL.Path != "/metrics" {
			n = 0
		}
		if !c.begin(conn, r.URL.Path, n) {
			unread(w, r)
			if r.ProtoMajor == 1 { // other protocols have more requests on one connection
				w.Header().Set("Connection", "close")
			}
			w.Header().Set("Retry-After", retryAfter)
			write(w, http.StatusServiceUnavailable, "application/problem+json", ErrorMapper(nil).Of(ErrBusy))
			return
		}
		defer c.end(conn, n)
		next.ServeHTTP(w, r)
	})
}
