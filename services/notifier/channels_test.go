package notifier

import (
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/internal/channels"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A channel that is in the list and nowhere else would have a consumer, and be refused in rules.
func TestEveryListedChannelHasItsSetting(t *testing.T) {
	t.Parallel()
	var cfg Config
	var texts []string
	environment := map[string]string{}
	for _, c := range channels.All() {
		if c.Variable != "" {
			environment[c.Variable] = "-"
		}
		if c.Text != "" {
			texts = append(texts, c.Name)
		}
	}
	_ = service.Read(name, environment, t.Output(), &cfg) // the values are of no use to the channels
	check.Equal(t, strings.Join(texts, " "), strings.Join(cfg.textNames(), " "))
	got := append([]string{"inapp"}, cfg.names()...)
	slices.Sort(got)
	check.Equal(t, strings.Join(channels.Names(), " "), strings.Join(got, " "))
	check.Equal(t, "inapp webhook", strings.Join(Assume(&ChannelConfig{}, channels.Names()...), " "))
}
