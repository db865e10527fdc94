// Package outside_test uses the modules from outside this repository, through a module proxy, as others will after a release.
package outside_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/test/internal/folderproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outside is a folder that is not in the repository.
type outside struct {
	*testing.T

	dir string
	env []string
}

// run runs a command there and returns its output.
func (o *outside) run(name string, args ...string) string {
	o.Helper()
	cmd := exec.CommandContext(o.Context(), name, args...)
	cmd.Dir, cmd.Env = o.dir, o.env
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	check.Require(o, err == nil, "%s: %v\n%s%s", cmd, err, out, &stderr)
	return string(out)
}

// module makes a module of one file.
func (o *outside) module(name, text string) *outside {
	o.Helper()
	in := &outside{T: o.T, dir: o.TempDir(), env: o.env}
	check.OK(o, os.WriteFile(filepath.Join(in.dir, name), []byte(text), 0o600))
	in.run("go", "mod", "init", "example.org/program")
	in.run("go", "mod", "tidy") // it finds the modules by the imports
	return in
}

func TestModulesFromOutside(t *testing.T) { //nolint:tparallel // one after the other, on one module cache
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles programs for minutes")
	}
	o := &outside{T: t, dir: t.TempDir(), env: folderproxy.Env(t, "../..")}
	t.Run("libraries", o.libraries)
	t.Run("programs", o.programs)
	t.Run("command", o.command)
}

// Whoever imports the libraries gets neither a server, nor OpenTelemetry, nor Postgres.
func (o *outside) libraries(t *testing.T) {
	text := "package main\n\nimport (\n"
	for _, name := range []string{"kvlock", "kvlock/flight", "kvrecord", "worker", "worker/step", "worker/deadletter", "contracts"} {
		text += "\t_ \"" + folderproxy.Module + "/pkg/" + name + "\"\n"
	}
	o = (&outside{T: t, env: o.env}).module("main.go", text+")\n\nfunc main() {}\n")
	o.run("go", "build", "-o", os.DevNull, ".")
	deps := o.run("go", "list", "-deps", ".")
	for _, heavy := range []string{"github.com/nats-io/nats-server", "go.opentelemetry.io/", "github.com/jackc/pgx"} {
		check.That(t, !strings.Contains(deps, heavy), "the libraries import %s:\n%s", heavy, deps)
	}
	// Without -vendor it counts the tests of the libraries, too, which no build of an importer needs.
	why := o.run("go", "mod", "why", "-vendor", "-m", "github.com/nats-io/nats-server/v2", "go.opentelemetry.io/otel", "github.com/jackc/pgx/v5")
	check.Equal(t, strings.Count(why, "(main module does not need"), 3, "modules that are not needed")
}

// The programs that the documents quote print what their last comment says.
func (o *outside) programs(t *testing.T) {
	files := check.Must(filepath.Glob("testdata/*.go"))(t)
	check.That(t, len(files) >= 4, "%d programs: want four", len(files))
	for _, file := range files {
		_, text, _ := strings.Cut(string(check.Must(os.ReadFile(file))(t)), "//go:build ignore\n\n") // keeps them apart in their folder
		in := (&outside{T: t, env: o.env}).module(filepath.Base(file), text)
		if strings.HasSuffix(file, "_test.go") {
			in.run("go", "test", ".")
			continue
		}
		_, want, _ := strings.Cut(text, "\n// Output:")
		want = strings.TrimSpace(strings.ReplaceAll(want, "\n//", "\n"))
		said := in.run("go", "run", ".")
		check.Equal(t, strings.Join(strings.Fields(said), " "), strings.Join(strings.Fields(want), " "), "output of "+file)
	}
}

// go install installs the command, which names its version, and writes a program whose test passes.
func (o *outside) command(t *testing.T) {
	o = &outside{T: t, dir: t.TempDir(), env: append(o.env, "GOBIN="+t.TempDir())}
	bin := strings.TrimPrefix(o.env[len(o.env)-1], "GOBIN=")
	// With the version in place of latest, the go command finds only a root module of that version, if it is in its cache (golang/go#58116).
	o.run("go", "install", folderproxy.Module+"/cmd/expediter@latest")
	said := o.run(filepath.Join(bin, "expediter"), "--version")
	check.That(t, strings.HasPrefix(said, "expediter "+folderproxy.Version+" "), "the command says it is %q", said)
	o.run(filepath.Join(bin, "expediter"), "init", "mailer")
	o.dir = filepath.Join(o.dir, "mailer")
	o.run("go", "mod", "tidy")
	o.run("go", "vet", ".")
	o.run("go", "test", ".")
}
