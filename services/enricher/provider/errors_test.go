package provider_test

import (
	"context"
	"fmt"
	"io"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestErrors(t *testing.T) {
	t.Parallel()
	for kind, permanent := range map[provider.Kind]bool{
		provider.KindBlocked: false, provider.KindCanceled: false, provider.KindMalformed: false, provider.KindMisconfigured: true,
		provider.KindRateLimited: false, provider.KindTimeout: false, provider.KindUnavailable: false, provider.KindUnsupported: true,
	} {
		err := fmt.Errorf("search: %w", &provider.Error{Cause: io.ErrUnexpectedEOF, Kind: kind, Provider: "wolt"})
		check.Equal(t, provider.KindOf(err), kind, "kind")
		check.ErrorIs(t, err, io.ErrUnexpectedEOF)
		check.Equal(t, provider.Temporary(err), !permanent, string(kind)+": temporary")
	}
	check.That(t, provider.Temporary(context.DeadlineExceeded) && !provider.Temporary(nil) && provider.KindOf(io.EOF) == "",
		"an error of another type: want a temporary one without a kind")
}
