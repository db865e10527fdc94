package cli

import (
	"cmp"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/cmd/expediter/internal/sample"
	"github.com/expediter-io/expediter/services/notifier"
)

// notifierSettings reads the environment, and looks for the files that the flags name before anything is started.
func (f upFlags) notifierSettings() (notifier.Config, error) {
	cfg, err := notifier.FromEnvironment()
	if err != nil {
		return cfg, &UsageError{Err: err}
	}
	cfg.Rules, cfg.Templates = cmp.Or(f.rules, cfg.Rules), cmp.Or(f.templates, cfg.Templates)
	for _, path := range []string{cfg.Rules, cfg.Templates} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			return cfg, err //nolint:wrapcheck // it names the file
		}
	}
	return cfg, nil
}

// tryEmit are command lines to paste that publish an event. The sample's event is for the rules of the sample.
func (f upFlags) tryEmit(server string) string {
	flag := ""
	if server != nats.DefaultURL {
		flag = " --server " + server
	}
	return fmt.Sprintf("  echo '%s' | expediter emit --wait%s -\n  expediter inbox%s carla\n", sample.Event, flag, flag)
}
