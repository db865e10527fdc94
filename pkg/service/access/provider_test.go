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
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	testIssuer = "https://id.example.com/realms/shop"
	discovery  = "/realms/shop/.well-known/openid-configuration"
	jwks       = "/keys"
)

// pair is a private key, and what the issuer publishes of it.
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
	if err != nil {
		t.Fatal(err)
	}
	go oidc.Run(t.Context()) //nolint:errcheck // it ends without one
	synctest.Wait()
	return p, NewGuard(nil, oidc), log
}

type claims = map[string]any

// token signs claims, with those that every token needs and nil for the ones it lacks.
func token(t *testing.T, alg jose.SignatureAlgorithm, key any, id string, extra claims) string {
	t.Helper()
	all := claims{"iss": testIssuer, "aud": "expediter", "sub": "42", "exp": time.Now().Add(time.Hour).Unix(), "scope": "openid read"}
	maps.Copy(all, extra)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(all).Serialize()
	if err != nil {
		t.Fatal(err)
	}
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
