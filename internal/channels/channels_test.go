package channels_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/channels"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNamed(t *testing.T) {
	t.Parallel()
	names := channels.Names()
	check.That(t, slices.IsSorted(names) && len(names) == len(channels.All()), "names: %q", names)
	for _, name := range names {
		c := channels.Named(name)
		check.That(t, c.Name == name && c.Title != "" && (c.Variable != "") == (name != "inapp"), "%+v", c)
	}
	check.Equal(t, channels.Named("pigeon"), channels.Channel{}, "another name")
}
