package notifier

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// name is the service's name in logs, errors, subjects and environment variables.
const name = "notifier"

// Config is the configuration of the notifier. The tags name the environment variables that [FromEnvironment] reads.
type Config struct {
	// BaseConfig is the part that all services share. Listen defaults to ":8006". Concurrency is the number of events that are
	// planned, and of notifications of each channel that are sent, at a time. It defaults to 32. A channel with Endpoints sends 32 times
	// as many notifications at a time, but only Concurrency to one endpoint.
	service.BaseConfig

	// ChannelConfig describes the channels that need no code. Defaults to none.
	ChannelConfig

	// Channels are further channels beside the inbox and ChannelConfig. Defaults to none.
	Channels []Channel `env:"-"`

	// DisableAfter is the time after which a webhook or Web Push subscription that always fails is disabled. Defaults to
	// 5 days.
	DisableAfter time.Duration `env:"NOTIFIER_DISABLE_AFTER"`

	// InboxKeep is the time for which items stay in inboxes, in whole seconds: at least 40 days, because a notification that outlives
	// its item could be delivered again. Defaults to 90 days.
	InboxKeep time.Duration `env:"NOTIFIER_INBOX_KEEP"`

	// MaxRecipients is the largest number of recipients of one event. Defaults to 1,000,000.
	MaxRecipients int `env:"NOTIFIER_MAX_RECIPIENTS"`

	// Resolver finds the recipients of an event instead of the directory. Defaults to none.
	Resolver recipient.Resolver `env:"-"`

	// Rules is the file of the rules, which name the recipients and channels of each event, see the package rules. Required.
	Rules string `env:"NOTIFIER_RULES"`

	// RulesEvery is the time between two readings of the files of rules and templates. A change without mistakes takes
	// effect. Defaults to 2 seconds.
	RulesEvery time.Duration `env:"NOTIFIER_RULES_EVERY"`

	// pageBytes bounds the pages of plans in tests. Defaults to the planner's bound.
	pageBytes int

	// passed is called, in tests, at each point of an event's life.
	passed func(point string)
}

// Channel is a channel with the settings for its use.
type Channel struct {
	channel.Channel

	// AtMostOnce gives up a message when the provider may have accepted it. Defaults to false: the message is sent again under
	// the same message id.
	AtMostOnce bool

	// Endpoints reports whether addresses are endpoints of the users. An endpoint that does not answer is not called for a
	// while, and after Config.DisableAfter it is disabled. Defaults to false.
	Endpoints bool

	// Retries are the waits after the first, second, ... failure of a message, ±20 %. A message has one more attempt than there
	// are waits. An attempt whose process died counts, but is no failure. Defaults to 5 s, 1 min, 5 min, 30 min, 2 h.
	Retries []time.Duration

	// Timeout bounds one call of the channel. Defaults to 15 seconds.
	Timeout time.Duration
}

// FromEnvironment reads the configuration from environment variables, and sets its Logger. It reports at once every value
// that cannot be read, and every unknown variable that begins with NOTIFIER_. [Run] and [Start] validate the values.
func FromEnvironment() (cfg Config, err error) {
	err = service.FromEnvironment(name, &cfg)
	return cfg, err
}

// Check reads the configuration from an environment as [FromEnvironment] does, and reports every mistake that [Run] finds without
// a server, also those of rules and templates.
func Check(environment map[string]string) (service.BaseConfig, error) {
	var cfg Config
	err := service.Read(name, environment, io.Discard, &cfg)
	n, mistakes := prepare(cfg)
	for _, c := range n.closers {
		c.Close()
	}
	return n.cfg.BaseConfig, errors.Join(err, mistakes)
}

func (cfg Config) withDefaults() Config {
	cfg.BaseConfig = cfg.WithDefaults(":8006", 32)
	cfg.DisableAfter = cmp.Or(cfg.DisableAfter, 5*24*time.Hour)
	cfg.RulesEvery = cmp.Or(cfg.RulesEvery, 2*time.Second)
	return cfg
}

// minRulesEvery is the least value of Config.RulesEvery.
const minRulesEvery = 100 * time.Millisecond

// validate reports every mistake at once, also those of rules and templates, and returns the rules and templates.
func (cfg Config) validate() (*rulesStore, error) {
	errs := []error{cfg.Validate(name)}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("notifier: "+format, args...)) }
	if cfg.DisableAfter < 0 {
		bad("DisableAfter (NOTIFIER_DISABLE_AFTER) is %s: want a positive duration", cfg.DisableAfter)
	}
	if cfg.InboxKeep != 0 && cfg.InboxKeep < deliveries.Keep || cfg.InboxKeep%time.Second != 0 {
		bad("InboxKeep (NOTIFIER_INBOX_KEEP) is %s: want whole seconds, at least %s", cfg.InboxKeep, deliveries.Keep)
	}
	if cfg.MaxRecipients < 0 {
		bad("MaxRecipients (NOTIFIER_MAX_RECIPIENTS) is %d: want a positive number", cfg.MaxRecipients)
	}
	if cfg.RulesEvery < minRulesEvery {
		bad("RulesEvery (NOTIFIER_RULES_EVERY) is %s: want at least %s", cfg.RulesEvery, minRulesEvery)
	}
	names := append([]string{inapp.Name}, cfg.names()...)
	for _, c := range cfg.Channels {
		if slices.Contains(names, c.Name()) {
			bad("two channels are named %q: names must differ", c.Name())
		}
		names = append(names, c.Name())
	}
	s, err := openRulesStore(cfg, names)
	return s, errors.Join(append(errs, err)...)
}
