package access

import (
	"context"
	"net/http"
	"strings"
)

const (
	// Subprotocol is the subprotocol of WebSockets, which a browser offers beside its key.
	Subprotocol = "expediter"

	// subprotocolKey begins the subprotocol that holds the key of a browser, which cannot set headers of a WebSocket.
	subprotocolKey = "bearer."
)

// Guard admits the callers of an interface. A nil Guard admits everybody.
type Guard struct {
	keys *Keys
	oidc *OIDC
}

// NewGuard returns a guard that admits callers with a key, or with a token. One of both may be nil.
func NewGuard(keys *Keys, oidc *OIDC) *Guard { return &Guard{keys: keys, oidc: oidc} }

// Admit returns the request with its caller, see [From]. The error matches [ErrUnknown], [ErrForbidden] or [ErrUnavailable]. A
// token whose key is missing waits up to 5 seconds for its issuer, unless the route is public.
func (g *Guard) Admit(r *http.Request, need Need) (*http.Request, error) {
	s, err := g.identify(r, !need.public)
	if err == nil {
		err = need.admit(s.caller)
	} else if need.public {
		s, err = session{}, nil
	}
	return r.WithContext(context.WithValue(r.Context(), contextKey{}, s)), err
}

func (g *Guard) identify(r *http.Request, wait bool) (session, error) {
	if g == nil {
		return session{caller: Anyone()}, nil
	}
	secret := secret(r)
	switch {
	case secret == "":
		return session{}, ErrUnknown
	case g.oidc != nil && (g.keys == nil || strings.Count(secret, ".") == 2): // as a signed JWT; no secret of a key has a dot
		caller, err := g.oidc.caller(r.Context(), secret, wait)
		return session{caller: caller}, err
	}
	sum := hash(secret)
	caller, err := g.keys.caller(sum)
	return session{caller: caller, hash: sum, keys: g.keys}, err
}

// secret returns the key or token of a request, "" for none: the header Authorization, or a subprotocol of a WebSocket. It is never in
// the address, which proxies log.
func secret(r *http.Request) string {
	if scheme, value, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(value)
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return ""
	}
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for offer := range strings.SplitSeq(line, ",") {
			if value, ok := strings.CutPrefix(strings.TrimSpace(offer), subprotocolKey); ok {
				return value
			}
		}
	}
	return ""
}
