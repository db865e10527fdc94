package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/expediter-io/expediter/pkg/service/access"
)

// adminPart is the name of the part that every service has: the probes, the metrics, and the routes of operators.
const adminPart = "admin"

// Part is some routes of a service that can have a listener of their own.
type Part struct {
	// Listen is the address of the listener, and [None] leaves the routes out. Defaults to none of its own: the routes are on
	// that of the API.
	Listen string

	// Name names the part. In capitals it is in the name of the environment variable of Listen, such as
	// NOTIFIER_UNSUBSCRIBE_LISTEN for "unsubscribe". Required.
	Name string

	// Routes adds the routes. Required.
	Routes func(*Router)
}

// listener is a server, and what it serves.
type listener struct {
	part   string // "" for the API
	router *Router
	server *Server // nil for none
}

// variable is the environment variable of the listener's address.
func (l listener) variable(service string) string {
	if l.part == "" {
		return strings.ToUpper(service) + "_LISTEN"
	}
	return strings.ToUpper(service+"_"+l.part) + "_LISTEN"
}

// route makes the routers: one for the API, and one for each part that has a listener of its own.
func (s *Service) route() {
	cfg := s.Config
	s.router = NewRouter(RouterConfig{
		Access: s.access, Admin: cfg.AdminListen != "", Docs: s.spec.Docs, Errors: s.spec.Errors, Exports: cfg.Exports, Hosts: cfg.Hosts,
		Origins: cfg.Origins, Limits: cfg.limits(s.access), Logger: cfg.Logger, Name: s.spec.Name, Ready: s.Ready,
		Timeout: s.spec.Timeout, Version: cfg.Version,
	})
	s.spec.Routes(s.router)
	s.listeners = []listener{{router: s.router}}
	if admin := s.router.Admin(); admin != s.router {
		s.listeners = append(s.listeners, listener{part: adminPart, router: admin})
	}
	for _, p := range s.spec.Parts {
		router := s.router
		if p.Listen != "" {
			router = s.router.apart()
			s.listeners = append(s.listeners, listener{part: p.Name, router: router})
		}
		p.Routes(router)
	}
}

// listen takes the addresses of all listeners.
func (s *Service) listen(ctx context.Context) (err error) {
	cfg := s.Config
	var cert *certificate
	if cfg.TLSCert != "" {
		if cert, err = newCertificate(s.spec.Name, cfg.TLSCert, cfg.TLSKey, cfg.Logger); err != nil {
			return err
		}
	}
	addresses := map[string]string{"": cfg.Listen, adminPart: cfg.AdminListen}
	for _, p := range s.spec.Parts {
		addresses[p.Name] = p.Listen
	}
	for i := range s.listeners {
		l := &s.listeners[i]
		if l.part == "" && cfg.Listener != nil {
			l.server = On(s.spec.Name, cfg.Listener)
		} else if l.server, err = Listen(ctx, s.spec.Name, addresses[l.part]); err != nil {
			return fmt.Errorf("%w (%s)", err, l.variable(s.spec.Name))
		}
		if l.server != nil && cert != nil {
			l.server.tls = cert.config() // each server changes its own
		}
		if err := s.exposed(*l); err != nil {
			return err
		}
	}
	return nil
}

// serve answers the requests of all listeners.
func (s *Service) serve() {
	for _, l := range s.listeners {
		l.server.Serve(s.group, ServerConfig{
			Connections: s.Config.Connections, Exports: s.Config.Exports, Handler: l.router, Logger: s.Config.Logger, Name: s.spec.Name,
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

// URL is the base URL of the HTTP API, or "" when there is none.
func (s *Service) URL() string { return s.PartURL("") }

// PartURL is the base URL of the listener of a part, such as "admin", or "" when it has none of its own.
func (s *Service) PartURL(name string) string {
	for _, l := range s.listeners {
		if l.part == name {
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

// exposed returns an error for a listener that everybody on the network could use. A part may be for everybody, but never the
// API and the routes of operators.
func (s *Service) exposed(l listener) error {
	if s.access != nil || s.Config.Insecure || l.server == nil || isLocal(l.server.listener.Addr()) {
		return nil
	}
	if l.part != "" && l.part != adminPart && l.router.isPublic() {
		return nil
	}
	name, prefix := s.spec.Name, strings.ToUpper(s.spec.Name)
	return fmt.Errorf("%s: %s can be reached from other machines, and its callers are unknown: set %s_KEYS to a file of keys "+
		"(expediter keys add), or %[3]s_OIDC_ISSUER to the issuer of their tokens, or %[4]s to an address such as 127.0.0.1:8080, "+
		"or %[3]s_INSECURE to true if a gateway knows the callers",
		name, l.server.listener.Addr(), prefix, l.variable(name))
}

// isPublic reports whether everybody may use all routes.
func (a *Router) isPublic() bool {
	for _, need := range a.needs {
		if !need.IsPublic() {
			return false
		}
	}
	return true
}

// isLocal reports whether only programs of this machine can reach an address.
func isLocal(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}
