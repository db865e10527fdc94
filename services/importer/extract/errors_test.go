package extract_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

func TestFailure(t *testing.T) {
	t.Parallel()
	invalid := (&recipe.Recipe{}).Validate()
	for _, c := range []struct {
		name      string
		err       error
		code      contracts.ImportCode
		message   string
		retryable bool
	}{
		{"of a far side", fmt.Errorf("run: %w", extract.Failed(true, io.EOF, "too %s", "slow")), contracts.CodeExtractionFailed, "AI extraction failed: too slow", true},
		{"final", extract.Failed(false, nil, "no"), contracts.CodeExtractionFailed, "AI extraction failed: no", false},
		{"invalid", fmt.Errorf("run: %w", invalid), contracts.CodeInvalidRecipe, "Invalid recipe data from AI", false},
		{"no recipe", fmt.Errorf("run: %w", extract.ErrNoRecipe), contracts.CodeExtractionFailed, "AI extraction failed: no recipe was found in the source", false},
		{"anything else", io.ErrUnexpectedEOF, contracts.CodeExtractionFailed, "AI extraction failed: something went wrong", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := extract.Failure(c.err)
			check.Require(t, got != nil && got.Code == c.code && got.Message == c.message && got.Retryable == c.retryable, "%+v", got)
			cause := errors.Unwrap(c.err)
			check.That(t, cause == nil || errors.Is(c.err, got) || errors.Is(got, c.err), "the cause is lost in %v", got)
		})
	}
	for _, err := range []error{nil, fmt.Errorf("run: %w", context.Canceled), context.DeadlineExceeded} {
		got := extract.Failure(err)
		check.That(t, got == nil, "%v is %v", err, got)
	}
}
