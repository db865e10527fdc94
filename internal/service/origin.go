package service

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/internal/service/access"
)

// knownHost returns an error for a request to a host that does not belong to the service.
func (a *Router) knownHost(r *http.Request) error {
	if a.cfg.Access != nil && len(a.cfg.Hosts) == 0 {
		return nil
	}
	if err := KnownHost(r.Host, a.cfg.Hosts); err != nil {
		return fmt.Errorf("%w (set %s_HOSTS)", err, strings.ToUpper(a.cfg.Name))
	}
	return nil
}

// KnownHost returns an error for the host of a request unless it is an address, localhost, or matches a pattern. A request of a page whose
// host resolves to this machine names that host, never an address. Only programs other than browsers name no host.
func KnownHost(host string, patterns []string) error {
	full := host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil || host == "localhost" || host == "" {
		return nil
	}
	if slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(strings.ToLower(pattern), host)
		return ok && err == nil
	}) {
		return nil
	}
	return fmt.Errorf("%w: %.200q", errHost, full)
}

// preflight has the headers and methods that a page of a trusted origin may send, and the number of seconds for which its browser
// remembers them.
var preflight = map[string]string{
	"Access-Control-Allow-Headers": "Authorization, Content-Type, Idempotency-Key, Last-Event-ID",
	"Access-Control-Allow-Methods": "GET, POST, PATCH, DELETE",
	"Access-Control-Max-Age":       "600",
}

// trusting returns a protection that refuses requests of pages, except those of trusted origins. Programs other than browsers pass. It
// panics for an invalid origin, which is a mistake of the program.
func trusting(origins []string) *http.CrossOriginProtection {
	protection := http.NewCrossOriginProtection()
	for _, origin := range origins {
		if err := protection.AddTrustedOrigin(origin); err != nil {
			panic(fmt.Sprintf("service: %v", err))
		}
	}
	return protection
}

// share lets pages of trusted origins read the answer (CORS). It reports whether the request is a preflight, which it has answered:
// a browser sends no key with it. No answer lets a browser send cookies.
func (a *Router) share(w http.ResponseWriter, r *http.Request) bool {
	if len(a.cfg.Origins) == 0 {
		return false
	}
	header, origin := w.Header(), r.Header.Get("Origin")
	header.Add("Vary", "Origin")
	if !slices.Contains(a.cfg.Origins, origin) {
		return false
	}
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Expose-Headers", "Link, Location, Retry-After, WWW-Authenticate")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	if err := a.callers.take(r); err != nil {
		a.refuse(w, r, err)
		return true
	}
	for name, value := range preflight {
		header.Set(name, value)
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

// sameOrigin returns an error for a change that a page of another origin requests. Public routes do not rely on anything that a browser
// adds to a request.
func (a *Router) sameOrigin(r *http.Request, need access.Need) error {
	if need.IsPublic() {
		return nil
	}
	if err := a.trusted.Check(r); err != nil {
		return fmt.Errorf("%w: %w", errOrigin, err)
	}
	return nil
}

// patterns returns origins as patterns of [path.Match], with the brackets of IPv6 addresses escaped, because they are not a class of
// characters.
func patterns(origins []string) []string {
	escaped := make([]string, len(origins))
	for i, origin := range origins {
		escaped[i] = strings.ReplaceAll(origin, "[", `\[`)
	}
	return escaped
}

// checkHosts returns an error for every pattern that is not a host with wildcards of [path.Match], such as *.example.com.
func checkHosts(name string, hosts []string) error {
	var errs []error
	for _, host := range hosts {
		if _, err := path.Match(host, ""); err != nil || host == "" || strings.Contains(host, "/") {
			errs = append(errs, fmt.Errorf("%s: Hosts (%s_HOSTS) has %q: want hosts such as app.example.com or *.example.com",
				name, strings.ToUpper(name), host))
		}
	}
	return errors.Join(errs...)
}

// checkOrigins returns an error for every text that no browser sends as an origin: origins are compared exactly.
func checkOrigins(name string, origins []string) error {
	var errs []error
	for _, origin := range origins {
		u, err := url.Parse(origin)
		usual := map[string]string{"https": "443", "http": "80"}
		if err != nil || usual[u.Scheme] == "" || u.Hostname() == "" || u.Port() == usual[u.Scheme] ||
			u.Scheme+"://"+u.Host != origin || strings.ToLower(origin) != origin || strings.Contains(origin, "*") {
			errs = append(errs, fmt.Errorf("%s: Origins (%s_ORIGINS) has %q: want origins as browsers send them, such as "+
				"https://app.example.com or http://localhost:3000, in lower case, without a path, wildcard or usual port",
				name, strings.ToUpper(name), origin))
		}
	}
	return errors.Join(errs...)
}
