// Package outboxtest runs Postgres for tests of programs with an outbox.
package outboxtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
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
	lifeline io.Closer // the server ends when it is closed, also by the end of this process
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
	attributes, err := servant(postgres.dir)
	if err != nil {
		return err
	}
	data := filepath.Join(postgres.dir, "data")
	//nolint:noctx // a program of Postgres; it ends by itself
	setup := exec.Command(initdb, "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	setup.Dir, setup.SysProcAttr = postgres.dir, attributes
	if text, err := setup.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, text)
	}
	// The shell ends the server at the end of its input.
	//nolint:noctx // of Postgres; it lives as long as this process
	postgres.process = exec.Command("/bin/sh", "-c", `"$@" & read -r _; kill -INT $!; wait $!`,
		"sh", server, "-D", data, "-k", postgres.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=300",
		"-c", "deadlock_timeout=100ms", "-c", "dynamic_shared_memory_type=mmap", "-c", "log_destination=stderr", "-c", "logging_collector=off")
	postgres.process.Dir, postgres.process.SysProcAttr = postgres.dir, attributes
	if postgres.lifeline, err = postgres.process.StdinPipe(); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(postgres.dir, "log"))
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

// servant returns the attributes of a process that is not root, and makes a folder for it.
func servant(dir string) (*syscall.SysProcAttr, error) {
	attributes := &syscall.SysProcAttr{Setpgid: true}
	if err := os.Mkdir(dir, 0o700); err != nil || os.Geteuid() != 0 {
		return attributes, err
	}
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { //nolint:gosec // the servant gets through it
		return nil, err
	}
	u, err := user.Lookup("postgres")
	attributes.Credential = &syscall.Credential{}
	if err == nil {
		_, err = fmt.Sscan(u.Uid+" "+u.Gid, &attributes.Credential.Uid, &attributes.Credential.Gid)
	}
	if err == nil {
		err = os.Chown(dir, int(attributes.Credential.Uid), int(attributes.Credential.Gid))
	}
	return attributes, err
}
