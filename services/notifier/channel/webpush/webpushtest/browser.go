// Package webpushtest has a subscribed browser for tests.
package webpushtest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	maxBody    = 4096
	publicSize = 65
)

// Browser is a browser with a subscription at a push service.
type Browser struct {
	// Auth is the secret of 16 bytes that the browser shares with the services that may send to it.
	Auth []byte

	// Key is the private key of the browser.
	Key *ecdh.PrivateKey
}

// New makes a browser.
func New() (*Browser, error) {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return &Browser{Auth: []byte("0123456789abcdef"), Key: key}, nil
}

// Address returns the browser's subscription at an endpoint, in JSON.
func (b *Browser) Address(endpoint string) string {
	return fmt.Sprintf(`{"endpoint":%q,"expirationTime":null,"keys":{"p256dh":%q,"auth":%q}}`, endpoint,
		base64.RawURLEncoding.EncodeToString(b.Key.PublicKey().Bytes()), base64.RawURLEncoding.EncodeToString(b.Auth))
}

// Open decrypts the body of a push message by RFC 8291, in one record.
func (b *Browser) Open(body []byte) ([]byte, error) {
	if len(body) < 21+publicSize || int(body[20]) != publicSize || len(body) > maxBody ||
		int(binary.BigEndian.Uint32(body[16:])) < len(body)-21-publicSize {
		return nil, fmt.Errorf("header %x of %d bytes", body[:min(21, len(body))], len(body))
	}
	salt, public, sealed := body[:16], body[21:21+publicSize], body[21+publicSize:]
	sender, err := ecdh.P256().NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("key of the sender: %w", err)
	}
	shared, err := b.Key.ECDH(sender)
	if err != nil {
		return nil, fmt.Errorf("agree on a key: %w", err)
	}
	secret, err := hkdf.Key(sha256.New, shared, b.Auth, "WebPush: info\x00"+string(b.Key.PublicKey().Bytes())+string(public), 32)
	if err != nil {
		return nil, fmt.Errorf("derive a secret: %w", err)
	}
	key, keyErr := hkdf.Key(sha256.New, secret, salt, "Content-Encoding: aes128gcm\x00", 16)
	nonce, nonceErr := hkdf.Key(sha256.New, secret, salt, "Content-Encoding: nonce\x00", 12)
	if err := errors.Join(keyErr, nonceErr); err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("cipher: %w", err)
	}
	opener, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("cipher: %w", err)
	}
	plain, err := opener.Open(nil, nonce, sealed, nil)
	if err != nil {
		return nil, fmt.Errorf("decrypt: %w", err)
	}
	end := len(plain) - 1
	for end >= 0 && plain[end] == 0 {
		end--
	}
	if end < 0 || plain[end] != 2 {
		return nil, fmt.Errorf("%q has no delimiter of the last record", plain)
	}
	return plain[:end], nil
}
