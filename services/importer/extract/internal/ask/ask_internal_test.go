package ask

import (
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The milliseconds that some services send take precedence; the header is read by package retryafter.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for millis, want := range map[string]time.Duration{"20": 20 * time.Millisecond, "86400000": time.Hour, "soon": 7 * time.Second} {
		header := http.Header{"Retry-After": {"7"}, "Retry-After-Ms": {millis}}
		got := retryAfter(header)
		check.That(t, got == want, "%s is %s, want %s", millis, got, want)
	}
}

func TestObject(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`{"steps":[{"text":"Stir."}]}`:                         `{"steps":[{"text":"Stir."}]}`,
		`{"data":[{"recipe":{"steps":null,"x":1.50}}]}`:        `{"steps":null,"x":1.50}`,
		`{"steps":"1. Mischen.\n2) 5 Minuten backen.\n"}`:      `{"steps":[{"text":"Mischen."},{"text":"5 Minuten backen."}]}`,
		`{"steps":"混ぜる。"}`:                                     `{"steps":[{"text":"混ぜる。"}]}`,
		`{"steps":["Mélanger.",{"text":"Cuire."},null]}`:       `{"steps":[{"text":"Mélanger."},{"text":"Cuire."},null]}`,
		`{"ingredients":["2 huevos"],"steps":7}`:               `{"ingredients":[{"item":"2 huevos"}],"steps":7}`,
		`{"recipes":[{"steps":[]},{"steps":[]}]}`:              "",
		`{"note":{"text":"no recipe"}}`:                        "",
		`{"recipe":{"steps":[`:                                 "",
		"```json\n{\"steps\":[]}\n```":                         `{"steps":[]}`,
		"For {you}: {\"note\": 1} and\n{\"steps\":[]} {it}! }": `{"steps":[]}`,
	} {
		check.That(t, string(Object(answer)) == want, "%s is %s, want %s", answer, Object(answer), want)
	}
}
