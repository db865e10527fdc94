package lock

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// encoded begins a part of a key that stands for a part of a name which a key may not have.
const encoded = "="

// encoding is that of package token.
var encoding = base64.RawURLEncoding.Strict()

// CheckName refuses a name that is no lock's: empty, with an empty part between dots, or too long.
func CheckName(name string) error {
	if err := kv.CheckKey(keyOf(name)); err != nil {
		return fmt.Errorf("lock %.80q: %w", name, err)
	}
	return nil
}

// keyOf returns the key of the lock with that name: the name itself, if it may be a key. Other parts between dots are in
// base64url, after an equals sign.
func keyOf(name string) string {
	if kv.CheckKey(name) == nil && name[0] != encoded[0] && !strings.Contains(name, "."+encoded) {
		return name
	}
	parts := strings.Split(name, ".")
	for i, part := range parts {
		if part != "" && (part[0] == encoded[0] || kv.CheckKey(part) != nil) {
			parts[i] = encoded + encoding.EncodeToString([]byte(part))
		}
	}
	return strings.Join(parts, ".")
}

// nameOf undoes keyOf. A key that keyOf does not make is its own name.
func nameOf(key string) string {
	if !strings.Contains(key, encoded) {
		return key
	}
	parts := strings.Split(key, ".")
	for i, part := range parts {
		if text, found := strings.CutPrefix(part, encoded); found {
			if name, err := encoding.DecodeString(text); err == nil {
				parts[i] = string(name)
			}
		}
	}
	return strings.Join(parts, ".")
}
