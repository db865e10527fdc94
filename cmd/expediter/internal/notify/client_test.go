package notify

import (
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhyAQuestionHasNoAnswer(t *testing.T) {
	t.Parallel()
	answer := func(code, text, body string) error {
		return (&Client{Service: "notifier"}).refused(code, &nats.Msg{Header: nats.Header{"Nats-Service-Error": {text}}, Data: []byte(body)})
	}
	for _, tt := range []struct {
		code, body string
		want       error
	}{
		{"404", "", api.ErrNotFound},
		{"409", `{"code":"EVENT_MISMATCH"}`, ErrMismatch},
		{"503", `{"code":"STORE_UNAVAILABLE"}`, api.ErrUnavailable},
		{"507", `{"code":"STORE_FULL"}`, api.ErrUnavailable},
	} {
		check.Is(t, answer(tt.code, "no \x1b[31m", tt.body), tt.want, tt.code)
	}
	if err := answer("409", "too many users", `{"code":"EVENT_NOT_EXPANDED"}`); err == nil || err.Error() != "the notifier refuses: too many users (409)" {
		t.Error(err)
	}
	err := answer("400", "contracts: invalid query", `{"errors":[{"path":"?state","problem":"must be sent"},{"path":"/a/b","problem":"is required"}]}`)
	check.That(t, err != nil && err.Error() == "the notifier refuses: state must be sent; a/b is required (400)", "%v", err)
	err = answer("500", "see the service's log\x1b", "no JSON")
	check.That(t, err != nil && err.Error() == "the notifier refuses: see the service's log\ufffd (500)", "%v", err)
}
