package service

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/pkg/service/access"
)

// knownHost returns an error for a request to a host that is not the service's. A page whose host leads to this machine names
// its own host, never an address. Only programs that are no browser name none.
func (a *Router) knownHost(r *http.Request) error {
	if a.cfg.Access != nil && len(a.cfg.Hosts) == 0 || r.Host == "" {
		return nil
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "localhost" {
		return nil
	}
	if slices.ContainsFunc(a.cfg.Hosts, func(pattern string) bool {
		ok, err := path.Match(strings.ToLower(pattern), host)
		return ok && err == nil
	}) {
		return nil
	}
	return fmt.Errorf("%w: %.200q (set %s_HOSTS)", errHost, host, strings.ToUpper(a.cfg.Name))
}

// crossOrigin tells requests of other pages apart. Programs that are no browser pass.
var crossOrigin = http.NewCrossOriginProtection()

// sameOrigin returns an error for a change that a page of another origin asks for. Public routes take nothing for granted that a
// browser adds to a request.
func (a *Router) sameOrigin(r *http.Request, need access.Need) error {
	if need.IsPublic() {
		return nil
	}
	if err := crossOrigin.Check(r); err != nil {
		return fmt.Errorf("%w: %w", errOrigin, err)
	}
	return nil
}
