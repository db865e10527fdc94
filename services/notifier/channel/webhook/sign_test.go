package webhook

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The vector that the libraries of Standard Webhooks are tested with.
func TestSignIsThePublishedOne(t *testing.T) {
	t.Parallel()
	key, err := parseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	check.OK(t, err)
	got := sign([][]byte{key}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestSecretsAreOfOneUser(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, service := range []string{secretOf(1), secretOf(2)} {
		for _, user := range []string{"ada", "bob", ""} {
			secret, err := Secret(service, "CUSTOMER", user)
			check.OK(t, err)
			check.Is(t, check.Err(parseSecret(secret)), nil, secret)
			if other, twice := seen[secret]; twice {
				t.Errorf("%s and %s have the same secret", other, user)
			}
			seen[secret] = user
		}
	}
	if other, err := Secret(secretOf(1), "ADMIN", "ada"); err != nil || seen[other] != "" {
		t.Errorf("another kind has the same secret (%v)", err)
	}
	if again, err := Secret(secretOf(1), "CUSTOMER", "ada"); err != nil || seen[again] != "ada" {
		t.Errorf("the secret changes (%v)", err)
	}
}

func TestSecretsAreChecked(t *testing.T) {
	t.Parallel()
	short, long := strings.Repeat("s", minKey-1), strings.Repeat("l", maxKey+1)
	for _, secrets := range [][]string{
		nil,
		{""},
		{"whsec_"},
		{"plain text"},
		{"whsec_%%%"},
		{base64.StdEncoding.EncodeToString(make([]byte, 32))},
		{"whsec_" + base64.StdEncoding.EncodeToString([]byte(short))},
		{"whsec_" + base64.StdEncoding.EncodeToString([]byte(long))},
		{secretOf(1), secretOf(2), secretOf(3), secretOf(4), secretOf(5)},
	} {
		_, err := New(Config{Secrets: secrets})
		check.Failsf(t, err, "%q is taken", secrets)
		for _, secret := range secrets {
			if err != nil && secret != "" && strings.Contains(err.Error(), strings.TrimPrefix(secret, "whsec_")) && secret != "whsec_" {
				t.Errorf("the error tells the secret: %v", err)
			}
		}
	}
	_, err := New(Config{Secrets: []string{"x", secretOf(1), "y"}})
	check.Contains(t, err, "number 1", "number 3")
}
