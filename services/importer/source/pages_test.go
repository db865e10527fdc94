package source_test

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/source/sourcetest"
)

// Each page gives the recipe that a person reads on it.
func TestPages(t *testing.T) {
	t.Parallel()
	pages, err := sourcetest.Pages()
	check.OK(t, err)
	if len(pages) < 40 {
		t.Errorf("%d pages", len(pages))
	}
	for _, p := range pages {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			got, err := p.Read(t.Context())
			check.OK(t, err)
			check.Equal(t, p.Want, got)
		})
	}
}
