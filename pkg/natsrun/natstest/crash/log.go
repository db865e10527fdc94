package crash

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Kind is what an entry of a Log reports.
type Kind string

// The kinds.
const (
	// Started: a process begins the work whose effect has this id.
	Started Kind = "started"

	// Effect: the effect has happened, as its receiver sees it. It may be repeated until it is recorded.
	Effect Kind = "effect"

	// Recorded: the process knows that the effect is recorded. From now on nobody may repeat it.
	Recorded Kind = "recorded"

	// Injected: a fault happens; its name is in the place of an id. The process, if any, is the one that it happens to.
	Injected Kind = "fault"
)

// Entry is a line of a Log.
type Entry struct {
	At      time.Time
	Process string
	Kind    Kind
	ID      string
}

// Log is the effect log of a test: a file to which the test and its processes append. It survives the processes. An entry is one
// write to a file that is opened for appending, so the entries of all processes have one order, in which each is there before the call
// that wrote it returns.
type Log struct {
	file    *os.File
	process string
}

// NewLog returns an empty log, for the process of the test, in a temporary directory.
func NewLog(t testing.TB) *Log {
	t.Helper()
	l := check.Must(OpenLog(filepath.Join(t.TempDir(), "effects"), "test"))(t)
	t.Cleanup(func() { check.ErrorIs(t, l.Close(), nil) })
	return l
}

// OpenLog opens the log at a path for a process, which is named in its entries.
func OpenLog(path, process string) (*Log, error) {
	if strings.ContainsAny(process, " \n") {
		return nil, fmt.Errorf("name of a process %q: it has a space", process)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the effect log: %w", err)
	}
	return &Log{file: f, process: process}, nil
}

// Path returns the path of the log, for the tasks of processes.
func (l *Log) Path() string { return l.file.Name() }

// Close closes the log for this process.
func (l *Log) Close() error { return l.file.Close() }

// Write appends an entry of this process.
func (l *Log) Write(kind Kind, id string) error { return l.write(l.process, kind, id) }

// Inject appends the fault that is about to happen to a process, "" for one that happens to a server.
func (l *Log) Inject(fault, process string) error { return l.write(process, Injected, fault) }

func (l *Log) write(process string, kind Kind, id string) error {
	if strings.Contains(id, "\n") {
		return fmt.Errorf("effect log: id %q has several lines", id)
	}
	line := strconv.AppendInt(make([]byte, 0, 128), time.Now().UnixNano(), 10)
	for _, field := range []string{process, string(kind), id} {
		line = append(append(line, ' '), field...)
	}
	_, err := l.file.Write(append(line, '\n'))
	return err
}

// Entries calls take with the entries so far, in their order.
func (l *Log) Entries(take func(Entry)) error {
	f, err := os.Open(l.Path())
	if err != nil {
		return fmt.Errorf("read the effect log: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewReaderSize(f, 1<<16); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // a process may be writing the line that has no end yet
		} else if err != nil {
			return fmt.Errorf("read the effect log: %w", err)
		}
		fields := strings.SplitN(string(bytes.TrimSuffix(line, []byte("\n"))), " ", 4)
		if len(fields) < 4 {
			return fmt.Errorf("effect log: %q is no entry", line)
		}
		at, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return fmt.Errorf("effect log: %q is no entry: %w", line, err)
		}
		take(Entry{At: time.Unix(0, at), Process: fields[1], Kind: Kind(fields[2]), ID: fields[3]})
	}
}
