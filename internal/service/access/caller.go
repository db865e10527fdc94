// Package access names the callers of an HTTP interface by their keys or tokens, and decides which routes they may use.
//
// A [Key] has scopes, and may be bound to one user. A file keeps the hashes of the secrets only, see [Keys]. Tokens come from an issuer of
// OpenID Connect, see [OIDC], or from an application that signs them for its users, see [Signer]. A token is bound to its subject, unless
// it is the issuer's and has the scope all-users. Every route has a [Need]: [Public], [All] or [Own]. A caller that is bound to a user may
// use only routes of [Own]. Their handlers check with [Caller.For] that the ids in a request are the user's.
package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Scope is a permission of a caller.
type Scope string

// The scopes.
const (
	// Address is needed, in addition to Publish, for events that carry their own recipients and addresses.
	Address Scope = "address"

	// Mark is needed to mark the items of an inbox.
	Mark Scope = "mark"

	// Notify is needed for notifications that choose their recipients, channels and texts.
	Notify Scope = "notify"

	// Operate is needed to cancel and replay notifications, to see and enable endpoints, and to send test messages.
	Operate Scope = "operate"

	// People is needed to see and to change users, their addresses, preferences and memberships.
	People Scope = "people"

	// Publish is needed to submit work: places, imports and events.
	Publish Scope = "publish"

	// Read is needed to read and to follow.
	Read Scope = "read"
)

// Scopes returns all scopes in alphabetical order.
func Scopes() []Scope { return []Scope{Address, Mark, Notify, Operate, People, Publish, Read} }

var (
	// ErrForbidden is returned for a known caller that may not make the request.
	ErrForbidden = errors.New("the caller may not do this")

	// ErrUnavailable is returned for a token that cannot be checked now. The request may be repeated.
	ErrUnavailable = errors.New("the issuer of tokens does not answer")

	// ErrUnknown is returned for a request without a key or token that is in force.
	ErrUnknown = errors.New("a key or token that is in force is required")
)

// tokenError is returned for a key or token that is not in force. It matches [ErrUnknown].
type tokenError struct{ reason string }

func (e *tokenError) Error() string { return ErrUnknown.Error() + ": this one " + e.reason }
func (e *tokenError) Unwrap() error { return ErrUnknown }

// scopeError is returned for a caller without a scope. It matches [ErrForbidden].
type scopeError struct{ scope Scope }

func (e *scopeError) Error() string { return Forbidden("the scope %q is required", e.scope).Error() }
func (e *scopeError) Unwrap() error { return ErrForbidden }

// Challenge returns the header WWW-Authenticate for an error of [Guard.Admit] (RFC 6750), "" for none. It holds no secret.
func Challenge(realm string, err error) string {
	challenge := `Bearer realm="` + realm + `"`
	if token, ok := errors.AsType[*tokenError](err); ok {
		return challenge + `, error="invalid_token", error_description="the token ` + token.reason + `"`
	}
	if missing, ok := errors.AsType[*scopeError](err); ok {
		return challenge + `, error="insufficient_scope", scope="` + string(missing.scope) + `"`
	}
	if errors.Is(err, ErrUnknown) {
		return challenge
	}
	return ""
}

// Caller is the party behind a request. The zero value may do nothing.
type Caller struct {
	// Expires is the time from which the caller is unknown. The zero value is never.
	Expires time.Time

	// Name names the caller in logs and traces.
	Name string

	// RecipientType is the kind of recipient that User is. "" stands for every kind.
	RecipientType string

	// Scopes are the permissions.
	Scopes []Scope

	// User is the only user, or owner, for whom the caller acts. "" stands for all users.
	User string
}

// Anyone is the caller of a service that asks for no keys. It may do everything.
func Anyone() Caller { return Caller{Scopes: Scopes()} }

// May reports whether the caller has a scope.
func (c Caller) May(scope Scope) bool { return slices.Contains(c.Scopes, scope) }

// For reports whether the caller may act for a user, or owner.
func (c Caller) For(user string) bool {
	return len(c.Scopes) > 0 && (c.User == "" || c.User == user)
}

// IsOperator reports whether the caller has the scope operate and is not bound to a user.
func (c Caller) IsOperator() bool { return c.May(Operate) && c.User == "" }

// Same reports whether the other caller has the same name and permissions.
func (c Caller) Same(other Caller) bool {
	return c.Name == other.Name && c.User == other.User && c.RecipientType == other.RecipientType && c.Expires.Equal(other.Expires) &&
		slices.Equal(c.Scopes, other.Scopes)
}

// Forbidden returns an [ErrForbidden] that names the reason.
func Forbidden(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrForbidden, fmt.Sprintf(format, args...))
}

// Need is the condition that a route's callers have to meet. The zero value is not a valid need.
type Need struct {
	own    bool
	public bool
	scope  Scope
}

// Public is the need of a route that is open to everybody.
func Public() Need { return Need{public: true} }

// All is the need of a route for callers with a scope that are not bound to a user.
func All(scope Scope) Need { return Need{scope: scope} }

// Own is the need of a route for callers with a scope. Its handler refuses the data of other users, see [Caller.For].
func Own(scope Scope) Need { return Need{own: true, scope: scope} }

// IsPublic reports whether the route is open to everybody.
func (n Need) IsPublic() bool { return n.public }

// IsOwn reports whether the route is also for callers that are bound to a user.
func (n Need) IsOwn() bool { return n.own }

// Scope returns the scope that a caller needs, "" for a public route.
func (n Need) Scope() Scope { return n.scope }

// admit returns an [ErrForbidden] for a caller that does not meet the need.
func (n Need) admit(c Caller) error {
	switch {
	case n.public:
		return nil
	case n.scope == "" || !c.May(n.scope):
		return &scopeError{n.scope}
	case c.User != "" && !n.own:
		return Forbidden("a key or token that is bound to a user is not for this")
	}
	return nil
}

// contextKey is the key of a session in the context of a request.
type contextKey struct{}

// session is a caller whose key or token was in force when the request arrived.
type session struct {
	caller Caller
	holds  func() bool // whether the file still has the key; nil for a token of the issuer, and without keys
}

// From returns the caller of a request by its context.
func From(ctx context.Context) Caller {
	s, _ := ctx.Value(contextKey{}).(session)
	return s.caller
}

// Check returns an [ErrUnknown] when the key or token of a request is not in force any more, or the key has other permissions. A
// stream calls it before each event. It does no I/O.
func Check(ctx context.Context) error {
	s, _ := ctx.Value(contextKey{}).(session)
	known := s.caller.Expires.IsZero() || time.Now().Before(s.caller.Expires)
	if !known || s.holds != nil && !s.holds() {
		return fmt.Errorf("%w: that of %q is not in force any more", ErrUnknown, s.caller.Name)
	}
	return nil
}

// names returns scopes as text.
func names(scopes []Scope) string {
	texts := make([]string, len(scopes))
	for i, s := range scopes {
		texts[i] = string(s)
	}
	return strings.Join(texts, ", ")
}

const (
	// Subprotocol is the subprotocol of WebSockets that a browser offers in addition to its key.
	Subprotocol = "expediter"

	// subprotocolKey begins the subprotocol that holds the key of a browser, which cannot set headers of a WebSocket.
	subprotocolKey = "bearer."
)

// Guard admits the callers of an interface. A nil Guard admits everybody.
type Guard struct {
	keys *Keys
	oidc *OIDC
}

// NewGuard returns a guard that admits callers with a key, or with a token. Either argument may be nil.
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
	case g.keys == nil || strings.Count(secret, ".") == 2: // a signed JWT: no secret of a key has a dot
		return g.byToken(r.Context(), secret, wait)
	}
	sum := hash(secret)
	caller, err := g.keys.caller(sum)
	holds := func() bool {
		now, err := g.keys.caller(sum)
		return err == nil && now.Same(caller)
	}
	return session{caller: caller, holds: holds}, err
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
