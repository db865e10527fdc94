package access

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	// allUsers is the scope of a token whose caller acts for all users, and not for its subject only.
	allUsers = "all-users"

	// leeway is how far the clock of the issuer may be ahead.
	leeway = 30 * time.Second

	// maxSubject bounds the subject of a token, as OpenID Connect does.
	maxSubject = 255

	// maxToken bounds a token.
	maxToken = 16 << 10
)

// algorithms are those of signatures by a private key. No token is signed by a secret that the service would know, too.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// OIDCConfig describes the issuer of tokens, and what they must have.
type OIDCConfig struct {
	// Audience is to be among the audiences of a token. Required.
	Audience string

	// Issuer is the address of the issuer exactly as the claim iss has it, see [IsIssuer]. Required.
	Issuer string

	// Logger gets why the keys of the issuer could not be read. Required.
	Logger *slog.Logger

	// Name begins the log lines. Required.
	Name string

	// ScopeClaim is the claim that has the scopes, as a list or with spaces between them. Defaults to "scope".
	ScopeClaim string

	// Transport sends the requests to the issuer. Defaults to one with the proxy of the environment.
	Transport http.RoundTripper
}

// IsIssuer reports whether a text can be the address of an issuer: https, or http on a loopback address, without a query.
func IsIssuer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && isSafe(u) && !strings.ContainsAny(text, "?#")
}

// isSafe reports whether nobody between this machine and an address can change what is read from it.
func isSafe(u *url.URL) bool {
	addr, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && addr.IsLoopback()
	return u.Hostname() != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http" && local)
}

// OIDC knows the callers of an issuer of OpenID Connect by their access tokens: signed JWTs (RFC 7519, RFC 9068). Make it with
// [NewOIDC].
type OIDC struct {
	cfg    OIDCConfig
	client *http.Client
	wanted chan struct{} // has an element when a key is missing

	mu      sync.Mutex // guards the fields below
	failed  error      // of the last fetch
	fetched time.Time  // the end of the last fetch
	keys    map[string][]jose.JSONWebKey
	next    chan struct{} // is closed at the end of the next fetch
	waiting int           // callers that wait for it
}

// NewOIDC returns what knows the callers of an issuer. It sends nothing before [OIDC.Run].
func NewOIDC(cfg OIDCConfig) (*OIDC, error) {
	if !IsIssuer(cfg.Issuer) || cfg.Audience == "" {
		return nil, errors.New("tokens need an issuer with an https address, and an audience")
	}
	if cfg.ScopeClaim == "" {
		cfg.ScopeClaim = "scope"
	}
	return &OIDC{
		cfg: cfg, client: newClient(cfg.Transport), failed: errNotAsked, next: make(chan struct{}), wanted: make(chan struct{}, 1),
	}, nil
}

// caller returns the caller that has a token. It waits for the issuer, if at all, when a key is missing and wait is set.
func (o *OIDC) caller(ctx context.Context, token string, wait bool) (Caller, error) {
	if len(token) > maxToken {
		return Caller{}, &tokenError{"is over the limit of 16 KiB"}
	}
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil { // may quote the token
		return Caller{}, &tokenError{"is no JWT with the signature of a private key"}
	}
	var claims jwt.Claims
	var all map[string]any
	if parsed.UnsafeClaimsWithoutVerification(&claims, &all) != nil {
		return Caller{}, &tokenError{"has claims that cannot be read"}
	}
	if err := o.check(claims); err != nil { // before anything is asked of the issuer
		return Caller{}, err
	}
	keys, err := o.find(ctx, parsed.Headers[0].KeyID, wait)
	if err != nil {
		return Caller{}, err
	}
	for _, key := range keys {
		if fits := key.Algorithm == "" || key.Algorithm == parsed.Headers[0].Algorithm; !fits || parsed.Claims(key, &claims, &all) != nil {
			continue
		}
		return o.named(claims, scopes(all[o.cfg.ScopeClaim])), nil
	}
	return Caller{}, &tokenError{"has a signature that is not the issuer's"}
}

// check returns an error for claims that admit nobody now.
func (o *OIDC) check(claims jwt.Claims) error {
	err := claims.ValidateWithLeeway(jwt.Expected{AnyAudience: jwt.Audience{o.cfg.Audience}, Issuer: o.cfg.Issuer}, leeway)
	switch {
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return &tokenError{"is of another issuer"}
	case errors.Is(err, jwt.ErrInvalidAudience):
		return &tokenError{"is for another audience"}
	case claims.Expiry == nil:
		return &tokenError{"has no time of expiry"}
	case !time.Now().Before(claims.Expiry.Time()):
		return &tokenError{"has expired"}
	case err != nil:
		return &tokenError{"is not in force yet"}
	case claims.Subject == "", len(claims.Subject) > maxSubject, strings.ContainsFunc(claims.Subject, unicode.IsControl):
		return &tokenError{"has no subject of 1 to 255 bytes without control characters"}
	}
	return nil
}

// named returns the caller with the claims and scopes of a token. No name of a key is like its name, which has a space.
func (o *OIDC) named(claims jwt.Claims, granted []string) Caller {
	c := Caller{Expires: claims.Expiry.Time(), Name: o.cfg.Issuer + " " + claims.Subject, User: claims.Subject}
	for _, s := range Scopes() {
		if slices.Contains(granted, string(s)) {
			c.Scopes = append(c.Scopes, s)
		}
	}
	if slices.Contains(granted, allUsers) {
		c.User = ""
	}
	return c
}

// scopes returns the scopes of a claim.
func scopes(claim any) (all []string) {
	switch claim := claim.(type) {
	case string:
		return strings.Fields(claim)
	case []any:
		for _, s := range claim {
			if s, ok := s.(string); ok {
				all = append(all, s)
			}
		}
	}
	return all
}
