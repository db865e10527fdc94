package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// postgresFolders are where Debian has the programs, the newest version last.
const postgresFolders = "/usr/lib/postgresql/*/bin"

// StartPostgres makes a database cluster and starts its server, as it comes: every commit is synced to disk. Its address is
// a URL. It does not run as root, so then it runs as the user postgres of the package.
func StartPostgres(ctx context.Context, dir string) (*Service, error) {
	initdb, err := find("initdb", postgresFolders)
	if err != nil {
		return nil, err
	}
	program, err := find("postgres", postgresFolders)
	if err != nil {
		return nil, err
	}
	free, err := ports(1)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	attributes, err := actAs("postgres", dir, data)
	if err != nil {
		return nil, err
	}
	setup := exec.CommandContext(ctx, initdb, "-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync") //nolint:gosec // installed
	setup.SysProcAttr, setup.Dir = attributes, dir
	if text, err := setup.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, text)
	}
	cmd := exec.Command(program, "-D", data, "-p", fmt.Sprint(free[0]), //nolint:gosec,noctx // ended by its owner
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=300")
	cmd.Dir, cmd.SysProcAttr = dir, attributes
	interrupt := func(p *Process) { _ = p.Interrupt() } //nolint:errcheck // it is gone already
	s, err := startForeign(ctx, cmd, fmt.Sprintf("127.0.0.1:%d", free[0]), interrupt)
	if err != nil {
		return nil, err
	}
	s.Address = "postgres://bench@" + s.Address + "/postgres?sslmode=disable"
	return s, nil
}
