package notifier

import (
	"bytes"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
)

// An event of the level debug is in the log when the environment asks for it.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]bool{"": false, "debug": true} {
		t.Run("level "+level, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer // read when the notifier has stopped
			p := newPlace(t, natstest.Server(t))
			n := p.start(&pigeon{}, func(cfg *Config) {
				check.OK(t, service.Read(name, map[string]string{"NOTIFIER_LOG_LEVEL": level}, &log, cfg))
			})
			p.publish(event("e1", "NOT_IN_THE_RULES"))
			p.until("the event is ignored", func() bool { return n.Stats().Ignored == 1 })
			check.OK(t, n.Stop())
			if got := strings.Contains(log.String(), `"level":"DEBUG","msg":"notifier: no rule is for the event"`); got != want {
				t.Errorf("a debug event is logged: %t, want %t:\n%s", got, want, &log)
			}
		})
	}
}
