package terminal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestColor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		tty  bool
		env  map[string]string
		want bool
	}{
		{tty: true, want: true},
		{tty: false, want: false},
		{tty: true, env: map[string]string{"NO_COLOR": "1"}, want: false},
		{tty: true, env: map[string]string{"NO_COLOR": ""}, want: true},
		{tty: true, env: map[string]string{"TERM": "dumb"}, want: false},
		{tty: true, env: map[string]string{"TERM": "xterm-256color"}, want: true},
	} {
		got := stream(&bytes.Buffer{}, tc.tty, func(name string) string { return tc.env[name] })
		check.That(t, got.Color == tc.want && got.TTY == tc.tty, "%+v: got %+v", tc, got)
	}
}

func TestNewOnWhatIsNoTerminal(t *testing.T) {
	t.Parallel()
	file := check.Must(os.Create(filepath.Join(t.TempDir(), "out")))(t)
	t.Cleanup(func() {
		check.Is(t, file.Close(), nil)
	})
	s := NewStream(file, os.Getenv)
	check.That(t, !s.TTY && !s.Color, "a file: %+v", s)
	s = NewStream(&bytes.Buffer{}, os.Getenv)
	check.That(t, !s.TTY && !s.Color, "a buffer: %+v", s)
}
