package access

import (
	"bytes"
	"context"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/pause"
)

// reloadEvery is how often the file of keys is read.
const reloadEvery = 2 * time.Second

// Keys are the keys of a file that are in force. Make them with [Open].
type Keys struct {
	logger *slog.Logger
	name   string
	path   string

	mu     sync.RWMutex // guards the fields below
	failed error        // of the last read
	keys   []Key
	seen   []byte // what the file held at the last look
}

// Open reads a file of keys. The name begins the log lines.
func Open(name, path string, logger *slog.Logger) (*Keys, error) {
	data, err := content(path)
	if err != nil {
		return nil, err
	}
	keys, err := parse(path, data)
	if err != nil {
		return nil, err
	}
	return &Keys{keys: keys, logger: logger, name: name, path: path, seen: data}, nil
}

// Run reads the file every 2 seconds until ctx ends. A change without mistakes is put in force; otherwise the former keys stay.
func (k *Keys) Run(ctx context.Context) error {
	pause.Every(ctx, reloadEvery, k.reload)
	return nil
}

func (k *Keys) reload(ctx context.Context) {
	data, err := content(k.path)
	k.mu.RLock()
	unchanged := err == nil && k.failed == nil && bytes.Equal(data, k.seen)
	before := k.failed
	k.mu.RUnlock()
	if unchanged {
		return
	}
	var keys []Key
	if err == nil {
		keys, err = parse(k.path, data)
	}
	k.mu.Lock()
	if k.failed = err; err == nil {
		k.keys, k.seen = keys, data
	}
	k.mu.Unlock()
	switch {
	case err == nil:
		k.logger.InfoContext(ctx, k.name+": other keys are in force", "keys", len(keys)) //nolint:sloglint // begins with the service's name
	case before == nil || before.Error() != err.Error():
		k.logger.ErrorContext(ctx, k.name+": the former keys stay in force", "error", err) //nolint:sloglint // as above
	}
}

// Err returns why what the file holds now is not in force, nil when it is.
func (k *Keys) Err() error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.failed
}

// caller returns the caller with the hash of a secret. All hashes are compared, each in constant time.
func (k *Keys) caller(sum string) (Caller, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var found *Key
	for i := range k.keys {
		if subtle.ConstantTimeCompare([]byte(k.keys[i].SHA256), []byte(sum)) == 1 {
			found = &k.keys[i]
		}
	}
	if found == nil {
		return Caller{}, &tokenError{"is unknown"}
	}
	if !found.Expires.IsZero() && !time.Now().Before(found.Expires) {
		return Caller{}, fmt.Errorf("%w (that of %q)", &tokenError{"has expired"}, found.Name)
	}
	return found.caller(), nil
}
