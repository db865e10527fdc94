package webpush

import (
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// tokenLife is the time for which a token is valid. RFC 8292 allows 24 hours.
	tokenLife = 12 * time.Hour

	// tokenRenewal is the time before its end at which a token is replaced, because clocks differ.
	tokenRenewal = time.Hour

	// maxTokens bounds the number of push services whose tokens are kept. There are a handful in the world.
	maxTokens = 100
)

var b64 = base64.RawURLEncoding

// GenerateKey makes the key pair that identifies this service to push services: the private key for Config.PrivateKey, and
// the public key, which browsers get as applicationServerKey.
func GenerateKey() (private, public string, err error) {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("webpush: %w", err)
	}
	return b64.EncodeToString(key.Bytes()), b64.EncodeToString(key.PublicKey().Bytes()), nil
}

// signer identifies this service to push services. It keeps its signatures, because each is valid for hours, for all messages
// to one push service.
type signer struct {
	key     *ecdsa.PrivateKey
	public  string
	subject string

	mu     sync.Mutex
	tokens map[string]token
}

type token struct {
	until time.Time
	value string
}

// newSigner reads a private key: 32 bytes in base64url, as all tools write it.
func newSigner(private, subject string) (*signer, error) {
	raw, err := decode(private)
	if err != nil {
		return nil, errors.New("PrivateKey is not base64") // the decoder's error would reveal a position in the secret
	}
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	if err != nil {
		return nil, errors.New("PrivateKey is no private key of the curve P-256")
	}
	public, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, fmt.Errorf("PrivateKey: %w", err)
	}
	return &signer{key: key, public: b64.EncodeToString(public), subject: subject, tokens: map[string]token{}}, nil
}

// authorization returns the header for an endpoint.
func (s *signer) authorization(endpoint *url.URL) (string, error) {
	host := strings.ToLower(endpoint.Host) // an origin has no default port: RFC 6454
	if endpoint.Scheme == "https" {
		host = strings.TrimSuffix(host, ":443")
	}
	audience := endpoint.Scheme + "://" + host
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.tokens[audience]; now.Before(known.until) {
		return known.value, nil
	}
	claims, err := json.Marshal(map[string]any{"aud": audience, "exp": now.Add(tokenLife).Unix(), "sub": s.subject})
	if err != nil {
		return "", fmt.Errorf("claims: %w", err)
	}
	text := b64.EncodeToString([]byte(`{"typ":"JWT","alg":"ES256"}`)) + "." + b64.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	r, v, err := ecdsa.Sign(rand.Reader, s.key, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	v.FillBytes(signature[32:])
	value := "vapid t=" + text + "." + b64.EncodeToString(signature) + ", k=" + s.public
	if len(s.tokens) >= maxTokens {
		clear(s.tokens)
	}
	s.tokens[audience] = token{until: now.Add(tokenLife - tokenRenewal), value: value}
	return value, nil
}

// decode reads base64 in either alphabet, padded or not: browsers and tools differ.
func decode(text string) ([]byte, error) {
	text = strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(text, "="))
	return b64.DecodeString(text)
}
