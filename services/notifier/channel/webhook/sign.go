package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
)

const (
	// secretPrefix starts secrets in text.
	secretPrefix = "whsec_"

	// The specification's bounds of a key, in bytes.
	minKey = 24
	maxKey = 64
)

// Secret returns the secret that signs what one user is sent, of one of the service's: 32 bytes, as "whsec_" and base64. It is
// what the user is given to check signatures with.
func Secret(service string, kind contracts.RecipientType, userID string) (string, error) {
	key, err := parseSecret(service)
	if err != nil {
		return "", err
	}
	return secretPrefix + base64.StdEncoding.EncodeToString(derive(key, kind, userID)), nil
}

func derive(key []byte, kind contracts.RecipientType, userID string) []byte {
	mac := hmac.New(sha256.New, key)
	// A kind has no such byte, so no two users have the same text.
	mac.Write([]byte("webhook\x00" + string(kind) + "\x00" + userID))
	return mac.Sum(nil)
}

func parseSecret(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, secretPrefix))
	switch {
	case err != nil || !strings.HasPrefix(text, secretPrefix): // the decoder's text would tell where, of a secret
		return nil, errors.New("a secret must be whsec_ and base64")
	case len(key) < minKey || len(key) > maxKey:
		return nil, fmt.Errorf("a secret has %d bytes: want %d to %d", len(key), minKey, maxKey)
	}
	return key, nil
}

// sign returns the header of a message: one signature for each key.
func sign(keys [][]byte, id string, at time.Time, body []byte) string {
	signatures := make([]string, len(keys))
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(signatures, " ")
}
