package terminal

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The line shows the text, at most ten times a second and cut to the width, and is empty in the end.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := NewStatus(Stream{Writer: &out, TTY: true})
		s.Setf("%d places", 1)
		s.Setf("too soon")
		time.Sleep(redraw) //nolint:forbidigo // in fake time
		s.Setf("%0100d", 0)
		s.Close()
		s.Close()
		check.Equal(t, "\r1 places\x1b[K\r"+zeros(78)+"…\x1b[K\r\x1b[K", out.String())
	})
}

func zeros(n int) string { return string(bytes.Repeat([]byte("0"), n)) }

// A line that nobody sees writes nothing.
func TestStatusElsewhere(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	for _, s := range []*Status{NewStatus(Stream{Writer: &file}), nil} {
		s.Setf("reading")
		s.Close()
	}
	check.Equal(t, "", file.String())
}
