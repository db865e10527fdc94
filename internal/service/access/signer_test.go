package access

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// application signs tokens of its users by hand, so that it can sign what no library signs.
type application struct {
	*testing.T

	keys map[string]jose.JSONWebKey
}

// addSigner adds a signer to the file of the stand.
func (a *application) addSigner(s *stand, name string, algorithm jose.SignatureAlgorithm) {
	a.Helper()
	var key jose.JSONWebKey
	check.OK(a, json.Unmarshal([]byte(check.Must(AddSigner(s.path, name, algorithm))(a)), &key))
	a.keys[name] = key
}

// openSigners opens a file with the signers "ed", "hs" and "old". The service's name is shop.
func openSigners(t *testing.T) (*stand, *application) {
	t.Helper()
	a, s := &application{T: t, keys: map[string]jose.JSONWebKey{}}, &stand{path: filepath.Join(t.TempDir(), "keys.json")}
	a.addSigner(s, "ed", jose.EdDSA)
	a.addSigner(s, "hs", jose.HS256)
	a.addSigner(s, "old", jose.HS256)
	s.keys = check.Must(Open("shop", s.path, slog.New(slog.NewTextHandler(&s.log, nil))))(t)
	s.guard = NewGuard(s.keys, nil)
	return s, a
}

// userClaims returns the claims of a good token with changes; nil takes one away.
func userClaims(changes claims) claims {
	all := claims{
		"aud": "shop", "sub": "ada", "scope": "read mark", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(all, changes)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	return all
}

// token returns a token of a key.
func (a *application) token(name string, changes claims) string {
	a.Helper()
	key := a.keys[name]
	return a.sign(claims{"alg": key.Algorithm, "kid": name, "typ": "JWT"}, string(check.Must(json.Marshal(userClaims(changes)))(a)), key.Key)
}

// sign signs a header and a payload, in whatever form they are.
func (a *application) sign(header claims, payload string, key any) string {
	a.Helper()
	return a.signText(string(check.Must(json.Marshal(header))(a)), payload, key)
}

func (a *application) signText(header, payload string, key any) string {
	part := base64.RawURLEncoding.EncodeToString
	text := part([]byte(header)) + "." + part([]byte(payload))
	var signature []byte
	switch key := key.(type) {
	case ed25519.PrivateKey:
		signature = ed25519.Sign(key, []byte(text))
	case []byte:
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		signature = mac.Sum(nil)
	}
	return text + "." + part(signature)
}

func TestATokenOfAnApplicationNamesItsUser(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, app := openSigners(t)
		expires := time.Now().Add(time.Hour).Truncate(time.Second)
		now, day := time.Now().Unix(), int64(24*60*60)
		for name, c := range map[string]struct {
			token string
			want  Caller
		}{
			"EdDSA":           {app.token("ed", nil), Caller{Name: "ed ada", Scopes: []Scope{Mark, Read}}},
			"HS256":           {app.token("hs", nil), Caller{Name: "hs ada", Scopes: []Scope{Mark, Read}}},
			"two audiences":   {app.token("ed", claims{"aud": []string{"else", "shop"}}), Caller{Name: "ed ada", Scopes: []Scope{Mark, Read}}},
			"a kind":          {app.token("ed", claims{"recipient_type": "CUSTOMER"}), Caller{Name: "ed ada", RecipientType: "CUSTOMER", Scopes: []Scope{Mark, Read}}},
			"a list":          {app.token("ed", claims{"scope": []string{"read", "people", "publish", "read"}}), Caller{Name: "ed ada", Scopes: []Scope{People, Publish, Read}}},
			"no scope":        {app.token("ed", claims{"scope": nil}), Caller{Name: "ed ada"}},
			"a clock ahead":   {app.token("ed", claims{"iat": now + 30, "nbf": now + 30}), Caller{Name: "ed ada", Scopes: []Scope{Mark, Read}}},
			"a whole day":     {app.token("ed", claims{"exp": now + day}), Caller{Name: "ed ada", Scopes: []Scope{Mark, Read}, Expires: time.Unix(now+day, 0)}},
			"a claim of ours": {app.token("ed", claims{"name": map[string]any{"first": "Ada"}}), Caller{Name: "ed ada", Scopes: []Scope{Mark, Read}}},
			"no typ":          {app.sign(claims{"alg": "EdDSA", "kid": "ed"}, string(check.Must(json.Marshal(userClaims(nil)))(t)), app.keys["ed"].Key), Caller{Name: "ed ada", Scopes: []Scope{Mark, Read}}},
		} {
			c.want.User = "ada"
			if c.want.Expires.IsZero() {
				c.want.Expires = expires
			}
			got, err := s.guard.ask(c.token, Own(Read))
			check.That(t, got.Same(c.want) && (err == nil) == slices.Contains(c.want.Scopes, Read) && (err == nil || errors.Is(err, ErrForbidden)),
				"%s: %+v, %v, want %+v", name, got, err, c.want)
		}
		// A user never gets to a route for all users, whatever the scopes.
		all := app.token("ed", claims{"scope": "mark people publish read"})
		for _, scope := range Scopes() {
			check.ErrorIs(t, check.Err(s.guard.ask(all, All(scope))), ErrForbidden, string(scope))
		}
		s.keys.Audience = "else"
		check.ErrorContains(t, check.Err(s.guard.ask(app.token("ed", nil), Own(Read))), "another audience")
		check.ErrorIs(t, check.Err(s.guard.ask(app.token("ed", claims{"aud": "else"}), Own(Read))), nil)
	})
}

// Each refusal says why, and neither it nor the log has anything of the token.
func TestTokensOfAnApplicationThatAreRefused(t *testing.T) {
	t.Parallel()
	rsaKey := pairs()["rsa"].private
	synctest.Test(t, func(t *testing.T) {
		s, app := openSigners(t)
		hs, ed := app.keys["hs"].Key, app.keys["ed"].Key
		public := []byte(ed.(ed25519.PrivateKey).Public().(ed25519.PublicKey)) //nolint:forcetypeassert // it is one
		_, strange, err := ed25519.GenerateKey(rand.Reader)
		check.OK(t, err)
		good := string(check.Must(json.Marshal(userClaims(nil)))(t))
		now, day := time.Now().Unix(), int64(24*60*60)
		parts := strings.Split(app.token("ed", nil), ".")
		other := strings.Split(app.token("ed", claims{"sub": "eve"}), ".")
		twice := func(member string) string { return strings.TrimSuffix(good, "}") + "," + member + "}" }
		for name, c := range map[string]struct{ token, want string }{
			"forged, EdDSA":           {app.sign(claims{"alg": "EdDSA", "kid": "ed"}, good, strange), "signature that is not that of its key"},
			"forged, HS256":           {app.sign(claims{"alg": "HS256", "kid": "hs"}, good, make([]byte, 32)), "signature that is not that of its key"},
			"another key's secret":    {app.sign(claims{"alg": "HS256", "kid": "old"}, good, hs), "signature that is not that of its key"},
			"changed claims":          {parts[0] + "." + other[1] + "." + parts[2], "signature that is not that of its key"},
			"no signature":            {parts[0] + "." + parts[1] + ".", "signature that is not that of its key"},
			"alg none":                {app.sign(claims{"alg": "none", "kid": "ed"}, good, nil), "no JWT that is signed with EdDSA or HS256"},
			"alg none, signed":        {app.sign(claims{"alg": "none", "kid": "hs"}, good, hs), "no JWT that is signed with EdDSA or HS256"},
			"no alg":                  {app.sign(claims{"kid": "ed"}, good, ed), "no JWT that is signed with EdDSA or HS256"},
			"HS256 by the public key": {app.sign(claims{"alg": "HS256", "kid": "ed"}, good, public), "another algorithm"},
			"EdDSA by a secret's id":  {app.sign(claims{"alg": "EdDSA", "kid": "hs"}, good, ed), "another algorithm"},
			"HS512":                   {token(t, jose.HS512, bytes.Repeat([]byte{1}, 64), "hs", userClaims(claims{"iss": nil})), "no JWT that is signed"},
			"RS256":                   {token(t, jose.RS256, rsaKey, "ed", userClaims(claims{"iss": nil})), "no JWT that is signed"},
			"unknown kid":             {app.sign(claims{"alg": "EdDSA", "kid": "new"}, good, ed), "names a key that is not in force"},
			"no kid":                  {app.sign(claims{"alg": "EdDSA"}, good, ed), "names no key"},
			"kid of a wrong type":     {app.sign(claims{"alg": "EdDSA", "kid": 7}, good, ed), "no JWT"},
			"kid twice":               {app.signText(`{"alg":"EdDSA","kid":"hs","kid":"ed"}`, good, ed), "no JWT"},
			"key inside":              {app.sign(claims{"alg": "EdDSA", "kid": "ed", "jwk": jose.JSONWebKey{Key: strange.Public()}}, good, strange), "signature"},
			"critical header":         {app.sign(claims{"alg": "EdDSA", "kid": "ed", "crit": []string{"x"}, "x": 1}, good, ed), "signature"},
			"expired":                 {app.token("ed", claims{"exp": now}), "has expired"},
			"no expiry":               {app.token("ed", claims{"exp": nil}), "no time of expiry"},
			"expiry null":             {app.sign(claims{"alg": "EdDSA", "kid": "ed"}, strings.Replace(good, `"exp":`, `"exp":null,"x":`, 1), ed), "no time of expiry"},
			"not yet":                 {app.token("ed", claims{"nbf": now + 31}), "not in force yet"},
			"issued in the future":    {app.token("ed", claims{"iat": now + 31}), "not in force yet"},
			"no time of issue":        {app.token("ed", claims{"iat": nil}), "no time of issue"},
			"more than a day":         {app.token("ed", claims{"exp": now + day + 1}), "more than a day"},
			"since ever":              {app.token("ed", claims{"iat": -(int64(1) << 61)}), "more than a day"},
			"for ever":                {app.token("ed", claims{"exp": int64(1) << 61}), "more than a day"},
			"since and for ever":      {app.token("ed", claims{"iat": -(int64(1) << 61), "exp": int64(1) << 61}), "more than a day"},
			"beyond all numbers":      {app.token("ed", claims{"exp": 1e300}), "wrong type"},
			"foreign audience":        {app.token("ed", claims{"aud": []string{"shop2", "SHOP"}}), "another audience"},
			"no audience":             {app.token("ed", claims{"aud": nil}), "no audience"},
			"empty audience":          {app.token("ed", claims{"aud": ""}), "another audience"},
			"with an issuer":          {app.token("ed", claims{"iss": "https://id.example.com"}), "only tokens of an identity provider"},
			"no user":                 {app.token("ed", claims{"sub": nil}), "subject"},
			"empty user":              {app.token("ed", claims{"sub": ""}), "subject"},
			"long user":               {app.token("ed", claims{"sub": strings.Repeat("a", 256)}), "subject"},
			"user with a line break":  {app.token("ed", claims{"sub": "ada\n2"}), "subject"},
			"user of a wrong type":    {app.token("ed", claims{"sub": 42}), "wrong type"},
			"expiry of a wrong type":  {app.token("ed", claims{"exp": "tomorrow"}), "wrong type"},
			"audience of a type":      {app.token("ed", claims{"aud": claims{"shop": true}}), "wrong type"},
			"scope of a wrong type":   {app.token("ed", claims{"scope": 1}), "scope of a wrong type"},
			"scope null":              {app.sign(claims{"alg": "EdDSA", "kid": "ed"}, strings.Replace(good, `"scope":`, `"scope":null,"x":`, 1), ed), "scope of a wrong type"},
			"scopes of wrong types":   {app.token("ed", claims{"scope": []any{"read", 7}}), "scope that no user may have"},
			"scope operate":           {app.token("ed", claims{"scope": "read operate"}), "scope that no user may have: want some of mark, people, publish, read"},
			"scope notify":            {app.token("ed", claims{"scope": []string{"notify"}}), "scope that no user may have"},
			"scope address":           {app.token("ed", claims{"scope": "address"}), "scope that no user may have"},
			"scope all-users":         {app.token("ed", claims{"scope": "read all-users"}), "scope that no user may have"},
			"scope admin":             {app.token("ed", claims{"scope": "admin"}), "scope that no user may have"},
			"kind null":               {app.sign(claims{"alg": "EdDSA", "kid": "ed"}, twice(`"recipient_type":null`), ed), "recipient_type"},
			"kind empty":              {app.token("ed", claims{"recipient_type": ""}), "recipient_type"},
			"kind of a wrong type":    {app.token("ed", claims{"recipient_type": []string{"CUSTOMER"}}), "recipient_type"},
			"kind with a dot":         {app.token("ed", claims{"recipient_type": "A.B"}), "recipient_type"},
			"long kind":               {app.token("ed", claims{"recipient_type": strings.Repeat("A", 65)}), "recipient_type"},
			"user twice":              {app.sign(claims{"alg": "EdDSA", "kid": "ed"}, twice(`"sub":"eve"`), ed), "twice"},
			"scope twice":             {app.sign(claims{"alg": "EdDSA", "kid": "ed"}, twice(`"scope":"read"`), ed), "twice"},
			"scope twice, escaped":    {app.sign(claims{"alg": "EdDSA", "kid": "ed"}, twice(`"scop\u0065":"read"`), ed), "twice"},
			"claims that are a list":  {app.sign(claims{"alg": "EdDSA", "kid": "ed"}, `[]`, ed), "wrong type"},
			"no claims":               {app.sign(claims{"alg": "EdDSA", "kid": "ed"}, ``, ed), "wrong type"},
			"two values":              {app.sign(claims{"alg": "EdDSA", "kid": "ed"}, good+"{}", ed), "wrong type"},
			"over the limit":          {app.token("ed", claims{"x": strings.Repeat("x", maxToken)}), "16 KiB"},
			"over, and no token":      {strings.Repeat("x", maxToken) + "..", "16 KiB"},
			"no token":                {"a.b.c", "no JWT"},
		} {
			got, err := s.guard.ask(c.token, Own(Read))
			challenge := Challenge("shop", err)
			check.That(t, errors.Is(err, ErrUnknown) && strings.Contains(err.Error(), c.want) && got.Same(Caller{}) &&
				strings.HasPrefix(challenge, `Bearer realm="shop", error="invalid_token", error_description="the token `) && strings.Count(challenge, `"`) == 6,
				"%s: %+v, %v, %s", name, got, err, challenge)
			for part := range strings.SplitSeq(c.token, ".") {
				check.That(t, len(part) <= 1 || !strings.Contains(fmt.Sprint(err, challenge, &s.log), part), "%s: %v holds a part of the token", name, err)
			}
		}
		late := app.token("ed", nil)
		<-time.After(time.Hour)
		check.ErrorContains(t, check.Err(s.guard.ask(late, Own(Read))), "has expired")
	})
}

// Several keys are in force at a time. The tokens and streams of a key that is revoked, or replaced under its name, end; those of the
// others go on.
func TestSignersAreRotated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, app := openSigners(t)
		go s.keys.Run(t.Context()) //nolint:errcheck // it ends without one
		admit := func(name string) error { return check.Err(s.guard.ask(app.token(name, nil), Own(Read))) }
		old := check.Must(s.guard.Admit(request("Authorization", "Bearer "+app.token("old", nil)), Own(Read)))(t)
		kept := check.Must(s.guard.Admit(request("Authorization", "Bearer "+app.token("ed", nil)), Own(Read)))(t)
		replaced := check.Must(s.guard.Admit(request("Authorization", "Bearer "+app.token("hs", nil)), Own(Read)))(t)

		app.addSigner(s, "new", jose.EdDSA)
		check.ErrorContains(t, admit("new"), "not in force")
		<-time.After(reloadEvery + time.Second)
		for _, name := range []string{"ed", "hs", "new", "old"} {
			check.ErrorIs(t, admit(name), nil, name)
		}
		check.That(t, Check(old.Context()) == nil && Check(kept.Context()) == nil && Check(replaced.Context()) == nil, "a stream ends with a new key")

		former := app.token("hs", nil)
		check.OK(t, errors.Join(Revoke(s.path, "old"), Revoke(s.path, "hs")))
		app.addSigner(s, "hs", jose.HS256)
		<-time.After(reloadEvery + time.Second)
		check.ErrorContains(t, admit("old"), "not in force")
		check.ErrorContains(t, check.Err(s.guard.ask(former, Own(Read))), "signature")
		check.ErrorIs(t, errors.Join(admit("ed"), admit("hs"), admit("new"), Check(kept.Context())), nil)
		check.ErrorIs(t, Check(old.Context()), ErrUnknown)
		check.ErrorIs(t, Check(replaced.Context()), ErrUnknown)

		<-time.After(time.Hour)
		check.ErrorIs(t, Check(kept.Context()), ErrUnknown, "a stream outlives its token")
	})
}

// One service takes keys, tokens of its identity provider and tokens of an application. A token with iss is the provider's, even when its
// header names the application's key.
func TestAllThreeKindsOfCallers(t *testing.T) {
	t.Parallel()
	pairs()
	synctest.Test(t, func(t *testing.T) {
		s, app := openSigners(t)
		secret := check.Must(Add(s.path, Key{Name: "gateway", Scopes: []Scope{Read}}))(t)
		s.keys = check.Must(Open("shop", s.path, slog.New(slog.DiscardHandler)))(t)
		p, guard, _ := visit(t, "", "rsa")
		guard.keys = s.keys
		<-time.After(minFetch - time.Second)
		for name, c := range map[string]struct{ token, caller, want string }{
			"key":                     {secret, "gateway", ""},
			"provider":                {rs(t, "rsa", nil), testIssuer + " 42", ""},
			"application":             {app.token("ed", nil), "ed ada", ""},
			"application, HS256":      {app.token("hs", nil), "hs ada", ""},
			"provider's user, forged": {app.token("ed", claims{"iss": testIssuer, "aud": "expediter", "client_id": "app"}), "", "does not have"},
			"the same with HS256":     {app.token("hs", claims{"iss": testIssuer, "aud": "expediter", "client_id": "app"}), "", "private key"},
			"provider's key, no iss":  {rs(t, "rsa", claims{"iss": nil}), "", "no JWT that is signed with EdDSA or HS256"},
			"unknown key":             {Prefix + "x", "", "is unknown"},
			"iss null":                {app.token("ed", claims{"iss": json.RawMessage("null")}), "", "another issuer"},
		} {
			got, err := guard.ask(c.token, Own(Read))
			check.Equal(t, got.Name, c.caller, name)
			if c.want == "" {
				check.ErrorIs(t, err, nil, name)
				continue
			}
			check.ErrorIs(t, err, ErrUnknown, name)
			check.ErrorContains(t, err, c.want)
		}
		check.Equal(t, p.fetches(), 1, "an application's token asks the provider")
	})
}

// A file names every mistake of its signers at once, and no secret.
func TestAFileWithBadSigners(t *testing.T) {
	t.Parallel()
	const secret = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXM" // 29 bytes
	const public = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
	path := filepath.Join(t.TempDir(), "keys.json")
	private := check.Must(AddSigner(path, "a", jose.EdDSA))(t)
	for text, want := range map[string]string{
		private: "d: this is the private key",
		`{"kty":"oct","kid":"a","k":"` + secret + `"}`:                                                                                             `signer 1 ("a"): k: the secret has 29 bytes, want at least 32`,
		`{"kty":"oct","k":"` + secret + secret + `"}`:                                                                                              "kid: want 1 to 64",
		`{"kty":"oct","kid":"a b","k":"` + secret + secret + `"}`:                                                                                  "kid: want 1 to 64",
		`{"kty":"oct","kid":"a","alg":"HS512","k":"` + secret + secret + `"}`:                                                                      "alg: want HS256",
		`{"kty":"oct","kid":"a","use":"enc","k":"` + secret + secret + `"}`:                                                                        "use: want sig",
		`{"kty":"OKP","crv":"Ed25519","kid":"a","alg":"HS256","x":"` + public + `"}`:                                                               "alg: want EdDSA",
		`{"kty":"OKP","crv":"Ed25519","kid":"a","x":"c2VjcmV0"}`:                                                                                   "want a JSON Web Key",
		`{"kty":"OKP","crv":"X25519","kid":"a","x":"` + public + `"}`:                                                                              "want a JSON Web Key",
		`{"kty":"EC","crv":"P-256","kid":"1","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`: "want a JSON Web Key",
		`{"kty":"oct","kid":"a","kid":"b","k":"` + secret + secret + `"}`:                                                                          "want a JSON Web Key",
		`"` + secret + `"`:                   "want a JSON Web Key",
		`{"kty":"` + secret + `","kid":"a"}`: "want a JSON Web Key",
		`null`:                               "want a JSON Web Key",
		`{"kty":"oct","kid":"a","k":"` + secret + secret + `"},{"kty":"oct","kid":"a","k":"` + secret + secret + `"}`: `signer 2 ("a"): kid: another key has it`,
	} {
		check.OK(t, os.WriteFile(path, []byte(`{"signers":[`+text+`,{"kid":"z"}]}`), 0o600))
		f, err := ReadFile(path)
		check.ErrorContains(t, err, want, "want a JSON Web Key")
		check.That(t, !strings.Contains(err.Error(), "c2Vj") && !strings.Contains(err.Error(), `"d"`) && len(f.Signers) == 0, "%v holds a secret, or %v is in force", err, f)
	}
	check.OK(t, os.WriteFile(path, []byte(`{"signers":[{"kty":"oct","kid":"a","k":"`+secret+secret+`"}]}`), 0o600))
	f := check.Must(ReadFile(path))(t)
	check.Equal(t, fmt.Sprintf("%v %+v %#v", f.Signers, f.Signers[0], f.Signers[0]), "[a] a a")
	check.ErrorContains(t, check.Err(AddSigner(path, "a", jose.EdDSA)), "kid: another key has it")
	check.ErrorContains(t, check.Err(Add(path, Key{Name: "a", Scopes: []Scope{Read}})), "kid: another key has it")
	check.ErrorContains(t, check.Err(AddSigner(path, "b", jose.RS256)), "want one of [EdDSA HS256]")
	private = check.Must(AddSigner(path, "b", jose.EdDSA))(t)
	var pair struct {
		D string `json:"d"`
		X string `json:"x"`
	}
	check.OK(t, json.Unmarshal([]byte(private), &pair))
	data := check.Must(os.ReadFile(path))(t)
	check.That(t, pair.D != "" && bytes.Contains(data, []byte(pair.X)) && !bytes.Contains(data, []byte(pair.D)), "%s has a private key", data)
}
