package natsrun_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	deploy "github.com/expediter-io/expediter/deploy/nats"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A source system whose account imports no more than events publishes them. It is told at once that it cannot compare a duplicate.
func TestASourceThatMayNotReadPublishes(t *testing.T) {
	t.Parallel()

	text, err := deploy.Text("accounts.conf")
	check.OK(t, err)

	read := regexp.MustCompile(`\{ account: NOTIFIER, subject: "\$JS\.API\.(INFO|STREAM\.INFO\.EVENTS|DIRECT\.GET\.EVENTS|STREAM\.MSG\.GET\.EVENTS)" \} \}`)
	lines := slices.DeleteFunc(strings.SplitAfter(text, "\n"), read.MatchString)

	v := vain{dir: t.TempDir(), users: natstest.NewUsers(t)}
	published := func(s *site) {
		createAssets(t, s.admin, 1)

		_, js := s.as("publisher")
		p, err := contracts.NewPublisher(js, contracts.PublisherConfig{})
		check.OK(t, err)

		e := contracts.Event{EventID: "e", EventType: "HELLO", AggregateType: "GUEST"}
		check.OK(t, check.Err(p.Publish(t.Context(), e)))

		_, err = p.Publish(t.Context(), e)
		if failed, ok := errors.AsType[*contracts.PublishError](err); !ok || failed.Attempts != 1 || !failed.Unsure {
			t.Errorf("again: %+v", err)
		}

		check.Contains(t, err, "this account may not read")
	}

	if err := v.try(t, lines, published); err == nil {
		t.Error("the source reads events")
	}
}
