package access

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	if left, err := filepath.Glob(s.path + "*"); err != nil || len(left) != 1 {
		t.Errorf("left behind: %q, %v", left, err)
	}
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
		if (err == nil) != c.ok || (From(r.Context()).Name == "gateway") != c.ok {
			t.Errorf("%s: %v %+v", name, err, From(r.Context()))
		}
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
		if Check(a.Context()) == nil || Check(b.Context()) != nil {
			t.Errorf("revoked: %v, other: %v", Check(a.Context()), Check(b.Context()))
		}
		<-time.After(time.Hour)
		check.Failsf(t, Check(b.Context()), "an expired key goes on")
		check.Failsf(t, check.Err(s.guard.Admit(request("Authorization", "Bearer "+secrets[1]), All(Read))), "an expired key is admitted")
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
		if _, err := s.guard.Admit(request("Authorization", "Bearer "+secrets[0]), All(Read)); err == nil || s.keys.Err() != nil {
			t.Errorf("no key left: %v, reported: %v", err, s.keys.Err())
		}
		synctest.Wait()
		check.That(t, !strings.Contains(s.log.String(), secrets[0]), "the log has a secret")
	})
}

func TestTwoChangesAtATimeAreRefused(t *testing.T) {
	t.Parallel()
	s, _ := open(t, Key{Name: "a", Scopes: []Scope{Read}})
	check.OK(t, os.WriteFile(s.path+".new", nil, 0o600))
	check.Failsf(t, Revoke(s.path, "a"), "a change under way is overwritten")
	check.OK(t, os.Remove(s.path+".new"))
	check.Failsf(t, check.Err(Add(s.path, Key{Name: "a", Scopes: []Scope{Read}})), "two keys have one name")
	check.OK(t, os.Chmod(s.path, 0o602))
	check.Failsf(t, check.Err(ReadFile(s.path)), "a file that everybody may write is read")
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
