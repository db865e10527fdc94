package access

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stand is a file of keys that is in use.
type stand struct {
	guard *Guard
	keys  *Keys
	log   bytes.Buffer
	path  string
}

func open(t *testing.T, keys ...Key) (s *stand, secrets []string) {
	t.Helper()
	s = &stand{path: filepath.Join(t.TempDir(), "keys.json")}
	for _, k := range keys {
		secret := check.Must(Add(s.path, k))(t)
		secrets = append(secrets, secret)
	}
	s.keys = check.Must(Open("shop", s.path, slog.New(slog.NewTextHandler(&s.log, nil))))(t)
	s.guard = NewGuard(s.keys, nil)
	return s, secrets
}

func request(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/v1/x", http.NoBody)
	for n := 0; n+1 < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	return r
}

func TestTheFileHasNoSecretAndIsItsOwnersOnly(t *testing.T) {
	t.Parallel()
	s, secrets := open(t, Key{Name: "gateway", Scopes: []Scope{Read}})
	data, err := os.ReadFile(s.path)
	info, statErr := os.Stat(s.path)
	check.That(t, err == nil && statErr == nil && info.Mode().Perm() == 0o600 && !bytes.Contains(data, []byte(secrets[0])) &&
		strings.HasPrefix(secrets[0], Prefix) && len(secrets[0]) == len(Prefix)+43,
		"%v %v %v %s", err, statErr, info.Mode(), data)
	left, err := filepath.Glob(s.path + "*")
	check.That(t, err == nil && len(left) == 1, "left behind: %q, %v", left, err)
}

func TestAKeyIsTakenFromHeadersOnly(t *testing.T) {
	t.Parallel()
	s, secrets := open(t, Key{Name: "gateway", Scopes: []Scope{Read}})
	key := secrets[0]
	for name, c := range map[string]struct {
		r  *http.Request
		ok bool
	}{
		"bearer":                 {request("Authorization", "Bearer "+key), true},
		"bearer in lower case":   {request("Authorization", "bearer "+key), true},
		"WebSocket":              {request("Upgrade", "websocket", "Sec-WebSocket-Protocol", "expediter, bearer."+key), true},
		"protocol, no WebSocket": {request("Sec-WebSocket-Protocol", "expediter, bearer."+key), false},
		"basic":                  {request("Authorization", "Basic "+key), false},
		"no scheme":              {request("Authorization", key), false},
		"the hash":               {request("Authorization", "Bearer "+hash(key)), false},
		"query":                  {httptest.NewRequest(http.MethodGet, "/v1/x?key="+key+"&access_token="+key, http.NoBody), false},
		"cookie":                 {request("Cookie", "key="+key), false},
		"none":                   {request(), false},
	} {
		r, err := s.guard.Admit(c.r, All(Read))
		check.That(t, (err == nil) == c.ok && (From(r.Context()).Name == "gateway") == c.ok, "%s: %v %+v", name, err, From(r.Context()))
	}
}

func TestARevokedOrExpiredKeyEndsAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, secrets := open(t, Key{Name: "a", Scopes: []Scope{Read}}, Key{Name: "b", Scopes: []Scope{Read}, Expires: time.Now().Add(time.Hour)})
		go s.keys.Run(t.Context()) //nolint:errcheck // it ends without one
		a, errA := s.guard.Admit(request("Authorization", "Bearer "+secrets[0]), All(Read))
		b, errB := s.guard.Admit(request("Authorization", "Bearer "+secrets[1]), All(Read))
		check.Require(t, errA == nil && errB == nil && Check(a.Context()) == nil && Check(b.Context()) == nil, "%v %v", errA, errB)
		check.OK(t, Revoke(s.path, "a"))
		<-time.After(reloadEvery + time.Second)
		check.That(t, Check(a.Context()) != nil && Check(b.Context()) == nil, "revoked: %v, other: %v", Check(a.Context()), Check(b.Context()))
		<-time.After(time.Hour)
		check.That(t, Check(b.Context()) != nil, "an expired key goes on")
		check.That(t, check.Err(s.guard.Admit(request("Authorization", "Bearer "+secrets[1]), All(Read))) != nil, "an expired key is admitted")
	})
}

func TestAFileWithAMistakeKeepsTheFormerKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, secrets := open(t, Key{Name: "a", Scopes: []Scope{Read}})
		go s.keys.Run(t.Context()) //nolint:errcheck // it ends without one
		good := check.Must(os.ReadFile(s.path))(t)
		for _, bad := range []string{
			"", "{}", `{"keys":[]} {}`, `{"keys":[{"name":"a","sha256":"00","scopes":["read"]}]}`,
			strings.Replace(string(good), "read", "everything", 1), strings.Replace(string(good), `"read"`, ``, 1),
			strings.Replace(string(good), `"name"`, `"usr": "x", "name"`, 1),
		} {
			check.OK(t, os.WriteFile(s.path, []byte(bad), 0o600))
			<-time.After(2 * reloadEvery)
			_, err := s.guard.Admit(request("Authorization", "Bearer "+secrets[0]), All(Read))
			check.That(t, err == nil && s.keys.Err() != nil, "after %q: %v, reported: %v", bad, err, s.keys.Err())
		}
		check.OK(t, os.WriteFile(s.path, []byte(`{"keys":[]}`), 0o600))
		<-time.After(2 * reloadEvery)
		_, err := s.guard.Admit(request("Authorization", "Bearer "+secrets[0]), All(Read))
		check.That(t, err != nil && s.keys.Err() == nil, "no key left: %v, reported: %v", err, s.keys.Err())
		synctest.Wait()
		check.That(t, !strings.Contains(s.log.String(), secrets[0]), "the log has a secret")
	})
}

func TestTwoChangesAtATimeAreRefused(t *testing.T) {
	t.Parallel()
	s, _ := open(t, Key{Name: "a", Scopes: []Scope{Read}})
	check.OK(t, os.WriteFile(s.path+".new", nil, 0o600))
	check.That(t, Revoke(s.path, "a") != nil, "a change under way is overwritten")
	check.OK(t, os.Remove(s.path+".new"))
	check.That(t, check.Err(Add(s.path, Key{Name: "a", Scopes: []Scope{Read}})) != nil, "two keys have one name")
	check.OK(t, os.Chmod(s.path, 0o602))
	check.That(t, check.Err(ReadFile(s.path)) != nil, "a file that everybody may write is read")
}

const (
	testIssuer = "https://id.example.com/realms/shop"
	discovery  = "/realms/shop/.well-known/openid-configuration"
	jwks       = "/keys"
)

// pair is a private key, and the public part that the issuer publishes.
type pair struct {
	private any
	public  jose.JSONWebKey
}

// pairs are made once: a key of RSA takes a while.
var pairs = sync.OnceValue(func() map[string]pair {
	all := map[string]pair{}
	add := func(id, alg string, private, public any, err error) {
		if err != nil {
			panic(err)
		}
		all[id] = pair{private, jose.JSONWebKey{Algorithm: alg, Key: public, KeyID: id}}
	}
	for _, id := range []string{"rsa", "other"} {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		add(id, "", key, &key.PublicKey, err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	add("ec", "ES256", ec, &ec.PublicKey, err)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	add("ed", "EdDSA", private, public, err)
	sealing := all["rsa"]
	sealing.public.KeyID, sealing.public.Use = "sealing", "enc"
	only := all["rsa"]
	only.public.KeyID, only.public.Algorithm = "only", "RS256"
	all["sealing"], all["only"] = sealing, only
	return all
})

// provider is an issuer whose answers take no connection, so that time in a bubble goes on while it is silent.
type provider struct {
	mu        sync.Mutex
	asked     int
	documents map[string]any
	handler   http.HandlerFunc // instead of the documents
}

func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.asked++
	document, handler := p.documents[r.URL.Path], p.handler
	p.mu.Unlock()
	w := httptest.NewRecorder()
	if handler == nil {
		data, err := json.Marshal(document)
		if err != nil {
			return nil, err
		}
		handler = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) }
	}
	handler(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

func (p *provider) change(handler http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handler = handler
}

// publish gives the issuer other keys.
func (p *provider) publish(ids ...string) {
	set := jose.JSONWebKeySet{}
	for _, id := range ids {
		set.Keys = append(set.Keys, pairs()[id].public)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.documents = map[string]any{
		discovery: map[string]string{"issuer": testIssuer, "jwks_uri": "https://keys.example.com" + jwks}, jwks: set,
	}
}

// fetches returns how often the issuer was asked for its keys.
func (p *provider) fetches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked / 2
}

// visit starts a guard with an issuer, in a bubble.
func visit(t *testing.T, scopeClaim string, published ...string) (*provider, *Guard, *bytes.Buffer) {
	t.Helper()
	p, log := &provider{}, &bytes.Buffer{}
	p.publish(published...)
	oidc, err := NewOIDC(OIDCConfig{
		Audience: "expediter", Issuer: testIssuer, Logger: slog.New(slog.NewTextHandler(log, nil)), Name: "shop", ScopeClaim: scopeClaim, Transport: p,
	})
	check.OK(t, err)
	go oidc.Run(t.Context()) //nolint:errcheck // it ends without one
	synctest.Wait()
	return p, NewGuard(nil, oidc), log
}

type claims = map[string]any

// token signs claims, with those that every token needs and nil for the ones it lacks.
func token(t *testing.T, alg jose.SignatureAlgorithm, key any, id string, extra claims) string {
	t.Helper()
	all := claims{"iss": testIssuer, "aud": "expediter", "client_id": "app", "sub": "42", "exp": time.Now().Add(time.Hour).Unix(), "scope": "openid read"}
	maps.Copy(all, extra)
	options := (&jose.SignerOptions{}).WithHeader("kid", id)
	if typ := all["header typ"]; typ != nil {
		options.WithHeader(jose.HeaderType, typ)
		delete(all, "header typ")
	}
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	signer := check.Must(jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, options))(t)
	text := check.Must(jwt.Signed(signer).Claims(all).Serialize())(t)
	return text
}

// rs returns a token of the key "rsa", or of another one.
func rs(t *testing.T, id string, extra claims) string {
	t.Helper()
	return token(t, jose.RS256, pairs()[id].private, id, extra)
}

func (g *Guard) ask(token string, need Need) (Caller, error) {
	r, err := g.Admit(request("Authorization", "Bearer "+token), need)
	return From(r.Context()), err
}

func TestATokenNamesItsCaller(t *testing.T) {
	t.Parallel()
	pairs()
	synctest.Test(t, func(t *testing.T) {
		_, guard, _ := visit(t, "", "rsa", "ec", "ed")
		_, byList, _ := visit(t, "roles", "rsa")
		expires := time.Now().Add(time.Hour).Truncate(time.Second)
		for name, c := range map[string]struct {
			guard *Guard
			token string
			user  string
			want  []Scope
		}{
			"RS256":             {guard, rs(t, "rsa", nil), "42", []Scope{Read}},
			"PS256":             {guard, token(t, jose.PS256, pairs()["rsa"].private, "rsa", nil), "42", []Scope{Read}},
			"ES256":             {guard, token(t, jose.ES256, pairs()["ec"].private, "ec", nil), "42", []Scope{Read}},
			"EdDSA":             {guard, token(t, jose.EdDSA, pairs()["ed"].private, "ed", nil), "42", []Scope{Read}},
			"two audiences":     {guard, rs(t, "rsa", claims{"aud": []string{"account", "expediter"}}), "42", []Scope{Read}},
			"a clock ahead":     {guard, rs(t, "rsa", claims{"nbf": time.Now().Add(leeway).Unix()}), "42", []Scope{Read}},
			"a list":            {guard, rs(t, "rsa", claims{"scope": []any{"mark", 7, "read", "READ"}}), "42", []Scope{Mark, Read}},
			"all users":         {guard, rs(t, "rsa", claims{"scope": "publish all-users operate"}), "", []Scope{Operate, Publish}},
			"no scope":          {guard, rs(t, "rsa", claims{"scope": nil}), "42", nil},
			"a scope's number":  {guard, rs(t, "rsa", claims{"scope": 1}), "42", nil},
			"unknown scopes":    {guard, rs(t, "rsa", claims{"scope": "everything readonly"}), "42", nil},
			"another claim":     {byList, rs(t, "rsa", claims{"roles": []string{"publish"}}), "42", []Scope{Publish}},
			"not another claim": {byList, rs(t, "rsa", claims{"roles": nil}), "42", nil},
		} {
			got, err := c.guard.ask(c.token, Own(Read))
			want := Caller{Expires: expires, Name: testIssuer + " 42", Scopes: c.want, User: c.user}
			check.That(t, got.Same(want) && (err == nil) == slices.Contains(c.want, Read) && (err == nil || errors.Is(err, ErrForbidden)),
				"%s: %+v, %v", name, got, err)
			check.That(t, err == nil || Challenge("shop", err) == `Bearer realm="shop", error="insufficient_scope", scope="read"`,
				"%s: %s", name, Challenge("shop", err))
		}
		check.ErrorIs(t, check.Err(guard.ask(rs(t, "rsa", nil), All(Read))), ErrForbidden, "a token of one user is for all")
	})
}

// Access tokens in the form of known issuers are taken; their ID tokens are not, even where the client is the audience and the token has
// scopes, and nor are tokens of any other kind.
func TestOnlyAccessTokens(t *testing.T) {
	t.Parallel()
	pairs()
	synctest.Test(t, func(t *testing.T) {
		_, guard, _ := visit(t, "groups", "rsa")
		for name, c := range map[string]struct {
			more claims
			want string // in the reason, "" for a token that is taken
		}{
			"RFC 9068":                {claims{"header typ": "at+jwt"}, ""},
			"Keycloak":                {claims{"header typ": "JWT", "typ": "Bearer", "azp": "expediter", "sid": "s", "acr": "1"}, ""},
			"Keycloak, with nonce":    {claims{"header typ": "JWT", "typ": "Bearer", "azp": "app", "nonce": "n"}, ""}, // before version 24
			"Keycloak, ID":            {claims{"header typ": "JWT", "typ": "ID", "azp": "expediter", "at_hash": "h", "sid": "s"}, "claim typ"},
			"Keycloak, refresh":       {claims{"header typ": "JWT", "typ": "Refresh", "azp": "app"}, "claim typ"},
			"Keycloak, logout":        {claims{"header typ": "logout+jwt", "typ": "Logout", "azp": "app"}, "header typ"},
			"Auth0":                   {claims{"header typ": "JWT", "aud": []string{"expediter", "https://x/userinfo"}, "azp": "expediter"}, ""},
			"Auth0, ID":               {claims{"header typ": "JWT", "nonce": "n", "sid": "s", "email": "a@b.c"}, "claim nonce"},
			"Auth0, ID of a code":     {claims{"header typ": "JWT", "sid": "s", "email": "a@b.c"}, "does not say"},
			"Okta":                    {claims{"ver": 1, "jti": "AT.x", "cid": "app", "uid": "u"}, ""},
			"Entra ID":                {claims{"header typ": "JWT", "ver": "2.0", "azp": "app", "azpacr": "1", "roles": []string{"read"}}, ""},
			"Entra ID, ID":            {claims{"header typ": "JWT", "ver": "2.0", "oid": "o", "roles": []string{"read"}}, "does not say"},
			"Entra ID, ID by form":    {claims{"header typ": "JWT", "ver": "2.0", "oid": "o", "c_hash": "h"}, "claim c_hash"},
			"Cognito":                 {claims{"aud": nil, "token_use": "access", "client_id": "expediter", "cognito:groups": []string{"read"}}, ""},
			"Cognito, other client":   {claims{"aud": nil, "token_use": "access", "client_id": "app"}, "another audience"},
			"Cognito, ID":             {claims{"token_use": "id", "cognito:username": "u"}, "claim token_use"},
			"authentik":               {claims{"header typ": "JWT", "azp": "expediter", "uid": "u", "nonce": "n", "sid": "s"}, ""},
			"authentik, ID":           {claims{"header typ": "JWT", "sid": "s", "at_hash": "h"}, "claim at_hash"},
			"Spring":                  {claims{"scope": []string{"read"}}, ""},
			"ID without its scopes":   {claims{"scope": []string{}}, "does not say"},
			"Dex, which has no other": {claims{"at_hash": "h", "nonce": "n"}, "claim at_hash"},
			"ID in two kinds":         {claims{"header typ": "at+jwt", "token_use": "id"}, "claim token_use"},
			"logout token":            {claims{"client_id": "app", "events": claims{"http://schemas.openid.net/event/backchannel-logout": claims{}}}, "claim events"},
			"event":                   {claims{"header typ": "secevent+jwt", "client_id": "app"}, "header typ"},
			"refresh token":           {claims{"token_type": "refresh", "client_id": "app"}, "claim token_type"},
		} {
			for _, claim := range []string{"client_id", "scope"} {
				if c.more[claim] == nil {
					c.more[claim] = nil
				}
			}
			c.more["groups"] = []string{"read"}
			_, err := guard.ask(rs(t, "rsa", c.more), Own(Read))
			if c.want == "" {
				check.ErrorIs(t, err, nil, name)
				continue
			}
			check.ErrorIs(t, err, ErrUnknown, name)
			check.ErrorContains(t, err, c.want)
		}
	})
}

// A token is refused by its claims before the issuer is asked for anything, and the answer has nothing of the token.
func TestTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	public := pairs()["rsa"].public.Key
	der := check.Must(x509.MarshalPKIXPublicKey(public))(t)
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	synctest.Test(t, func(t *testing.T) {
		p, guard, log := visit(t, "", "rsa", "ec", "sealing", "only")
		good := rs(t, "rsa", nil)
		parts := strings.Split(good, ".")
		unsigned := "eyJhbGciOiJub25lIiwia2lkIjoicnNhIn0." + parts[1] + "."
		<-time.After(minFetch - time.Second) // so that a missing key costs no fetch
		for name, c := range map[string]struct{ token, want string }{
			"alg none":                {unsigned, "private key"},
			"HS256 by the PEM":        {token(t, jose.HS256, text, "rsa", nil), "private key"},
			"other key, same id":      {token(t, jose.RS256, pairs()["other"].private, "rsa", nil), "signature"},
			"other alg than the key":  {token(t, jose.PS256, pairs()["rsa"].private, "only", nil), "signature"},
			"key for encryption":      {rs(t, "sealing", nil), "does not have"},
			"key that is nowhere":     {rs(t, "other", nil), "does not have"},
			"no id of a key":          {token(t, jose.RS256, pairs()["rsa"].private, "", nil), "does not have"},
			"changed claims":          {parts[0] + "." + strings.Split(rs(t, "rsa", claims{"sub": "43"}), ".")[1] + "." + parts[2], "signature"},
			"other issuer":            {rs(t, "rsa", claims{"iss": testIssuer + "/"}), "another issuer"},
			"other audience":          {rs(t, "rsa", claims{"aud": []string{"expediter2"}}), "another audience"},
			"no expiry":               {rs(t, "rsa", claims{"exp": nil}), "no time of expiry"},
			"expired":                 {rs(t, "rsa", claims{"exp": time.Now().Unix()}), "has expired"},
			"expiry in words":         {rs(t, "rsa", claims{"exp": "tomorrow"}), "cannot be read"},
			"not yet":                 {rs(t, "rsa", claims{"nbf": time.Now().Add(leeway + time.Second).Unix()}), "not in force yet"},
			"issued in the future":    {rs(t, "rsa", claims{"iat": time.Now().Add(leeway + time.Second).Unix()}), "not in force yet"},
			"no user":                 {rs(t, "rsa", claims{"sub": nil}), "subject"},
			"long user":               {rs(t, "rsa", claims{"sub": strings.Repeat("4", maxSubject+1)}), "subject"},
			"user with a line break":  {rs(t, "rsa", claims{"sub": "4\n2"}), "subject"},
			"long":                    {rs(t, "rsa", claims{"x": strings.Repeat("x", maxToken)}), "16 KiB"},
			"claims that are a list":  {parts[0] + ".W10." + parts[2], "cannot be read"},
			"no dots":                 {"secret", "private key"},
			"a key, where none exist": {Prefix + strings.Repeat("x", 43), "private key"},
		} {
			got, err := guard.ask(c.token, Own(Read))
			challenge := Challenge("shop", err)
			check.That(t, errors.Is(err, ErrUnknown) && strings.Contains(err.Error(), c.want) && got.Name == "" &&
				strings.HasPrefix(challenge, `Bearer realm="shop", error="invalid_token", error_description="the token `),
				"%s: %+v, %v, %s", name, got, err, challenge)
			for part := range strings.SplitSeq(c.token, ".") {
				check.That(t, len(part) <= 5 || !strings.Contains(fmt.Sprint(err, challenge, log), part), "%s: %v holds a part of the token", name, err)
			}
		}
		_, err := guard.ask(good, Own(Read))
		check.That(t, err == nil && p.fetches() == 1, "%v, %d fetches", err, p.fetches())
		_, err = guard.ask("", Own(Read))
		check.That(t, Challenge("shop", err) == `Bearer realm="shop"`, "no token: %v", err)
		<-time.After(time.Hour)
		check.That(t, check.Err(guard.ask(good, Own(Read))) != nil, "an expired token is admitted")
	})
}

// A new key is fetched once for all callers that bring it; one that the issuer withdraws is in force for five minutes at most.
func TestKeysOfTheIssuerAreRotated(t *testing.T) {
	t.Parallel()
	pairs()
	synctest.Test(t, func(t *testing.T) {
		p, guard, _ := visit(t, "", "rsa")
		<-time.After(minFetch)
		p.publish("rsa", "other")
		next := rs(t, "other", nil)
		var asking sync.WaitGroup
		for range 20 {
			asking.Go(func() { check.ErrorIs(t, check.Err(guard.ask(next, Own(Read))), nil) })
		}
		asking.Wait()
		check.That(t, p.fetches() == 2, "%d fetches", p.fetches())
		p.publish("other")
		<-time.After(fetchEvery + time.Second)
		check.That(t, check.Err(guard.ask(rs(t, "rsa", nil), Own(Read))) != nil, "a key that the issuer has withdrawn is in force")
	})
}

func TestAFloodOfUnknownKeysCostsTheIssuerLittle(t *testing.T) {
	t.Parallel()
	pairs()
	synctest.Test(t, func(t *testing.T) {
		p, guard, _ := visit(t, "", "rsa")
		for n := range 6000 {
			if n%100 == 0 { // a second has a hundred of them
				<-time.After(time.Second)
			}
			_, err := guard.ask(token(t, jose.EdDSA, pairs()["ed"].private, fmt.Sprint(n), nil), Own(Read))
			check.Require(t, errors.Is(err, ErrUnknown), "%v", err)
		}
		if p.fetches() > 5 { // one a quarter of a minute
			t.Errorf("a minute has %d fetches", p.fetches())
		}
	})
}

// An issuer that fails leaves the keys that are known in force. Other tokens are told to come back, until it answers.
func TestAnIssuerThatFails(t *testing.T) {
	t.Parallel()
	pairs()
	big := strings.Repeat("x", maxDocument)
	says := func(format string, args ...any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(fmt.Appendf(nil, format, args...)) }
	}
	keysAre := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == discovery {
				text := `{"issuer": %q, "jwks_uri": "https://keys.example.com/keys"}`
				_, _ = w.Write(fmt.Appendf(nil, text, testIssuer))
				return
			}
			_, _ = w.Write([]byte(text))
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"fails": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, "answers 500"},
		"redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://evil.test", http.StatusFound)
		}, "answers 302"},
		"hangs":              {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded"},
		"talks HTML":         {says("<html>"), "invalid character"},
		"talks at length":    {says(`{"issuer": %q}`, big), "256 KiB"},
		"is another one":     {says(`{"issuer": "https://evil.test"}`), `"https://evil.test"`},
		"keys without TLS":   {says(`{"issuer": %q, "jwks_uri": "http://evil.test/"}`, testIssuer), "https address"},
		"no keys":            {keysAre(`{"keys": []}`), "no public key"},
		"keys without end":   {keysAre(`{"keys": ["` + big), "256 KiB"},
		"secrets, no keys":   {keysAre(`{"keys": [{"kty": "oct", "kid": "rsa", "k": "c2VjcmV0"}, {"kty": "new"}, 7]}`), "no public key"},
		"keys that are text": {keysAre(`{"keys": "rsa"}`), "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, guard, log := visit(t, "", "rsa")
				known, unknown := rs(t, "rsa", nil), rs(t, "other", nil)
				p.change(c.handler)
				<-time.After(fetchEvery + 2*fetchTimeout) // the fetch of itself has failed
				for range 3 {
					began := time.Now()
					if _, err := guard.ask(unknown, Own(Read)); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnknown) || time.Since(began) > fetchTimeout {
						t.Errorf("%v after %s", err, time.Since(began))
					}
					check.ErrorIs(t, check.Err(guard.ask(known, Own(Read))), nil)
					<-time.After(minFetch / 2)
				}
				if err := guard.oidc.Err(); err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(log.String(), "level=ERROR") != 1 {
					t.Errorf("%v, want %s; %s", err, c.want, log)
				}
				p.publish("rsa", "other")
				p.change(nil)
				<-time.After(minFetch + fetchTimeout)
				_, err := guard.ask(unknown, Own(Read))
				check.That(t, err == nil && guard.oidc.Err() == nil, "%v, %v", err, guard.oidc.Err())
			})
		})
	}
}

// A service begins while its issuer is silent. Few requests wait for it, those of public routes do not, and keys go on working.
func TestASilentIssuerHoldsUpFewRequests(t *testing.T) {
	t.Parallel()
	pairs()
	s, secrets := open(t, Key{Name: "gateway", Scopes: []Scope{Read}})
	synctest.Test(t, func(t *testing.T) {
		p, guard, _ := visit(t, "", "rsa")
		guard.keys = s.keys
		p.change(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		<-time.After(minFetch)
		text, began := rs(t, "other", nil), time.Now()
		_, public := guard.ask(text, Public())
		var asking sync.WaitGroup
		for range maxWaiting {
			synctest.Wait() // one after the other, while the issuer is silent
			asking.Go(func() {
				_, err := guard.ask(text, Own(Read))
				check.That(t, errors.Is(err, ErrUnavailable) && time.Since(began) == fetchTimeout, "%v after %s", err, time.Since(began))
			})
		}
		synctest.Wait()
		_, over := guard.ask(text, Own(Read))
		_, byKey := guard.ask(secrets[0], All(Read))
		check.That(t, errors.Is(over, ErrUnavailable) && public == nil && byKey == nil && time.Since(began) <= 0,
			"%v, %v, %v after %s", over, public, byKey, time.Since(began))
		asking.Wait()
		synctest.Wait()
		if p.asked != 3 { // twice at the beginning
			t.Errorf("the issuer is asked %d times", p.asked)
		}
	})
}

func TestIsIssuer(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"https://id.example.com": true, testIssuer: true, "https://x.eu.auth0.com/": true, "http://127.0.0.1:8080/realms/x": true,
		"http://localhost": true, "http://[::1]:80": true, "": false, "id.example.com": false, "http://id.example.com": false,
		"http://localhost.evil.test": false, "https://": false, "https://a:b@id.example.com": false, "https://id.example.com/?x": false,
		"https://id.example.com?": false, "https://id.example.com#x": false, "ftp://localhost": false, "https://%zz": false,
	} {
		check.That(t, IsIssuer(text) == want, "%q: want %t", text, want)
	}
	check.That(t, check.Err(NewOIDC(OIDCConfig{Issuer: "http://id.example.com", Audience: "x"})) != nil, "an issuer without TLS is asked")
}
