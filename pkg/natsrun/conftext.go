package natsrun

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	deploy "github.com/expediter-io/expediter/deploy/nats"
)

const (
	accountsConf = "accounts.conf"
	tlsConf      = "tls.conf"
	nkeyVariable = "NATS_NKEY_"
)

// configText returns the embedded configuration name as one text, without TLS,
// with accounts.conf and its variables if there are users. The
// variables are defined in the text and not in this process's environment, which
// all of its servers share.
func configText(name string, users map[string]string, variables ...string) (string, error) {
	text, err := deploy.Text(name, accountsConf, tlsConf)
	if err != nil {
		return "", fmt.Errorf("natsrun: %w", err)
	}

	if users != nil {
		accounts, err := accountsText(users)
		if err != nil {
			return "", err
		}

		text += accounts
	}
	return strings.Join(variables, "\n") + "\n" + text, nil
}

// accountsText returns accounts.conf after the definitions of its variables.
func accountsText(users map[string]string) (string, error) {
	vars := make(map[string]string, len(users))
	for name, nkey := range users {
		vars[nkeyVariable+strings.ToUpper(name)] = nkey
	}

	known, err := deploy.Variables(accountsConf)
	if err != nil {
		return "", fmt.Errorf("natsrun: %w", err)
	}

	missing := deploy.CheckVariables(accountsConf, func(name string) string { return vars[name] })

	var b strings.Builder

	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if !slices.Contains(known, name) {
			missing = errors.Join(missing, fmt.Errorf("%s has no user for %s", accountsConf, name))
		}

		b.WriteString(define(name, vars[name]))
		b.WriteByte('\n')
	}

	if missing != nil {
		return "", fmt.Errorf("natsrun: Users: %w", missing)
	}

	accounts, err := deploy.Text(accountsConf)
	if err != nil {
		return "", fmt.Errorf("natsrun: %w", err)
	}
	return b.String() + accounts, nil
}

// define returns the line that gives a variable a value.
func define(name, value string) string { return fmt.Sprintf("%s: %q", name, value) }

// parse reads a whole configuration text with the server's own parser.
func parse(text, name string) (*server.Options, error) {
	opts := &server.Options{}
	if err := opts.ProcessConfigString(text); err != nil {
		return nil, fmt.Errorf("natsrun: embedded %s: %w", name, err)
	}
	return opts, nil
}
