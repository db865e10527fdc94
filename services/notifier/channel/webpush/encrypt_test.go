package webpush

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush/webpushtest"
)

func unb64(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := b64.DecodeString(text)
	check.OK(t, err)
	return raw
}

func private(t *testing.T, text string) *ecdh.PrivateKey {
	t.Helper()
	key, err := ecdh.P256().NewPrivateKey(unb64(t, text))
	check.OK(t, err)
	return key
}

// decrypt does what a browser does.
func decrypt(t *testing.T, body []byte, browser *ecdh.PrivateKey, auth []byte) []byte {
	t.Helper()
	plain, err := (&webpushtest.Browser{Auth: auth, Key: browser}).Open(body)
	check.OK(t, err)
	return plain
}

// The example of RFC 8291, section 5 and appendix A: it holds for us, and for the browser that the other tests have.
func TestTheExampleOfTheRFC(t *testing.T) {
	t.Parallel()
	const (
		plain = "When I grow up, I want to be a watermelon"
		want  = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_" +
			"yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
	)
	browser, ours := private(t, "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"), private(t, "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw")
	auth, salt := unb64(t, "BTBZMqHH6r4Tts7J_aSIgg"), unb64(t, "DGv6ra1nlYgDCS1FRnbzlw")
	got, err := encrypt([]byte(plain), browser.PublicKey(), auth, ours, salt)
	if err != nil || b64.EncodeToString(got) != want {
		t.Errorf("%s (%v), want\n%s", b64.EncodeToString(got), err, want)
	}
	check.Same(t, "the test's browser reads", string(decrypt(t, unb64(t, want), browser, auth)), plain)
}

func TestSizes(t *testing.T) {
	t.Parallel()
	browser, err := ecdh.P256().GenerateKey(rand.Reader)
	check.OK(t, err)
	auth := make([]byte, authSize)
	s := subscription{auth: auth, browser: browser.PublicKey()}
	for _, size := range []int{0, 1, MaxPlain} {
		plain := bytes.Repeat([]byte("x"), size)
		body, err := s.seal(plain)
		check.That(t, err == nil && len(body) == size+overhead && bytes.Equal(decrypt(t, body, browser, auth), plain),
			"%d bytes: %d sealed, %v", size, len(body), err)
		again, err := s.seal(plain)
		check.That(t, err == nil && !bytes.Equal(body[:21+publicSize], again[:21+publicSize]), "a key or a salt was used twice (%v)", err)
	}
	check.Failsf(t, check.Err(s.seal(make([]byte, MaxPlain+1))), "too much is taken")
}
