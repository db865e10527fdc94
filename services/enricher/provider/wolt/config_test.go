package wolt_test

import (
	"math"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt"
)

func TestNewNeedsABaseURL(t *testing.T) {
	t.Parallel()

	tests := map[string]struct {
		url string
		ok  bool
	}{
		"missing":          {"", false},
		"https":            {"https://wolt.example.com/api", true},
		"loopback name":    {"http://localhost:8080", true},
		"loopback address": {"http://127.0.0.1:8080/", true},
		"loopback of IPv6": {"http://[::1]:8080", true},
		"plain http":       {"http://wolt.example.com", false},
		"another scheme":   {"file:///etc/passwd", false},
		"no scheme":        {"wolt.example.com", false},
		"no host":          {"https:///v1", false},
		"password":         {"https://me:secret@wolt.example.com", false},
		"query":            {"https://wolt.example.com/?a=b", false},
		"nonsense":         {"https://wolt example.com:secret/", false},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			client, err := wolt.New(wolt.Config{BaseURL: test.url})
			if test.ok {
				check.OK(t, err)

				client.Close()
				return
			}

			wantFailure(t, err, provider.KindMisconfigured)

			check.That(t, !strings.Contains(err.Error(), "secret"), "error %q tells a secret", err)
		})
	}
}

func TestNewReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()

	_, err := wolt.New(wolt.Config{
		BaseURL: "ftp://x", Burst: -1, MaxCalls: -1, Rate: math.NaN(), Timeout: -1,
	})
	wantFailure(t, err, provider.KindMisconfigured)

	for _, name := range []string{"BaseURL", "Burst", "MaxCalls", "Rate is", "Timeout"} {
		check.That(t, strings.Contains(err.Error(), name), "error does not name %s:\n%v", name, err)
	}

	check.That(t, !strings.Contains(err.Error(), "\n\r") && !provider.Temporary(err), "error = %q, want a permanent one", err)
}
