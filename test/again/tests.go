package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/expediter-io/expediter/test/internal/gotest"
)

// tests run once and return the packages, those that did not end among them, and what the run took.
type tests func(ctx context.Context, k kind) ([]*gotest.Package, spent, error)

// tests returns the tests of one package as a program of their own, which is built here, and those of several as a call of
// go test.
func (o *options) tests(ctx context.Context) (tests, error) {
	found, err := output(ctx, append([]string{"go", "list", "-f", "{{.ImportPath}}\t{{.Dir}}"}, o.packages...)...)
	if err != nil {
		return nil, err
	}
	if strings.Contains(found, "\n") {
		return o.suite, nil
	}
	path, dir, _ := strings.Cut(found, "\t")
	program := filepath.Join(o.scratch, "tests")
	build := []string{"go", "test", "-c", "-o", program}
	if o.race {
		build = append(build, "-race")
	}
	if _, err := output(ctx, append(build, path)...); err != nil {
		return nil, err
	}
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("%s has no tests", path)
	}
	converter, err := output(ctx, "go", "tool", "-n", "test2json")
	if err != nil {
		return nil, err
	}
	return o.program(path, dir, program, converter), nil
}

// output runs a command of this workspace and returns the lines that it prints.
func output(ctx context.Context, command ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // it is go
	text, err := cmd.Output()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, ended.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", command[0], err)
	}
	return strings.TrimSpace(string(text)), nil
}

// suite runs the packages by "go test".
func (o *options) suite(ctx context.Context, k kind) ([]*gotest.Package, spent, error) {
	command := []string{"go", "test", "-count=1", "-json"}
	if o.race {
		command = append(command, "-race")
	}
	if o.run != "" {
		command = append(command, "-run="+o.run)
	}
	if o.timeout > 0 {
		command = append(command, "-timeout="+o.timeout.String())
	}
	command = append(append(command, o.packages...), o.arguments...)
	cmd := prepare(ctx, k, command)
	cmd.Env = append(os.Environ(), "GOTMPDIR="+o.scratch) // removed also after a kill
	var said bytes.Buffer
	cmd.Stderr = &said
	packages, took, err := events(ctx, cmd, nil)
	for _, p := range packages {
		if p.Result == gotest.Fail {
			return packages, took, nil // which is why go test failed
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, &said)
	}
	return packages, took, err
}

// program runs the tests of a package that were built before.
func (o *options) program(path, dir, program, converter string) tests {
	return func(ctx context.Context, k kind) ([]*gotest.Package, spent, error) {
		timeout := 10 * time.Minute // as go test does
		if o.timeout > 0 {
			timeout = o.timeout
		}
		command := []string{program, "-test.v=test2json", "-test.paniconexit0", "-test.run=" + o.run, "-test.timeout=" + timeout.String()}
		if len(o.arguments) > 0 {
			command = append(command, o.arguments[1:]...)
		}
		bound, cancel := context.WithTimeout(ctx, timeout+time.Minute)
		defer cancel()
		cmd := prepare(bound, k, command)
		cmd.Dir = dir
		packages, took, err := events(bound, cmd, exec.Command(converter, "-t", "-p", path)) //nolint:gosec,noctx // it ends with its input
		if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
			return nil, took, fmt.Errorf("run the tests of %s: %w", path, err)
		}
		if ctx.Err() == nil {
			for _, p := range packages {
				p.End(err, took.wall)
			}
		}
		return packages, took, nil
	}
}

// prepare returns a command in a process group of its own, so that an interrupt of the terminal does not end the tests before
// it is known here.
func prepare(ctx context.Context, k kind, command []string) *exec.Cmd {
	command = append(append([]string{}, k.under...), command...)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // it is go, or a test
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// events runs a command, and the converter that makes events of what it prints if there is one, and reads the events.
func events(ctx context.Context, cmd, converter *exec.Cmd) ([]*gotest.Package, spent, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, spent{}, fmt.Errorf("read what the tests print: %w", err)
	}
	defer reader.Close() //nolint:errcheck // it was read
	cmd.Stdout = writer
	printed := io.Reader(reader)
	if converter != nil {
		cmd.Stderr = writer
		converter.Stdin, converter.SysProcAttr = reader, cmd.SysProcAttr
		if printed, err = converter.StdoutPipe(); err != nil {
			return nil, spent{}, errors.Join(err, writer.Close())
		}
		if err := converter.Start(); err != nil {
			return nil, spent{}, errors.Join(err, writer.Close())
		}
		defer converter.Wait() //nolint:errcheck // what it prints is read to its end
	}
	began := time.Now()
	err = errors.Join(cmd.Start(), writer.Close())
	if err != nil {
		return nil, spent{}, err
	}
	var ended []*gotest.Package
	left, err := gotest.Read(printed, func(p *gotest.Package) {
		if ctx.Err() != nil {
			p.Result = "" // it ended because its tests were ended
		}
		ended = append(ended, p)
	}, nil)
	_, rest := io.Copy(io.Discard, printed)
	err = errors.Join(err, rest, cmd.Wait())
	took := spent{wall: time.Since(began), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	return slices.Concat(ended, left), took, err
}
