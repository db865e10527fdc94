package provider_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/services/enricher/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kinds are all kinds with their sentinels.
var kinds = map[provider.Kind]struct {
	sentinel  error
	permanent bool
}{
	provider.KindBlocked:       {provider.ErrBlocked, false},
	provider.KindCanceled:      {provider.ErrCanceled, false},
	provider.KindMalformed:     {provider.ErrMalformed, false},
	provider.KindMisconfigured: {provider.ErrMisconfigured, true},
	provider.KindRateLimited:   {provider.ErrRateLimited, false},
	provider.KindTimeout:       {provider.ErrTimeout, false},
	provider.KindUnavailable:   {provider.ErrUnavailable, false},
	provider.KindUnsupported:   {provider.ErrUnsupported, true},
}

func TestEachKindIsItsSentinelAndNoOther(t *testing.T) {
	t.Parallel()

	for kind, want := range kinds {
		err := fmt.Errorf("search: %w", &provider.Error{Cause: io.ErrUnexpectedEOF, Kind: kind, Provider: "wolt"})

		for other, sentinel := range kinds {
			if got := errors.Is(err, sentinel.sentinel); got != (kind == other) {
				t.Errorf("an error of kind %s is %v: %t", kind, sentinel.sentinel, got)
			}
		}

		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("an error of kind %s hides its cause", kind)
		}

		if got := provider.Temporary(err); got == want.permanent {
			t.Errorf("an error of kind %s is temporary: %t", kind, got)
		}
	}
}

func TestErrorsOfOtherTypesAreTemporary(t *testing.T) {
	t.Parallel()

	if !provider.Temporary(context.DeadlineExceeded) || provider.Temporary(nil) {
		t.Error("Temporary: want true for any error and false for none")
	}

	if errors.Is(&provider.Error{Kind: "new"}, provider.ErrBlocked) || errors.Is(&provider.Error{}, nil) {
		t.Error("an error of no known kind is some sentinel")
	}
}

func ExampleError() {
	err := error(&provider.Error{
		Detail: "too many calls", Kind: provider.KindRateLimited, Provider: "wolt", RetryAfter: 7 * time.Second, Status: 429,
	})
	fmt.Println(err)
	fmt.Println(errors.Is(err, provider.ErrRateLimited), provider.Temporary(err))

	// Output:
	// wolt: rate_limited (HTTP 429): too many calls (retry after 7s)
	// true true
}
