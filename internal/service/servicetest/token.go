package servicetest

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Token returns a token of the user "ada" for a service, in force for an hour, as an application signs it with the key of
// [access.AddSigner]. claims replace claims.
func Token(t *testing.T, key, service string, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"aud": service, "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "sub": "ada"}
	maps.Copy(all, claims)
	var private jose.JSONWebKey
	err := json.Unmarshal([]byte(key), &private)
	if err != nil {
		t.Fatal(err)
	}
	options := (&jose.SignerOptions{}).WithHeader("kid", private.KeyID) // which the library leaves out for a secret
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(private.Algorithm), Key: private.Key}, options)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(all).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}
