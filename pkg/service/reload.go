package service

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/pause"
)

const (
	// fileSuffix ends the name of a variable that has the path of a file with the value of another variable.
	fileSuffix = "_FILE"

	// maxValue bounds the file, in bytes.
	maxValue = 64 << 10

	// valuesEvery is the time between two reads of the files.
	valuesEvery = 2 * time.Second
)

// values are the files with values of variables, and their contents when they were read.
type values map[string]string

// read returns the value in a file, without its last line break. The lines of a list become its elements.
func (v values) read(path string, list bool) (string, error) {
	value, err := readValue(path)
	v[path] = held(value, err)
	if list {
		return strings.ReplaceAll(value, "\n", ","), err
	}
	return value, err
}

func readValue(path string) (string, error) {
	f, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return "", err //nolint:wrapcheck // names the file
	}
	defer f.Close() //nolint:errcheck // it is only read
	data, err := io.ReadAll(io.LimitReader(f, maxValue+1))
	value := strings.TrimRight(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	switch {
	case err != nil:
		return "", err //nolint:wrapcheck // as above
	case value == "":
		return "", fmt.Errorf("%s is empty", path)
	case len(data) > maxValue:
		return "", fmt.Errorf("%s is over the limit of %d KiB", path, maxValue>>10)
	}
	return value, nil
}

// held returns the text by which a file is compared. The error of a file that cannot be read counts as content, too.
func held(value string, err error) string {
	if err != nil {
		return err.Error()
	}
	return value
}

// changed waits for a change of the files, and reports whether there was one before ctx ended.
func (v values) changed(ctx context.Context) bool {
	for pause.For(ctx, valuesEvery) {
		found := false
		for path, before := range v {
			v[path] = held(readValue(path))
			found = found || v[path] != before
		}
		if found {
			return true
		}
	}
	return false
}

// reloading runs a service until ctx ends or it fails. When a file with a value changes, the service stops in an orderly way, and starts
// again with the files' values. If values cannot be read, the service goes on; if it does not start with them, it starts again with the
// former values.
func reloading[C any](ctx context.Context, fromEnvironment func() (C, error), run func(context.Context, C) error) error {
	cfg, err := fromEnvironment()
	if err != nil {
		return err
	}
	var former *C
	for {
		base, started := baseOf(&cfg), false
		base.started = func() { started = true }
		next, err := untilChanged(ctx, cfg, fromEnvironment, run)
		switch {
		case ctx.Err() != nil:
			return err
		case next != nil:
			if err != nil {
				base.Logger.ErrorContext(ctx, "the service did not stop well to begin again with other values", "error", err)
			}
			last := cfg
			former, cfg = &last, *next
		case former != nil && !started:
			base.Logger.ErrorContext(ctx, "the service begins again with its former values", "error", err)
			baseOf(former).values = base.values // the files are not read again until they change once more
			cfg, former = *former, nil
		default:
			return err
		}
	}
}

func baseOf[C any](cfg *C) *BaseConfig {
	return any(cfg).(Config).base() //nolint:forcetypeassert // each configuration embeds a BaseConfig
}

// untilChanged runs a service. It returns the next configuration when the service was stopped for it, and the error of the service.
func untilChanged[C any](
	ctx context.Context, cfg C, fromEnvironment func() (C, error), run func(context.Context, C) error,
) (next *C, err error) {
	base := baseOf(&cfg)
	running, stop := context.WithCancel(ctx)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		for base.values.changed(running) {
			found, err := fromEnvironment()
			if err == nil {
				next = &found
				stop()
				return
			}
			base.Logger.ErrorContext(running, "the former values stay in force", "error", err)
		}
	}()
	err = run(running, cfg)
	stop()
	<-looked
	return next, err
}

// certificate is the certificate of the HTTP interface. It is read again when a connection begins and one of its files has changed. If the
// files cannot be used, the former certificate stays in force.
type certificate struct {
	cert, key string
	logger    *slog.Logger
	name      string // of the service

	mu      sync.Mutex
	current *tls.Certificate
	read    [2]version // the versions of the files of the certificate in force
	refused [2]version // the versions of files that could not be used
}

// version has the properties of a file that change when the file is replaced.
type version struct {
	size  int64
	stamp time.Time
}

// newCertificate reads a certificate for the first time.
func newCertificate(name, cert, key string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, logger: logger, name: name}
	if err := c.load(c.versions()); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12}
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.versions()
	if now == c.read || now == c.refused {
		return c.current, nil
	}
	if err := c.load(now); err != nil {
		c.refused = now
		c.logger.Error(c.name+": the certificate stays as it was", "error", err) //nolint:sloglint // begins with the service's name
	}
	return c.current, nil
}

func (c *certificate) load(now [2]version) error {
	loaded, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("%s: certificate %s with key %s: %w", c.name, c.cert, c.key, err)
	}
	c.current, c.read = &loaded, now
	return nil
}

func (c *certificate) versions() (v [2]version) {
	for i, name := range []string{c.cert, c.key} {
		if info, err := os.Stat(name); err == nil {
			v[i] = version{info.Size(), info.ModTime()}
		}
	}
	return v
}
