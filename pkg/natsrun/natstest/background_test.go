package natstest_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// noted keeps what fails a test.
type noted struct {
	testing.TB

	texts []string
}

func (n *noted) Errorf(format string, args ...any) {
	n.texts = append(n.texts, fmt.Sprintf(format, args...))
}

func TestBackgroundEndsAtTheLatestWithTheTest(t *testing.T) {
	ended := 0
	f := func(ctx context.Context) error {
		<-ctx.Done()

		ended++
		return io.EOF
	}
	n := &noted{}

	t.Run("stopped", func(t *testing.T) {
		n.TB = t
		stop := natstest.Background(n, f)

		stop()

		if ended != 1 {
			t.Error("stop has not waited")
		}

		stop()
	})
	t.Run("not stopped", func(t *testing.T) {
		n.TB = t
		natstest.Background(n, f)
	})

	if want := []string{"in the background: EOF", "in the background: EOF"}; ended != 2 || !slices.Equal(n.texts, want) {
		t.Errorf("ended %d times, reported %q, want %q", ended, n.texts, want)
	}
}
