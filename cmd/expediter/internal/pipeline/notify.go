package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/expediter-io/expediter/cmd/expediter/internal/sample"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

func (p *Pipeline) startNotifiers(ctx context.Context, cfg Config) error {
	settings := cfg.Notifier
	samples := len(cfg.Notifiers) > 0 && settings.Rules == ""
	if samples {
		var err error
		if settings.Rules, err = p.sampleRules(); err != nil {
			return err
		}
	}
	for i, listen := range cfg.Notifiers {
		nc, err := p.prepare(ctx, cfg, "notifier", i+1, listen, &settings.BaseConfig)
		if err != nil {
			return err
		}
		started, err := notifier.Start(ctx, nc, settings)
		if err != nil {
			return fmt.Errorf("start notifier %d: %w", i+1, err)
		}
		p.Notifiers = append(p.Notifiers, started)
	}
	if samples {
		return enlist(ctx, p.Notifiers[0].Directory)
	}
	return nil
}

// enlist adds the sample's recipients to the directory. A recipient of an earlier run stays as it is, or erased.
func enlist(ctx context.Context, directory *recipient.Directory) error {
	for _, r := range sample.Recipients() {
		_, found, err := directory.Get(ctx, r.RecipientType, r.UserID)
		if errors.Is(err, recipient.ErrForgotten) {
			continue
		}
		if err == nil && !found {
			err = directory.Put(ctx, r, sample.Restaurant)
		}
		if err != nil {
			return fmt.Errorf("write the sample's recipients: %w", err)
		}
	}
	return nil
}

// sampleRules writes the sample's rules into a file that is there until Stop.
func (p *Pipeline) sampleRules() (path string, err error) {
	if p.rulesDir, err = os.MkdirTemp("", "expediter-rules-"); err != nil {
		return "", fmt.Errorf("write the sample's rules: %w", err)
	}
	path = filepath.Join(p.rulesDir, "rules.yaml")
	if err := os.WriteFile(path, sample.Rules(), 0o600); err != nil {
		return "", fmt.Errorf("write the sample's rules: %w", err)
	}
	return path, nil
}
