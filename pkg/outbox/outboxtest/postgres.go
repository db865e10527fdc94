// Package outboxtest runs Postgres for tests of programs with an outbox.
package outboxtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/internal/retry"
)

// patience bounds the start of the server.
const patience = 2 * time.Minute

// postgres is the one server of this test binary. Each test has its own database on it.
var postgres struct {
	sync.Once

	dir      string // of the sockets, and of the data
	err      error
	folder   *private.Folder
	process  *exec.Cmd
	lifeline io.WriteCloser // the server ends when it is closed, also by the end of this process
	next     atomic.Int64
}

// Database creates an empty database and returns its connection string for pgx. The first call starts the server, with the programs initdb
// and postgres in programs. The server runs until [Stop].
func Database(t testing.TB, programs []string) (dsn string) {
	t.Helper()
	postgres.Do(func() { startPostgres(programs[0], programs[1]) })
	if postgres.err != nil {
		t.Fatal(postgres.err)
	}
	name := fmt.Sprintf("test%d", postgres.next.Add(1))
	conn, err := pgx.Connect(t.Context(), place("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return place(name)
}

func place(database string) string {
	return fmt.Sprintf("host=%s user=test dbname=%s", postgres.dir, database)
}

// startPostgres creates a cluster in a temporary folder and runs it on a socket there. Postgres refuses to run as root, so a test of root
// starts it as the user postgres.
func startPostgres(initdb, server string) {
	if err := runPostgres(initdb, server); err != nil {
		postgres.err = fmt.Errorf("start Postgres for the tests: %w", err)
	}
}

// runPostgres creates the cluster, and returns when the server takes connections.
func runPostgres(initdb, server string) (err error) {
	// Not below TMPDIR: the name of a socket has to be short, and another user may have to get there.
	const root, prefix = "/tmp", "expediter-postgres-"
	if err = private.Sweep(root, prefix); err == nil {
		postgres.folder, err = private.Make(root, prefix)
	}
	if err != nil {
		return err
	}
	postgres.dir = filepath.Join(postgres.folder.Path, "server")
	if err := makeServant(postgres.dir); err != nil {
		return err
	}
	//nolint:noctx // a program of Postgres; it ends by itself
	setup := exec.Command(initdb, "-D", data(), "-U", "test", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	setup.Dir = postgres.dir
	if err := asServant(setup); err != nil {
		return err
	}
	if text, err := setup.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, text)
	}
	return launch(server)
}

func data() string { return filepath.Join(postgres.dir, "data") }

// launch starts the server, and returns when it takes connections.
func launch(server string) (err error) {
	// The shell ends the server at the end of its input, with the signal that it reads there.
	//nolint:noctx // of Postgres; it lives as long as this process
	postgres.process = exec.Command("/bin/sh", "-c", `"$@" & read -r how; kill -${how:-INT} $!; wait $!`,
		"sh", server, "-D", data(), "-k", postgres.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=300",
		"-c", "deadlock_timeout=100ms", "-c", "dynamic_shared_memory_type=mmap", "-c", "log_destination=stderr", "-c", "logging_collector=off")
	postgres.process.Dir = postgres.dir
	if err := asServant(postgres.process); err != nil {
		return err
	}
	if postgres.lifeline, err = postgres.process.StdinPipe(); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(postgres.dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	postgres.process.Stderr = log
	if err := postgres.process.Start(); err != nil {
		return err
	}
	return awaitPostgres()
}

// Restart ends the server like a crash and starts it again, with the same databases. It returns when the server takes connections. No
// other test may use a database in the meantime.
func Restart(programs []string) error {
	if _, err := io.WriteString(postgres.lifeline, "QUIT\n"); err != nil {
		return fmt.Errorf("kill Postgres: %w", err)
	}
	_ = postgres.process.Wait() // it was killed
	if err := launch(programs[1]); err != nil {
		return fmt.Errorf("start Postgres again: %w", err)
	}
	return nil
}

// awaitPostgres returns when the server takes connections.
func awaitPostgres() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience) //nolint:forbidigo // the server is for all tests, not for one
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, place("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the server does not start: %w", err)
		}
		retry.Sleep(ctx, 20*time.Millisecond)
	}
}

// Stop ends the server, if it runs, and removes its files. Database then starts another server.
func Stop() {
	if postgres.lifeline != nil {
		_ = postgres.lifeline.Close() // it is gone already then
		_ = postgres.process.Wait()   // it was told to end
	}
	if postgres.folder != nil {
		if err := postgres.folder.Remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	postgres.Once = sync.Once{}
}
