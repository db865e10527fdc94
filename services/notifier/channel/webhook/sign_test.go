package webhook

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The vector that the libraries of Standard Webhooks are tested with.
func TestSignIsThePublishedOne(t *testing.T) {
	t.Parallel()
	key := check.Must(parseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))(t)
	got := sign([][]byte{key}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	check.That(t, got == want, "%s, want %s", got, want)
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

// The secrets of addresses differ, by the secret of the service, user, address and generation, also where the parts could be shifted,
// and that of the plain address is the one that it always had.
func TestSecretsAreOfOneAddress(t *testing.T) {
	t.Parallel()
	w := newWebhook(t, nil)
	seen := map[string]string{}
	see := func(w *Webhook, kind contracts.RecipientType, user, id string, generation int64) {
		t.Helper()
		name := fmt.Sprintf("%s|%s|%s|%d", kind, user, id, generation)
		all := w.Secrets(kind, user, id, contracts.Endpoint{Generation: generation})
		other, twice := seen[all[0]]
		check.That(t, !twice && len(all) == 1, "%q and %q have the secrets %q", other, name, all)
		check.Is(t, check.Err(parseSecret(all[0])), nil, name)
		seen[all[0]] = name
	}
	for _, user := range []string{"", "bob", "ada", "ada\x005", "5\x00ada", "phone\x000\x00ada", "ada\x00phone\x005"} {
		for _, id := range []string{"main", "phone", "work"} {
			for _, generation := range []int64{0, 5} {
				see(w, "CUSTOMER", user, id, generation)
			}
		}
	}
	see(w, "ADMIN", "ada", "main", 0)
	see(newWebhook(t, nil, func(c *Config) { c.Secrets = []string{secretOf(2)} }), "CUSTOMER", "ada", "main", 0)
	check.Same(t, "the plain one", seen["whsec_3StBwXfQ9z2XBZFhuKJNEaNKnIOHCB2sZLa6cZQDmTU="], "CUSTOMER|ada|main|0")
}

// For a day after a rotation the library of Standard Webhooks takes a message with either secret, and then with the new one alone; also
// while the secrets of the service are replaced.
func TestRotationIsChecked(t *testing.T) {
	t.Parallel()
	srv, calls := endpoint(t, nil)
	w := newWebhook(t, srv, func(c *Config) { c.Secrets = []string{secretOf(2), secretOf(1)} })
	before := contracts.Endpoint{Generation: 5}
	old := w.Secrets("CUSTOMER", "ada", "phone", before)
	for since, signs := range map[time.Duration]bool{time.Minute: true, Overlap - time.Minute: true, Overlap + time.Minute: false} {
		m := message(srv.URL)
		m.EndpointID, m.Endpoint = "phone", contracts.Endpoint{Generation: 6, Previous: 5, RotatedAt: time.Now().Add(-since)}
		is := w.Secrets("CUSTOMER", "ada", "phone", m.Endpoint)
		check.OK(t, check.Err(w.Send(t.Context(), m)))
		got := <-calls
		for secret, want := range map[string]bool{is[0]: true, is[1]: true, old[0]: signs, old[1]: signs} {
			checker, err := standardwebhooks.NewWebhook(secret)
			check.OK(t, err)
			err = checker.Verify(got.body, got.header)
			check.That(t, (err == nil) == want, "%s after the rotation: %v, want it to pass: %v", since, err, want)
		}
		check.Same(t, "secrets", len(is) == 4, signs)
	}
}
