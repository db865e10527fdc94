package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/internal/service/access"
)

type keysFlags struct {
	*globals

	algorithm string
	expires   time.Duration
	file      string
	kind      string
	out       string
	scopes    []string
	user      string
}

func newKeys(g *globals) *cobra.Command {
	f := &keysFlags{globals: g}
	cmd := &cobra.Command{Use: "keys"}
	cmd.PersistentFlags().StringVar(&f.file, "file", "keys.json", "file of keys")
	cmd.AddCommand(f.newAdd(), f.newList(), f.newRevoke(), f.newSigner())
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
		return f.write(func() (string, error) { return access.Add(f.file, key) })
	})
	flags := cmd.Flags()
	flags.DurationVar(&f.expires, "expires", 0, "time for which the key is in force (default for ever)")
	f.registerOut(cmd)
	flags.StringSliceVar(&f.scopes, "scope", nil, "scopes: read, publish, notify, operate, people, mark, address")
	flags.StringVar(&f.kind, "type", "", "kind of recipient that the user is (default every kind)")
	flags.StringVar(&f.user, "user", "", "only user, or owner, that the key is for (default all)")
	return cmd
}

func (f *keysFlags) registerOut(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.out, "out", "", "new file for the key, which its owner alone may read (default: print it)")
}

func (f *keysFlags) newSigner() *cobra.Command {
	cmd := action("signer NAME", func(_ context.Context, args []string) error {
		algorithm := jose.SignatureAlgorithm(f.algorithm)
		if !slices.Contains(access.SignerAlgorithms(), algorithm) {
			return &UsageError{Err: fmt.Errorf("--algorithm %.64q: want one of %v", f.algorithm, access.SignerAlgorithms())}
		}
		return f.write(func() (string, error) { return access.AddSigner(f.file, args[0], algorithm) })
	})
	cmd.Flags().StringVar(&f.algorithm, "algorithm", string(jose.EdDSA), "EdDSA, or HS256 with a secret that the services have, too")
	completeWith(cmd, "algorithm", string(jose.EdDSA), string(jose.HS256))
	f.registerOut(cmd)
	return cmd
}

// write adds a key, and prints it or writes it into a new file.
func (f *keysFlags) write(add func() (secret string, err error)) (err error) {
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
	secret, err := add()
	if err == nil {
		_, err = fmt.Fprintln(to, secret)
	}
	return err
}

func (f *keysFlags) readKeys() (access.File, error) {
	content, err := access.ReadFile(f.file)
	if err != nil {
		err = fmt.Errorf("%w (--file names the file of keys)", err)
	}
	return content, err
}

func (f *keysFlags) newList() *cobra.Command {
	return f.listing("list", func(_ context.Context, _ []string, format string) error {
		content, err := f.readKeys()
		if err != nil {
			return err
		}
		out := f.rows(format, "No keys: expediter keys add makes one.", "NAME", "SCOPES", "TYPE?", "USER?", "UNTIL?", "SIGNS?")
		for _, k := range content.Keys {
			slices.Sort(k.Scopes)
			out.Add(k, k.Name, strings.Trim(strings.ReplaceAll(fmt.Sprint(k.Scopes), " ", ","), "[]"), k.RecipientType, k.User, k.Expires, "")
		}
		for _, s := range content.Signers { // without the key: that of HS256 is a secret
			row := struct {
				Name  string `json:"name"`
				Signs string `json:"signs"`
			}{s.Name(), string(s.Algorithm())}
			out.Add(row, row.Name, "", "", "", time.Time{}, row.Signs)
		}
		return out.Close(nil)
	})
}

func (f *keysFlags) newRevoke() *cobra.Command {
	return action("revoke NAME", func(_ context.Context, args []string) error {
		content, err := f.readKeys()
		if err != nil {
			return err
		}
		var names []string
		for _, k := range content.Keys {
			names = append(names, k.Name)
		}
		for _, s := range content.Signers {
			names = append(names, s.Name())
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
