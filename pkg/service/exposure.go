package service

import (
	"fmt"
	"net"
	"strings"

	"github.com/expediter-io/expediter/pkg/service/access"
)

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
