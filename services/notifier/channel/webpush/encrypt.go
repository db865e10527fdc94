package webpush

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

const (
	// recordSize is the largest body that push services have to take (RFC 8030, section 7.2), in bytes.
	recordSize = 4096

	saltSize   = 16
	authSize   = 16
	publicSize = 65

	// overhead is what encryption adds: the header of RFC 8188, the delimiter, and the tag.
	overhead = saltSize + 4 + 1 + publicSize + 1 + 16

	// MaxPlain is how much can be told, in bytes.
	MaxPlain = recordSize - overhead
)

// encrypt makes the body of a push message as RFC 8291 says, in one record. The key and the salt are for this message only.
func encrypt(plain []byte, browser *ecdh.PublicKey, auth []byte, ours *ecdh.PrivateKey, salt []byte) ([]byte, error) {
	if len(plain) > MaxPlain {
		return nil, fmt.Errorf("the message has %d bytes: at most %d", len(plain), MaxPlain)
	}
	shared, err := ours.ECDH(browser)
	if err != nil {
		return nil, fmt.Errorf("agree on a key: %w", err)
	}
	public := ours.PublicKey().Bytes()
	info := "WebPush: info\x00" + string(browser.Bytes()) + string(public)
	secret, err := hkdf.Key(sha256.New, shared, auth, info, 32)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	key, err := hkdf.Key(sha256.New, secret, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	nonce, err := hkdf.Key(sha256.New, secret, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, fmt.Errorf("derive a nonce: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("cipher: %w", err)
	}
	sealer, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("cipher: %w", err)
	}
	body := make([]byte, 0, overhead+len(plain))
	body = append(body, salt...)
	body = binary.BigEndian.AppendUint32(body, recordSize)
	body = append(body, publicSize)
	body = append(body, public...)
	// 2 ends the last record.
	return sealer.Seal(body, nonce, append(slices.Clip(plain), 2), nil), nil
}
