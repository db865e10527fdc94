package access

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

	// leeway is the time by which the clock of the issuer, or of an application that signs tokens, may be ahead.
	leeway = 30 * time.Second

	// maxSubject bounds the subject of a token, as OpenID Connect does.
	maxSubject = 255

	// maxToken bounds a token.
	maxToken = 16 << 10
)

// algorithms are the signature algorithms with a private key. Algorithms with a secret that the service would know too are not accepted.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// OIDCConfig describes the issuer of tokens, and the claims that they must have.
type OIDCConfig struct {
	// Audience has to be among the audiences of a token. Required.
	Audience string

	// Issuer is the address of the issuer exactly as in the claim iss, see [IsIssuer]. Required.
	Issuer string

	// Logger gets the errors of reads of the issuer's keys. Required.
	Logger *slog.Logger

	// Name begins each log line. Required.
	Name string

	// ScopeClaim is the claim that has the scopes, as a list or with spaces between them. Defaults to "scope".
	ScopeClaim string

	// Transport sends the requests to the issuer. Defaults to a transport with the proxy of the environment.
	Transport http.RoundTripper
}

// IsIssuer reports whether a text can be the address of an issuer: https, or http on a loopback address, without a query.
func IsIssuer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && isSafe(u) && !strings.ContainsAny(text, "?#")
}

// isSafe reports whether nobody on the way between this machine and an address can change the answers.
func isSafe(u *url.URL) bool {
	addr, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && addr.IsLoopback()
	return u.Hostname() != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http" && local)
}

// OIDC identifies callers by the access tokens of an issuer of OpenID Connect: signed JWTs (RFC 7519, RFC 9068). Make it with [NewOIDC].
type OIDC struct {
	cfg    OIDCConfig
	client *http.Client
	wanted chan struct{} // has an element when a key is missing

	mu      sync.Mutex // guards the fields below
	failed  error      // of the last fetch
	fetched time.Time  // the end of the last fetch
	keys    map[string][]jose.JSONWebKey
	next    chan struct{} // closed at the end of the next fetch
	waiting int           // callers that wait for it
}

// NewOIDC returns an OIDC for an issuer. It sends no request before [OIDC.Run].
func NewOIDC(cfg OIDCConfig) (*OIDC, error) {
	if !IsIssuer(cfg.Issuer) || cfg.Audience == "" {
		return nil, errors.New("tokens need an issuer with an https address, and an audience")
	}
	cfg.ScopeClaim = cmp.Or(cfg.ScopeClaim, "scope")
	return &OIDC{
		cfg: cfg, client: newClient(cfg.Transport), failed: errors.New("its keys have not been fetched yet"),
		next: make(chan struct{}), wanted: make(chan struct{}, 1),
	}, nil
}

// caller returns the caller of a token. It waits for the issuer only if a key is missing and wait is set.
func (o *OIDC) caller(ctx context.Context, token string, wait bool) (Caller, error) {
	parsed, err := jwt.ParseSigned(token, algorithms)
	if err != nil { // may quote the token
		return Caller{}, &tokenError{"is no JWT with the signature of a private key"}
	}
	var claims jwt.Claims
	var all map[string]any
	if parsed.UnsafeClaimsWithoutVerification(&claims, &all) != nil {
		return Caller{}, &tokenError{"has claims that cannot be read"}
	}
	if client, ok := all["client_id"].(string); ok && len(claims.Audience) == 0 && all["token_use"] == "access" {
		claims.Audience = jwt.Audience{client} // Amazon Cognito names no other audience
	}
	err = checkClaims(claims, o.cfg.Issuer, o.cfg.Audience)
	if err == nil {
		err = checkKind(parsed.Headers[0], claims.Audience, all)
	}
	if err != nil { // before any request to the issuer
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

// checkClaims returns an error for claims that are not valid now, of an issuer unless it is "".
func checkClaims(claims jwt.Claims, issuer, audience string) error {
	err := claims.ValidateWithLeeway(jwt.Expected{AnyAudience: jwt.Audience{audience}, Issuer: issuer}, leeway)
	switch {
	case errors.Is(err, jwt.ErrInvalidIssuer):
		return &tokenError{"is of another issuer"}
	case len(claims.Audience) == 0:
		return &tokenError{"has no audience"}
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

// checkKind returns an error for a token that is not known to be an access token. An ID token tells its client who signed in. It has the
// issuer, subject and keys of an access token, and the same audience where the client and the API are one application.
func checkKind(header jose.Header, audience jwt.Audience, all map[string]any) error { //nolint:cyclop // a list of kinds
	typ, _ := header.ExtraHeaders[jose.HeaderType].(string)
	typ = strings.TrimPrefix(strings.ToLower(typ), "application/")
	if typ != "" && typ != "jwt" && typ != "at+jwt" { // RFC 9068
		return &tokenError{"is not an access token by its header typ"}
	}
	named := typ == "at+jwt"
	for _, name := range []string{"typ", "token_use", "token_type"} { // of Keycloak, of Amazon Cognito, of others
		if kind, ok := all[name].(string); ok {
			if named = slices.Contains([]string{"access", "access_token", "at+jwt", "bearer", "dpop"}, strings.ToLower(kind)); !named {
				return &tokenError{"is not an access token by its claim " + name}
			}
		}
	}
	client, ok := all["azp"].(string)
	// ID tokens have no scope. One is for its client alone, and that of authentik, whose access tokens are, too, has neither azp nor uid.
	granted := len(scopes(all["scope"])) > 0 || ok && all["uid"] != nil
	for _, name := range []string{"at_hash", "c_hash", "events", "nonce", "s_hash"} { // of ID tokens and logout tokens
		if all[name] != nil && !named && !(granted && name == "nonce") {
			return &tokenError{"is not an access token: it has the claim " + name}
		}
	}
	known := named || granted || ok && (len(audience) > 1 || audience[0] != client)
	for _, name := range []string{"appid", "azpacr", "cid", "client_id"} {
		known = known || all[name] != nil
	}
	if known {
		return nil
	}
	return &tokenError{"does not say that it is an access token: want the header typ at+jwt, or the claim client_id or scope"}
}

// named returns the caller with the claims and scopes of a token. The caller's name has a space, which no name of a key has.
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

const (
	// fetchEvery is the time between two fetches of an issuer's keys. A withdrawn key is in force no longer than that.
	fetchEvery = 5 * time.Minute

	// fetchTimeout bounds one fetch.
	fetchTimeout = 5 * time.Second

	// maxDocument bounds a document of the issuer.
	maxDocument = 256 << 10

	// maxWaiting is the largest number of callers that wait for a fetch: an issuer that does not answer delays few requests.
	maxWaiting = 64

	// minFetch is the least time between two fetches, whatever keys tokens name.
	minFetch = 15 * time.Second
)

// newClient returns a client that does not follow redirects: its answers come from the address that was asked.
func newClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10, Proxy: http.ProxyFromEnvironment}
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: transport,
	}
}

// Run fetches the keys of the issuer until ctx ends: at once, every five minutes, and when a token names a missing key, but never twice in
// 15 seconds. Keys stay in force while a fetch fails.
func (o *OIDC) Run(ctx context.Context) error {
	for {
		o.fetch(ctx)
		wait := fetchEvery
		if o.Err() != nil {
			wait = minFetch
		}
		select {
		case <-time.After(wait):
		case <-o.wanted:
		case <-ctx.Done():
			return nil
		}
	}
}

// Err returns the error of the last fetch of the issuer's keys, nil when it succeeded.
func (o *OIDC) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// find returns the keys with an id. For a missing key it fetches the keys, once for all callers, unless the last fetch was a short time
// ago.
func (o *OIDC) find(ctx context.Context, id string, wait bool) ([]jose.JSONWebKey, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if keys := o.keys[id]; len(keys) > 0 {
		return keys, nil
	}
	if wait && (o.fetched.IsZero() || time.Since(o.fetched) >= minFetch) {
		if o.waiting >= maxWaiting {
			return nil, fmt.Errorf("%w: as many requests as may be wait for it", ErrUnavailable)
		}
		select {
		case o.wanted <- struct{}{}:
		default:
		}
		o.waiting++
		ended := o.await(ctx, o.next)
		o.waiting--
		if keys := o.keys[id]; len(keys) > 0 {
			return keys, nil
		}
		if !ended {
			return nil, fmt.Errorf("%w in time", ErrUnavailable)
		}
	}
	if o.failed != nil {
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, o.failed.Error()) // not wrapped, so that no service takes it for an error of its store
	}
	return nil, &tokenError{"is signed with a key that the issuer does not have"}
}

// await waits for a fetch, and reports whether it ended in time. It releases the lock while it waits.
func (o *OIDC) await(ctx context.Context, fetch <-chan struct{}) bool {
	o.mu.Unlock()
	defer o.mu.Lock()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	select {
	case <-fetch:
		return true
	case <-ctx.Done():
		return false
	}
}

// fetch asks the issuer for its keys, which replace the former keys.
func (o *OIDC) fetch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	keys, err := o.read(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the service stops
	}
	o.mu.Lock()
	before := o.failed
	o.failed, o.fetched = err, time.Now()
	if err == nil {
		o.keys = keys
	}
	close(o.next)
	o.next = make(chan struct{})
	select {
	case <-o.wanted: // wanted by a caller that this fetch has answered
	default:
	}
	o.mu.Unlock()
	log := o.cfg.Logger.With("issuer", o.cfg.Issuer)
	switch {
	case err == nil && before != nil:
		log.InfoContext(ctx, o.cfg.Name+": the keys of the issuer are in force")
	case err != nil && (before == nil || before.Error() != err.Error()):
		log.ErrorContext(ctx, o.cfg.Name+": the keys of the issuer stay as they are", "error", err)
	}
}

// Reach asks the issuer for its keys once, and returns the error if they cannot be used.
func (o *OIDC) Reach(ctx context.Context) error {
	_, err := o.read(ctx)
	return err
}

// read returns the keys of the issuer by their ids (OpenID Connect Discovery, RFC 7517), without keys that are not for signatures.
func (o *OIDC) read(ctx context.Context) (map[string][]jose.JSONWebKey, error) {
	var about struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := o.get(ctx, strings.TrimSuffix(o.cfg.Issuer, "/")+"/.well-known/openid-configuration", &about); err != nil {
		return nil, err
	}
	if about.Issuer != o.cfg.Issuer {
		return nil, fmt.Errorf("the document names the issuer %.200q, want %q, to the last character", about.Issuer, o.cfg.Issuer)
	}
	if u, err := url.Parse(about.JWKSURI); err != nil || !isSafe(u) || len(about.JWKSURI) > 2<<10 {
		return nil, fmt.Errorf("the document has the jwks_uri %.200q, want an https address", about.JWKSURI)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := o.get(ctx, about.JWKSURI, &set); err != nil {
		return nil, err
	}
	keys := map[string][]jose.JSONWebKey{}
	for _, data := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(data) == nil && key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig") {
			keys[key.KeyID] = append(keys[key.KeyID], key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%.200s has no public key for signatures", about.JWKSURI)
	}
	return keys, nil
}

// get reads one document.
func (o *OIDC) get(ctx context.Context, address string, document any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask the issuer: %w", err)
	}
	r.Header.Set("Accept", "application/json")
	resp, err := o.client.Do(r)
	if err != nil {
		return fmt.Errorf("ask the issuer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%.200s answers %d, want 200; redirects are not followed", address, resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err == nil && len(data) > maxDocument {
		err = fmt.Errorf("it is over the limit of %d KiB", maxDocument>>10)
	}
	if err == nil {
		err = json.Unmarshal(data, document)
	}
	if err != nil {
		return fmt.Errorf("read %.200s: %w", address, err)
	}
	return nil
}
