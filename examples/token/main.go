// Command token prints a token for a user. Arguments: the file of the key that `expediter keys signer` made, and the user.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "token:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("want two arguments: the file of the key, and the user")
	}
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	var key jose.JSONWebKey
	if err := json.Unmarshal(data, &key); err != nil {
		return fmt.Errorf("read the key of %s: %w", args[0], err)
	}
	token, err := tokenOf(key, args[1])
	if err == nil {
		_, err = fmt.Fprintln(out, token)
	}
	return err
}

func tokenOf(key jose.JSONWebKey, user string) (string, error) {
	now := time.Now()
	options := (&jose.SignerOptions{}).WithHeader("kid", key.KeyID)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key.Key}, options)
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(map[string]any{
		"aud": "notifier", "sub": user, "recipient_type": "CUSTOMER", "scope": "read mark",
		"iat": now.Unix(), "exp": now.Add(15 * time.Minute).Unix(),
	}).Serialize()
}
