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

	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/rules"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// RulesStats is the state of the rules.
type RulesStats struct {
	// Failed has every mistake for which the present contents of the files are not in force. "" means that they are in
	// force.
	Failed string `json:"failed,omitempty"`

	// LoadedAt is the time at which the rules that are in force were read.
	LoadedAt time.Time `json:"loaded_at"`

	// Version is the version of the rules that are in force, see rules.Rules.
	Version string `json:"version"`
}

// rulesStore holds the rules and the templates that are in force. When the contents of the files change, both are read again
// together, because rules name templates. Files with mistakes do not come into force, not even in part.
type rulesStore struct {
	channels      []string
	every         time.Duration
	logger        *slog.Logger
	path          string
	rules         atomic.Pointer[rules.Rules]
	texts         *template.Set // nil when no channel has texts
	channelConfig ChannelConfig

	looking sync.Mutex // held during the reading of the files, which may take long
	seen    string     // the last contents of the files

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

// run reads the files at intervals until ctx ends.
func (s *rulesStore) run(ctx context.Context) error {
	retry.Every(ctx, s.every, s.look)
	return nil
}

// look puts the contents of the files into force, if they have changed since the last call and have no mistakes. It
// logs either outcome once.
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

// content returns a hash of the contents of the files. Replacing a link or a file by one with the same contents changes
// nothing. An error of reading counts as content.
func (s *rulesStore) content() string {
	data, err := private.ReadFile(s.path, rules.MaxFile)
	texts := ""
	if err == nil && len(s.channelConfig.textNames()) > 0 {
		texts = template.Version(s.channelConfig.Templates)
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

// route reads the route of an event with its own route. Its error does not reveal the folder of the templates.
func (s *rulesStore) route(eventType string, data []byte) (rules.Route, error) {
	configured := s.channelConfig
	configured.Templates = "the templates"
	return rules.ParseRoute(eventType, data, s.channels, configured.hasText(s.texts))
}

// hasText is a check that each route that needs a text has one. The types of "*" are not known: when such a route names no
// template, the template of an event's own type is looked for when the event comes.
func (cfg ChannelConfig) hasText(texts *template.Set) rules.Check {
	return func(eventType string, route rules.Route) string {
		name := cmp.Or(route.Template, eventType)
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

// ready is a readiness check that never fails, because the old rules stay in force when the new ones have mistakes.
// It returns a note then.
func (s *rulesStore) ready() error {
	if stats := s.Stats(); stats.Failed != "" {
		return service.Note("version " + stats.Version + " stays in force: " + stats.Failed)
	}
	return nil
}

// CheckRules reads a file of rules, and the templates of the channels, as [Start] and a notifier that runs do, and returns every
// mistake of both, each with its line. channels has the names of the channels that a program adds by [Config.Channels]. It makes
// no connection and needs no secrets: a channel counts as set up by the presence of its setting.
func CheckRules(path string, configured ChannelConfig, channels ...string) error {
	_, err := openRulesStore(Config{Rules: path, ChannelConfig: configured}, slices.Concat([]string{inapp.Name}, configured.names(), channels))
	return err
}
