package notifier

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/rules"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// RulesStats is what is known of the rules.
type RulesStats struct {
	// Failed says why what the files hold now is not in force, with every mistake. "" is that it is.
	Failed string `json:"failed,omitempty"`

	// LoadedAt is when the rules that are in force were read.
	LoadedAt time.Time `json:"loaded_at"`

	// Version is that of the rules that are in force, see rules.Rules.
	Version string `json:"version"`
}

// book is the rules and the templates that are in force. They are read again when what the files hold changes, both
// together, because rules name templates. What has mistakes does not come into force, in no part.
type book struct {
	channels []string
	every    time.Duration
	logger   *slog.Logger
	path     string
	rules    atomic.Pointer[rules.Rules]
	texts    *template.Set // nil when no channel has any
	ways     Ways

	mu    sync.Mutex
	seen  string // what the files held when they were looked at last
	stats RulesStats
}

var errNoRules = errors.New("notifier: Rules (NOTIFIER_RULES) is missing: want the file that says who is told about what")

// openBook reads rules and templates for the first time. The error has every mistake of both.
func openBook(cfg Config, channels []string) (*book, error) {
	b := &book{channels: channels, every: cfg.RulesEvery, logger: cfg.Logger, path: cfg.Rules, ways: cfg.Ways}
	b.seen = b.content()
	loaded, texts, err := b.load()
	if err != nil {
		return b, err
	}
	b.texts = texts
	b.take(loaded)
	return b, nil
}

// run looks at the files until ctx ends.
func (b *book) run(ctx context.Context) error {
	ticker := time.NewTicker(b.every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			b.look(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// look puts what the files hold into force, if that is something else than at the last look and has no mistakes. What it
// finds is logged once.
func (b *book) look(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.content()
	if found == b.seen {
		return
	}
	b.seen = found
	loaded, texts, err := b.load()
	if err != nil {
		b.stats.Failed = err.Error()
		b.logger.ErrorContext(ctx, "notifier: the rules stay as they are, because what their files hold now has mistakes",
			"version", b.stats.Version, "error", err)
		return
	}
	if b.texts != nil {
		b.texts.Become(texts)
	}
	b.take(loaded)
	b.logger.InfoContext(ctx, "notifier: other rules are in force", "version", loaded.Version())
}

func (b *book) take(loaded *rules.Rules) {
	b.rules.Store(loaded)
	b.stats = RulesStats{LoadedAt: time.Now().UTC(), Version: loaded.Version()}
}

// content names what the files hold. A link that leads elsewhere, or a file in place of the other, changes nothing as long as
// they hold the same. What cannot be read is content, too.
func (b *book) content() string {
	data, err := rules.Read(b.path)
	texts := ""
	if err == nil && len(b.ways.textNames()) > 0 {
		texts, err = template.Version(b.ways.Templates)
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x %s", sha256.Sum256(data), texts)
}

func (b *book) load() (*rules.Rules, *template.Set, error) {
	texts, textsErr := b.ways.texts()
	if b.path == "" {
		return nil, nil, errors.Join(errNoRules, textsErr)
	}
	loaded, err := rules.Load(b.path, b.channels, b.ways.hasText(texts))
	if err != nil {
		err = fmt.Errorf("notifier: Rules (NOTIFIER_RULES): %w", err)
	}
	return loaded, texts, errors.Join(textsErr, err)
}

// hasText is a check that there is a text for each route that needs one. Nothing is known of the types that "*" stands for: when
// such a route names no template, each event's own is looked for when it comes.
func (w Ways) hasText(texts *template.Set) rules.Check {
	return func(eventType string, route rules.Route) string {
		name := route.Template
		if name == "" {
			name = eventType
		}
		var need []string
		for _, c := range w.textNames() {
			if slices.Contains(slices.Concat(route.Channels, route.Fallback), c) {
				need = append(need, c)
			}
		}
		if texts == nil || len(need) == 0 {
			return ""
		}
		if d := route.Digest; d != nil && d.Template != "" && !texts.Has(d.Template) {
			return fmt.Sprintf("has a digest without a text: there is no %s/default.subject, and no %[1]s/default.txt, in %s",
				d.Template, w.Templates)
		}
		if name == "*" || texts.Has(name) {
			return ""
		}
		return fmt.Sprintf("is told by %s, and has no text: there is no %s/default.subject, and no %[2]s/default.txt, in %s",
			strings.Join(need, ", "), name, w.Templates)
	}
}

// Stats returns what is known of the rules.
func (b *book) Stats() RulesStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stats
}

// ready is a check of readiness that is always passed: the old rules are in force, if not the new ones.
func (b *book) ready() error {
	if stats := b.Stats(); stats.Failed != "" {
		return service.Note("version " + stats.Version + " stays in force: " + stats.Failed)
	}
	return nil
}

// CheckRules reads a file of rules, and the templates of the ways, as [Start] and a notifier that runs do, and returns every
// mistake of both, each with its line. channels are the names of those that a program adds by [Config.Channels]. It connects to
// nothing, and needs no secrets: a way is known by its setting that sets it up.
func CheckRules(path string, ways Ways, channels ...string) error {
	_, err := openBook(Config{Rules: path, Ways: ways}, slices.Concat([]string{inapp.Name}, ways.names(), channels))
	return err
}
