package natsrun_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	deploy "github.com/expediter-io/expediter/deploy/nats"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// crossing is a line of accounts.conf that lets something cross a border.
var crossing = regexp.MustCompile(`^\s*\{ (service|stream): .*\}(\s+#.*)?$`)

// Without any one of the exports and imports some flow fails, or the server does not start. All lines are removed in turn
// with NATSRUN_ALL_LINES=1, and a sample of them without.
func TestNoExportOrImportIsInVain(t *testing.T) {
	t.Parallel()

	text := check.Must(deploy.Text("accounts.conf"))(t)

	lines := strings.SplitAfter(text, "\n")

	var all []int

	for i, line := range lines {
		if crossing.MatchString(strings.TrimSuffix(line, "\n")) {
			all = append(all, i)
		}
	}

	check.Require(t, len(all) >= 50, "%d lines cross borders: does the expression still fit?", len(all))

	if os.Getenv("NATSRUN_ALL_LINES") == "" {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:10]
	}

	v := vain{dir: t.TempDir(), users: natstest.NewUsers(t)}
	check.OK(t, v.try(t, lines, (*site).fill))
	check.OK(t, v.try(t, lines)) // so that what fails below does so without a line

	for _, i := range all {
		check.That(t, v.try(t, slices.Concat(lines[:i], lines[i+1:])) != nil,
			"everything works without line %d of accounts.conf: %s", i+1, strings.TrimSpace(lines[i]))
	}
}

// vain starts one server after the other on the same store.
type vain struct {
	dir   string
	users *natstest.Users
}

// try starts a server with the lines as its accounts, prepares it, and runs all flows.
func (v vain) try(t *testing.T, lines []string, prepare ...func(*site)) error {
	t.Helper()

	text := check.Must(deploy.Text("single.conf"))(t)

	for name, key := range v.users.Public {
		text += fmt.Sprintf("NATS_NKEY_%s: %q\n", strings.ToUpper(name), key)
	}

	file := filepath.Join(t.TempDir(), "nats.conf")
	check.OK(t, os.WriteFile(file, []byte(text+strings.Join(lines, "")), 0o600))

	srv, err := natsrun.Start(natsrun.Config{ConfigFile: file, Dir: v.dir})
	if err != nil {
		return err // an import without its export
	}
	defer srv.Stop()

	s := &site{T: t, srv: srv, users: v.users}
	s.admin, _ = natstest.Connect(t, srv, v.users.As("admin"))

	for _, p := range prepare {
		p(s)
	}

	s.answer()

	for _, flow := range flows {
		if err := flow(s); err != nil {
			return err
		}
	}
	return nil
}
