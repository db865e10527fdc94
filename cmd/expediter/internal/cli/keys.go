package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/internal/service/access"
)

type keysFlags struct {
	*globals

	expires time.Duration
	file    string
	kind    string
	out     string
	scopes  []string
	user    string
}

func newKeys(g *globals) *cobra.Command {
	f := &keysFlags{globals: g}
	cmd := &cobra.Command{Use: "keys"}
	cmd.PersistentFlags().StringVar(&f.file, "file", "keys.json", "file of keys")
	cmd.AddCommand(f.newAdd(), f.newList(), f.newRevoke())
	return cmd
}

func (f *keysFlags) newAdd() *cobra.Command {
	cmd := action("add NAME", func(_ context.Context, args []string) error {
		key := access.Key{Name: args[0], RecipientType: f.kind, User: f.user}
		for _, s := range f.scopes {
			key.Scopes = append(key.Scopes, access.Scope(s))
		}
		if f.expires < 0 || len(key.Scopes) == 0 {
			return &UsageError{Err: errors.New("want at least one --scope, and no negative --expires")}
		}
		if f.expires > 0 {
			key.Expires = time.Now().Add(f.expires).UTC().Truncate(time.Second)
		}
		return f.add(key)
	})
	flags := cmd.Flags()
	flags.DurationVar(&f.expires, "expires", 0, "time for which the key is in force (default for ever)")
	flags.StringVar(&f.out, "out", "", "new file for the key, which its owner alone may read (default: print it)")
	flags.StringSliceVar(&f.scopes, "scope", nil, "scopes: read, publish, notify, operate, people, mark, address")
	flags.StringVar(&f.kind, "type", "", "kind of recipient that the user is (default every kind)")
	flags.StringVar(&f.user, "user", "", "only user, or owner, that the key is for (default all)")
	return cmd
}

// add adds a key, and prints it or writes it into a new file.
func (f *keysFlags) add(key access.Key) (err error) {
	to := f.config.Stdout
	if f.out != "" {
		// First the file: a key that nobody has seen would be of no use, and one that is in use is never replaced.
		file, failed := os.OpenFile(f.out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if failed != nil {
			return fmt.Errorf("--out: %w", failed)
		}
		defer func() {
			if err = errors.Join(err, file.Close()); err != nil {
				os.Remove(f.out)
			}
		}()
		to = file
	}
	secret, err := access.Add(f.file, key)
	if err == nil {
		_, err = fmt.Fprintln(to, secret)
	}
	return err
}

func (f *keysFlags) readKeys() ([]access.Key, error) {
	keys, err := access.ReadFile(f.file)
	if err != nil {
		err = fmt.Errorf("%w (--file names the file of keys)", err)
	}
	return keys, err
}

func (f *keysFlags) newList() *cobra.Command {
	return f.listing("list", func(_ context.Context, _ []string, format string) error {
		keys, err := f.readKeys()
		if err != nil {
			return err
		}
		out := f.rows(format, "No keys: expediter keys add makes one.", "NAME", "SCOPES", "TYPE?", "USER?", "UNTIL?")
		for _, k := range keys {
			slices.Sort(k.Scopes)
			out.Add(k, k.Name, strings.Trim(strings.ReplaceAll(fmt.Sprint(k.Scopes), " ", ","), "[]"), k.RecipientType, k.User, k.Expires)
		}
		return out.Close(nil)
	})
}

func (f *keysFlags) newRevoke() *cobra.Command {
	return action("revoke NAME", func(_ context.Context, args []string) error {
		keys, err := f.readKeys()
		if err != nil {
			return err
		}
		var names []string
		for _, k := range keys {
			names = append(names, k.Name)
		}
		if !slices.Contains(names, args[0]) {
			return fmt.Errorf("%w: %s has no key %q%s", ErrNotFound, f.file, args[0], didYouMean(args[0], names...))
		}
		return access.Revoke(f.file, args[0])
	})
}

// maxKey bounds a file or a variable with one key, in bytes.
const maxKey = 16 << 10

// callerKey returns the key with which a command makes requests, from a file or from EXPEDITER_KEY. It is never an argument,
// because every user of the machine can see arguments.
func (g *globals) callerKey(path string) (string, error) {
	source, key := "EXPEDITER_KEY", g.config.Getenv("EXPEDITER_KEY")
	if path == "" && key == "" {
		return "", nil
	}
	if path != "" {
		source = "--key-file " + path
		data, err := private.ReadFile(path, maxKey)
		if err != nil {
			return "", fmt.Errorf("--key-file: %w", err)
		}
		key = string(data)
	}
	trimmed := strings.TrimSpace(key)
	if trimmed == "" || len(key) > maxKey || strings.ContainsFunc(trimmed, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", &UsageError{Err: fmt.Errorf("%s: want one line with a key, of at most %d bytes", source, maxKey)}
	}
	return trimmed, nil
}
