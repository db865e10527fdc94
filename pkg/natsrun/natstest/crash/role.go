package crash

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
)

// Patience bounds each wait, so that a test that hangs fails. It is far longer than any step takes, also with the race
// detector on a busy machine: no test depends on it.
const Patience = 3 * time.Minute

// Role is the work of a process that a test starts.
type Role[T any] struct {
	// Name is the name of the role, unique in the test binary.
	Name string

	// Run is the work. ctx ends when the test stops the process, or is gone. When Run returns an error, the process
	// writes it to its standard error and exits with 1.
	Run func(ctx context.Context, task T) error
}

// Main runs the role and exits, in a process that was started in this role, and returns at once in any other.
func (r Role[T]) Main() { child.Main(r.Name, r.Run) }

// Start starts a process in the role with a task, which is passed as JSON, and kills it when the test ends. The test
// binary gets args; it needs none when Main knows the role.
func (r Role[T]) Start(t testing.TB, task T, args ...string) *Process {
	t.Helper()

	p, err := child.Start(t.Output(), r.Name, task, args...)
	return started(t, fmt.Sprintf("%s %+v", r.Name, task), p, err)
}

// Main is natstest.Main for a package with roles.
func Main(m *testing.M, perCore int, roles ...interface{ Main() }) {
	server.Main()

	for _, role := range roles {
		role.Main()
	}

	natstest.Main(m, perCore)
}
