package notifier

import (
	"cmp"
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

	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/rules"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// RulesStats is the state of the rules.
type RulesStats struct {
	// Failed says why the present contents of the files are not in force, with every mistake. "" means that
	// they are.
	Failed string `json:"failed,omitempty"`

	// LoadedAt is when the rules that are in force were read.
	LoadedAt time.Time `json:"loaded_at"`

	// Version is that of the rules that are in force, see rules.Rules.
	Version string `json:"version"`
}

// rulesStore holds the rules and the templates that are in force. They are read again when the contents of the files change,
// both together, because rules name templates. Files with mistakes do not come into force, in no part.
type rulesStore struct {
	channels      []string
	every         time.Duration
	logger        *slog.Logger
	path          string
	rules         atomic.Pointer[rules.Rules]
	texts         *template.Set // nil when no channel has any
	channelConfig ChannelConfig

	looking sync.Mutex // held while the files are read, which may take long
	seen    string     // their contents when they were looked at last

	mu    sync.Mutex
	stats RulesStats
}

var errNoRules = errors.New("notifier: Rules (NOTIFIER_RULES) is missing: want the file with the rules")

// openRulesStore reads rules and templates for the first time. The error has every mistake of both.
func openRulesStore(cfg Config, channels []string) (*rulesStore, error) {
	s := &rulesStore{channels: channels, every: cfg.RulesEvery, logger: cfg.Logger, path: cfg.Rules, channelConfig: cfg.ChannelConfig}
	s.seen = s.content()
	loaded, texts, err := s.load()
	if err != nil {
		return s, err
	}
	s.texts = texts
	s.take(loaded)
	return s, nil
}

// run looks at the files until ctx ends.
func (s *rulesStore) run(ctx context.Context) error {
	pause.Every(ctx, s.every, s.look)
	return nil
}

// look puts the contents of the files into force, if they have changed since the last look and have no mistakes. Either
// outcome is logged once.
func (s *rulesStore) look(ctx context.Context) {
	s.looking.Lock()
	defer s.looking.Unlock()
	found := s.content()
	if found == s.seen {
		return
	}
	s.seen = found
	loaded, texts, err := s.load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.stats.Failed = err.Error()
		s.logger.ErrorContext(ctx, "notifier: the rules stay as they are, because their files have mistakes now",
			"version", s.stats.Version, "error", err)
		return
	}
	if s.texts != nil {
		s.texts.Become(texts)
	}
	s.take(loaded)
	s.logger.InfoContext(ctx, "notifier: other rules are in force", "version", loaded.Version())
}

func (s *rulesStore) take(loaded *rules.Rules) {
	s.rules.Store(loaded)
	s.stats = RulesStats{LoadedAt: time.Now().UTC(), Version: loaded.Version()}
}

// content identifies the contents of the files. A link that leads elsewhere, or a file in place of the other, changes nothing
// as long as they hold the same. An error of reading is content, too.
func (s *rulesStore) content() string {
	data, err := rules.Read(s.path)
	texts := ""
	if err == nil && len(s.channelConfig.textNames()) > 0 {
		texts, err = template.Version(s.channelConfig.Templates)
	}
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x %s", sha256.Sum256(data), texts)
}

func (s *rulesStore) load() (*rules.Rules, *template.Set, error) {
	texts, textsErr := s.channelConfig.texts()
	if s.path == "" {
		return nil, nil, errors.Join(errNoRules, textsErr)
	}
	loaded, err := rules.Load(s.path, s.channels, s.channelConfig.hasText(texts))
	if err != nil {
		err = fmt.Errorf("notifier: Rules (NOTIFIER_RULES): %w", err)
	}
	return loaded, texts, errors.Join(textsErr, err)
}

// route reads the route of an event that has one of its own. Its error does not say where the templates are.
func (s *rulesStore) route(eventType string, data []byte) (rules.Route, error) {
	configured := s.channelConfig
	configured.Templates = "the templates"
	return rules.ParseRoute(eventType, data, s.channels, configured.hasText(s.texts))
}

// hasText is a check that there is a text for each route that needs one. Nothing is known of the types that "*" stands for: when
// such a route names no template, each event's own is looked for when it comes.
func (cfg ChannelConfig) hasText(texts *template.Set) rules.Check {
	return func(eventType string, route rules.Route) string {
		name := route.Template
		name = cmp.Or(name, eventType)
		var need []string
		for _, c := range cfg.textNames() {
			if slices.Contains(route.All(), c) {
				need = append(need, c)
			}
		}
		if texts == nil || len(need) == 0 {
			return ""
		}
		if d := route.Digest; d != nil && d.Template != "" && !texts.Has(d.Template, need...) {
			return fmt.Sprintf("has a digest without a text: there is no %s/default.subject, and no %[1]s/default.txt, in %s",
				d.Template, cfg.Templates)
		}
		need = slices.DeleteFunc(need, func(channel string) bool { return texts.Has(name, channel) })
		if name == "*" || len(need) == 0 {
			return ""
		}
		return fmt.Sprintf("is told by %s, and has no text: there is no %s/default.subject, and no %[2]s/default.txt, in %s",
			strings.Join(need, ", "), name, cfg.Templates)
	}
}

// Stats returns the state of the rules.
func (s *rulesStore) Stats() RulesStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// ready is a check of readiness that is always passed: the old rules are in force, if not the new ones.
func (s *rulesStore) ready() error {
	if stats := s.Stats(); stats.Failed != "" {
		return service.Note("version " + stats.Version + " stays in force: " + stats.Failed)
	}
	return nil
}

// CheckRules reads a file of rules, and the templates of the channels, as [Start] and a notifier that runs do, and returns every
// mistake of both, each with its line. channels are the names of those that a program adds by [Config.Channels]. It connects to
// nothing, and needs no secrets: a channel is known by its setting that sets it up.
func CheckRules(path string, configured ChannelConfig, channels ...string) error {
	_, err := openRulesStore(Config{Rules: path, ChannelConfig: configured}, slices.Concat([]string{inapp.Name}, configured.names(), channels))
	return err
}
