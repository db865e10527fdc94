package console

import (
	"slices"
	"testing"

	"github.com/jba/templatecheck"

	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// screen is a view whose data has a type.
type screen[T any] struct {
	view

	Data T
}

func typed[T any](t *testing.T, all views, names ...string) []string {
	t.Helper()
	for _, name := range names {
		err := templatecheck.CheckHTML(all[name], screen[T]{})
		check.That(t, err == nil, "%s: %v", name, err)
	}
	return names
}

// A template fails only when it comes to a field that does not exist: a page that no other test fills would be an error on a bad night.
func TestTemplatesFitTheirData(t *testing.T) {
	t.Parallel()
	v, err := new(Console).parse()
	check.OK(t, err)
	checked := slices.Concat(
		typed[deadPage](t, v, "dead"), typed[deadListPage](t, v, "deadletters"), typed[rehearsal](t, v, "deadrehearsal"),
		typed[[]replay](t, v, "deadreplays"), typed[doctorView](t, v, "doctor"), typed[*jobPage](t, v, "job"),
		typed[[]accountStream](t, v, "jobstreams"), typed[jobsPage](t, v, "jobs"), typed[*keysPage](t, v, "keys", "keyslimits"),
		typed[overviewView](t, v, "overview"), typed[question](t, v, "ask"), typed[string](t, v, "error"),
		typed[*schedulesPage](t, v, "schedules"), typed[signInView](t, v, "signin"), typed[workerPage](t, v, "worker"),
		typed[workersPage](t, v, "workers"), typed[[]audit.Record](t, v, "audit"), typed[importPage](t, v, "imports"),
		typed[placePage](t, v, "places"), typed[*notificationsPage](t, v, "notifications"), []string{"layout"},
	)
	for name := range v {
		check.That(t, slices.Contains(checked, name), "the template %s is not checked", name)
	}
}
