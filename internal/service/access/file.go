package access

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/expediter-io/expediter/internal/retry"
)

const (
	// Prefix begins every secret, so that scanners of repositories and logs find one.
	Prefix = "expediter_"

	// secretBytes is the number of random bytes of a secret.
	secretBytes = 32

	// maxFile bounds the file of keys.
	maxFile = 1 << 20

	// maxName bounds the name of a key.
	maxName = 64
)

// Key is one key of a file.
type Key struct {
	// Expires is the time from which the key is not in force. The zero value is never.
	Expires time.Time `json:"expires,omitzero"`

	// Name names the caller in logs and traces. Required, and unique in the file.
	Name string `json:"name"`

	// RecipientType is the kind of recipient that User is, such as CUSTOMER. Defaults to every kind.
	RecipientType string `json:"recipient_type,omitempty"`

	// Scopes are the permissions. Required.
	Scopes []Scope `json:"scopes"`

	// SHA256 is the hash of the secret in hexadecimal digits. The secret has 256 random bits and is in no dictionary, so a salt and a slow
	// hash would add nothing. Required.
	SHA256 string `json:"sha256"`

	// User is the only user, or owner, for whom the caller acts. Defaults to all users.
	User string `json:"user,omitempty"`
}

// File is the content of a file of keys.
type File struct {
	// Keys are the keys of callers.
	Keys []Key `json:"keys"`

	// Signers are the keys with which applications sign the tokens of their users. Defaults to none.
	Signers []Signer `json:"signers,omitempty"`
}

// hash returns the hash of a secret.
func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// ReadFile returns the content of a file of keys. The error has every mistake.
func ReadFile(path string) (File, error) {
	data, err := content(path)
	if err != nil {
		return File{}, err
	}
	return parse(path, data)
}

// content returns the content of the file, if only the file's owner and group can have written it.
func content(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&0o002 != 0 {
		err = fmt.Errorf("%s may be written by everybody: chmod o-w it", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s is over the limit of %d KiB", path, maxFile>>10)
	}
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	return data, nil
}

func parse(path string, data []byte) (File, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var f File
	err := decoder.Decode(&f)
	if err == nil {
		if _, end := decoder.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("there is more than one JSON value")
		} else if f.Keys == nil && f.Signers == nil {
			err = errors.New(`there is neither a member "keys" nor a member "signers"`)
		} else {
			err = f.check()
		}
	}
	if err != nil {
		return File{}, fmt.Errorf("read keys of %s: %w", path, err)
	}
	return f, nil
}

// check returns an error that names every mistake.
func (f File) check() error {
	var errs []error
	hashes, known := map[string]bool{}, map[string]bool{}
	named := func(kind string, i int, name string) (bad func(format string, args ...any)) {
		bad = func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s %d (%.64q): %s", kind, i+1, name, fmt.Sprintf(format, args...)))
		}
		field := map[string]string{"key": "name", "signer": "kid"}[kind]
		if name == "" || len(name) > maxName || !isPrintable(name) {
			bad("%s: want 1 to %d visible ASCII characters", field, maxName)
		} else if known[name] {
			bad("%s: another key has it", field)
		}
		known[name] = true
		return bad
	}
	for i, k := range f.Keys {
		bad := named("key", i, k.Name)
		k.check(bad)
		if hashes[k.SHA256] {
			bad("sha256: another key has it")
		}
		hashes[k.SHA256] = true
	}
	for i, s := range f.Signers {
		s.check(named("signer", i, s.Name()))
	}
	return errors.Join(errs...)
}

// check passes each mistake to bad.
func (k Key) check(bad func(format string, args ...any)) {
	if sum, err := hex.DecodeString(k.SHA256); err != nil || len(sum) != sha256.Size || hex.EncodeToString(sum) != k.SHA256 {
		bad("sha256: want %d hexadecimal digits in lower case", 2*sha256.Size)
	}
	if len(k.Scopes) == 0 {
		bad("scopes: want some of %s", names(Scopes()))
	}
	for _, s := range k.Scopes {
		if !slices.Contains(Scopes(), s) {
			bad("scopes: %.64q is none of %s", s, names(Scopes()))
		}
	}
	if k.RecipientType != "" && k.User == "" {
		bad("recipient_type: needs a user")
	}
}

func isPrintable(text string) bool {
	return !slices.ContainsFunc([]byte(text), func(b byte) bool { return b <= ' ' || b > '~' })
}

// Add adds a key to a file, and returns the key's secret, which is stored nowhere. Add makes a missing file, and sets SHA256.
func Add(path string, key Key) (secret string, err error) {
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // never fails
	secret = Prefix + base64.RawURLEncoding.EncodeToString(random)
	key.SHA256 = hash(secret)
	err = change(path, func(f File) (File, error) {
		f.Keys = append(f.Keys, key)
		return f, nil
	})
	return secret, err
}

// Revoke removes a key, or a signer, from a file.
func Revoke(path, name string) error {
	return change(path, func(f File) (File, error) {
		before := len(f.Keys) + len(f.Signers)
		f.Keys = slices.DeleteFunc(f.Keys, func(k Key) bool { return k.Name == name })
		f.Signers = slices.DeleteFunc(f.Signers, func(s Signer) bool { return s.Name() == name })
		if len(f.Keys)+len(f.Signers) == before {
			return f, fmt.Errorf("no key of %s is named %.64q", path, name)
		}
		return f, nil
	})
}

// change replaces the file by a changed one in one step. The new file is made under a fixed name, so that two programs never change the
// file at the same time: a revoked key would come back.
func change(path string, edit func(File) (File, error)) (err error) {
	if target, linkErr := filepath.EvalSymlinks(path); linkErr == nil {
		path = target
	}
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is there: the keys are being changed, or a change was interrupted, then remove it", next)
	}
	if err != nil {
		return fmt.Errorf("write keys: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(next))
		}
	}()
	err = errors.Join(rewrite(path, f, edit), f.Close())
	if err != nil {
		return err
	}
	if err = os.Rename(next, path); err != nil {
		return fmt.Errorf("write keys: %w", err)
	}
	return nil
}

func rewrite(path string, to *os.File, edit func(File) (File, error)) error {
	f, err := ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		f, err = File{}, nil
	}
	if err == nil {
		f, err = edit(f)
	}
	if err == nil {
		err = f.check()
	}
	if err != nil {
		return err
	}
	if f.Keys == nil {
		f.Keys = []Key{} // and not null
	}
	data, err := json.MarshalIndent(f, "", "  ")
	if err == nil && len(data) >= maxFile {
		err = fmt.Errorf("%s would be over the limit of %d KiB", path, maxFile>>10)
	}
	if err == nil {
		_, err = to.Write(append(data, '\n'))
	}
	if err = errors.Join(err, to.Sync()); err != nil {
		return fmt.Errorf("write keys: %w", err)
	}
	return nil
}

// reloadEvery is the time between two reads of the file of keys.
const reloadEvery = 2 * time.Second

// Keys are the keys of a file that are in force. Make them with [Open].
type Keys struct {
	// Audience has to be among the audiences of a user's token. Defaults to the name of [Open]. It is not changed after the first request.
	Audience string

	logger *slog.Logger
	name   string
	path   string

	mu      sync.RWMutex      // guards the fields below
	failed  error             // of the last read
	keys    map[string]Key    // by their hashes
	seen    []byte            // the content of the file at the last read
	signers map[string]Signer // by their names
}

// Open reads a file of keys. Log lines begin with name.
func Open(name, path string, logger *slog.Logger) (*Keys, error) {
	data, err := content(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(path, data)
	if err != nil {
		return nil, err
	}
	k := &Keys{Audience: name, logger: logger, name: name, path: path}
	k.use(f, data)
	return k, nil
}

// use puts the content of the file in force.
func (k *Keys) use(f File, data []byte) {
	k.keys, k.signers, k.seen = map[string]Key{}, map[string]Signer{}, data
	for _, key := range f.Keys {
		k.keys[key.SHA256] = key
	}
	for _, signer := range f.Signers {
		k.signers[signer.Name()] = signer
	}
}

// Run reads the file every 2 seconds until ctx ends. A change without mistakes is put in force; otherwise the former keys stay.
func (k *Keys) Run(ctx context.Context) error {
	retry.Every(ctx, reloadEvery, k.reload)
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
	var f File
	if err == nil {
		f, err = parse(k.path, data)
	}
	k.mu.Lock()
	if k.failed = err; err == nil {
		k.use(f, data)
	}
	k.mu.Unlock()
	switch {
	case err == nil:
		k.logger.InfoContext(ctx, k.name+": other keys are in force", "keys", len(f.Keys), "signers", len(f.Signers))
	case before == nil || before.Error() != err.Error():
		k.logger.ErrorContext(ctx, k.name+": the former keys stay in force", "error", err)
	}
}

// Err returns the reason that the file's present content is not in force, nil when it is.
func (k *Keys) Err() error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.failed
}

// caller returns the caller with the hash of a secret. How long a lookup takes tells about hashes at most, of which none leads to a secret.
func (k *Keys) caller(sum string) (Caller, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	found, ok := k.keys[sum]
	if !ok {
		return Caller{}, &tokenError{"is unknown"}
	}
	if !found.Expires.IsZero() && !time.Now().Before(found.Expires) {
		return Caller{}, fmt.Errorf("%w (that of %q)", &tokenError{"has expired"}, found.Name)
	}
	return Caller{Expires: found.Expires, Name: found.Name, RecipientType: found.RecipientType, Scopes: found.Scopes, User: found.User}, nil
}
