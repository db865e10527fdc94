package access

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/expediter-io/expediter/internal/subject"
)

const (
	// maxLife is the longest time between the issue and the end of a user's token.
	maxLife = 24 * time.Hour

	// minSecret is the least number of bytes of a secret that signs with HS256 (RFC 7518, section 3.2).
	minSecret = 32
)

// userScopes are the scopes that a token of a user may have. The other scopes are for callers that act for all users.
var userScopes = []Scope{Mark, People, Publish, Read}

// SignerAlgorithms returns the algorithms with which an application may sign the tokens of its users, the recommended one first.
func SignerAlgorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{jose.EdDSA, jose.HS256}
}

// Signer is a key with which an application signs the tokens of its users: a JSON Web Key (RFC 7517) with an Ed25519 public key, or with a
// secret for HS256. It prints as its name.
type Signer struct{ key jose.JSONWebKey }

// Name returns the id of the key, which the header kid of a token names.
func (s Signer) Name() string { return s.key.KeyID }

// String returns the name.
func (s Signer) String() string { return s.Name() }

// GoString returns the name.
func (s Signer) GoString() string { return s.Name() }

// Algorithm returns the only algorithm with which the key signs, "" for a key that cannot be used.
func (s Signer) Algorithm() jose.SignatureAlgorithm {
	switch s.key.Key.(type) {
	case ed25519.PublicKey:
		return jose.EdDSA
	case []byte:
		return jose.HS256
	}
	return ""
}

// MarshalJSON returns the JSON Web Key.
func (s Signer) MarshalJSON() ([]byte, error) { return s.key.MarshalJSON() }

// UnmarshalJSON reads a JSON Web Key. One that cannot be read becomes a key of no kind, so that all mistakes of a file are reported at
// once, and none of them with a secret.
func (s *Signer) UnmarshalJSON(data []byte) error {
	if s.key.UnmarshalJSON(data) != nil {
		s.key = jose.JSONWebKey{}
	}
	return nil
}

// check passes each mistake to bad. It never names a secret.
func (s Signer) check(bad func(format string, args ...any)) {
	switch key := s.key.Key.(type) {
	case ed25519.PublicKey:
		if !s.key.Valid() {
			bad("x: want %d bytes in base64url", ed25519.PublicKeySize)
		}
	case []byte:
		if len(key) < minSecret {
			bad("k: the secret has %d bytes, want at least %d in base64url", len(key), minSecret)
		}
	case ed25519.PrivateKey:
		bad("d: this is the private key, which belongs to the application alone: leave d out, and replace the key if others have seen it")
		return
	default:
		bad("want a JSON Web Key with kid, and with kty OKP, crv Ed25519 and x, or with kty oct and k")
		return
	}
	if s.key.Algorithm != "" && s.key.Algorithm != string(s.Algorithm()) {
		bad("alg: want %s", s.Algorithm())
	}
	if s.key.Use != "" && s.key.Use != "sig" {
		bad("use: want sig")
	}
}

// AddSigner adds a new key to a file, for an application that signs the tokens of its users. It returns the JSON Web Key with which the
// application signs; with EdDSA the file has the public part only.
func AddSigner(path, name string, algorithm jose.SignatureAlgorithm) (private string, err error) {
	key := jose.JSONWebKey{Algorithm: string(algorithm), KeyID: name, Use: "sig"}
	public := key
	switch algorithm {
	case jose.EdDSA:
		if public.Key, key.Key, err = ed25519.GenerateKey(nil); err != nil {
			return "", fmt.Errorf("make a key: %w", err)
		}
	case jose.HS256:
		secret := make([]byte, minSecret)
		_, _ = rand.Read(secret) // never fails
		public.Key, key.Key = secret, secret
	default:
		return "", fmt.Errorf("algorithm %.64q: want one of %v", algorithm, SignerAlgorithms())
	}
	data, err := key.MarshalJSON()
	if err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}
	err = change(path, func(f File) (File, error) {
		f.Signers = append(f.Signers, Signer{public})
		return f, nil
	})
	return string(data), err
}

// signer returns the key that a token names.
func (k *Keys) signer(name string) (Signer, error) {
	if name == "" {
		return Signer{}, &tokenError{"names no key: want the header kid"}
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	found, ok := k.signers[name]
	if !ok {
		return Signer{}, &tokenError{"names a key that is not in force: its header kid has to name a signer of the file of keys"}
	}
	return found, nil
}

// user returns the session of a user whose token an application has signed. It ends when the key is taken out of the file, or replaced.
func (k *Keys) user(token string) (session, error) {
	parsed, err := jwt.ParseSigned(token, SignerAlgorithms())
	if err != nil { // may quote the token
		return session{}, &tokenError{"is no JWT that is signed with EdDSA or HS256"}
	}
	header := parsed.Headers[0]
	signer, err := k.signer(header.KeyID)
	if err != nil {
		return session{}, err
	}
	if header.Algorithm != string(signer.Algorithm()) {
		return session{}, &tokenError{"is signed with another algorithm than its key is for"}
	}
	if parsed.Claims(signer.key.Key) != nil {
		return session{}, &tokenError{"has a signature that is not that of its key"}
	}
	var claims jwt.Claims
	var all map[string]any
	if parsed.UnsafeClaimsWithoutVerification(&claims, &all) != nil { // it was verified above; the library refuses a name that comes twice
		return session{}, &tokenError{"has claims of a wrong type, or one of them twice"}
	}
	caller, err := k.named(signer.Name(), claims, all)
	holds := func() bool {
		now, err := k.signer(signer.Name())
		return err == nil && reflect.DeepEqual(now.key.Key, signer.key.Key)
	}
	return session{caller: caller, holds: holds}, err
}

// named returns the user of a token with these claims. The caller's name has a space, which no name of a key has.
func (k *Keys) named(signer string, claims jwt.Claims, all map[string]any) (Caller, error) {
	if _, ok := all["iss"]; ok {
		return Caller{}, &tokenError{"has the claim iss, which only tokens of an identity provider have"}
	}
	if err := checkClaims(claims, "", k.Audience); err != nil {
		return Caller{}, err
	}
	if claims.IssuedAt == nil {
		return Caller{}, &tokenError{"has no time of issue: want the claim iat"}
	}
	if claims.Expiry.Time().Sub(claims.IssuedAt.Time()) > maxLife {
		return Caller{}, &tokenError{"is in force for more than a day: want exp at most 86400 after iat"}
	}
	granted, err := ofUser(all)
	if err != nil {
		return Caller{}, err
	}
	caller := Caller{Expires: claims.Expiry.Time(), Name: signer + " " + claims.Subject, Scopes: granted, User: claims.Subject}
	if kind, ok := all["recipient_type"]; ok { // null must not become every kind
		caller.RecipientType, _ = kind.(string)
		if len(caller.RecipientType) > subject.MaxName || !subject.IsSafeToken(caller.RecipientType) {
			return Caller{}, &tokenError{"has a recipient_type that is no kind of recipient, such as CUSTOMER"}
		}
	}
	return caller, nil
}

// ofUser returns the scopes of a user's token in alphabetical order. A scope that no user may have is refused and not ignored: the
// application would believe that it works.
func ofUser(all map[string]any) (granted []Scope, err error) {
	claim, ok := all["scope"]
	if !ok {
		return nil, nil // the answer of each route names the scope that is missing
	}
	var texts []string
	switch claim := claim.(type) {
	case string:
		texts = strings.Fields(claim)
	case []any:
		for _, one := range claim {
			text, _ := one.(string) // "" is no scope
			texts = append(texts, text)
		}
	default:
		return nil, &tokenError{"has a scope of a wrong type: want text with spaces, or a list"}
	}
	for _, text := range texts {
		if !slices.Contains(userScopes, Scope(text)) {
			return nil, &tokenError{"has a scope that no user may have: want some of " + names(userScopes)}
		}
		granted = append(granted, Scope(text))
	}
	slices.Sort(granted)
	return slices.Compact(granted), nil
}

// byToken returns the session of a token: of the identity provider if it names an issuer, else of an application's user.
func (g *Guard) byToken(ctx context.Context, token string, wait bool) (session, error) {
	if len(token) > maxToken { // before anything of it is parsed
		return session{}, &tokenError{"is over the limit of 16 KiB"}
	}
	if g.oidc != nil && (g.keys == nil || hasIssuer(token)) {
		caller, err := g.oidc.caller(ctx, token, wait)
		return session{caller: caller}, err
	}
	return g.keys.user(token)
}

// hasIssuer reports whether a token names an issuer. Nothing is verified: who is asked about the token depends on it, and nothing else.
func hasIssuer(token string) bool {
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	data, err := base64.RawURLEncoding.DecodeString(payload)
	var claims map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(data, &claims)
	}
	return err == nil && claims["iss"] != nil
}
