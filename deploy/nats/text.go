package deploy

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// maxDepth bounds how deep files may include each other; the files here use two levels.
const maxDepth = 8

// ErrVariable is returned when variables of a configuration are not set, or are
// set to nothing.
var ErrVariable = errors.New("deploy: variable is empty")

var (
	includeLine = regexp.MustCompile(`^include "([^"]+)"\s*$`)
	variable    = regexp.MustCompile(`\$([A-Z][A-Z0-9_]*)`)
	unparsed    = regexp.MustCompile(`"[^"]*"|#.*`)
)

// Text returns the configuration name of Files with every include in its place,
// but for those that are named in without ("accounts.conf"). It is for programs
// that read a configuration without writing it to a disk first.
func Text(name string, without ...string) (string, error) {
	var b strings.Builder
	if err := appendText(&b, name, without, 0); err != nil {
		return "", err
	}
	return b.String(), nil
}

// Variables returns the names of the environment variables that the
// configuration name and what it includes refer to, sorted.
func Variables(name string) ([]string, error) {
	text, err := Text(name)
	if err != nil {
		return nil, err
	}

	var names []string

	for _, m := range variable.FindAllStringSubmatch(unparsed.ReplaceAllString(text, ""), -1) {
		names = append(names, m[1])
	}

	slices.Sort(names)
	return slices.Compact(names), nil
}

// CheckVariables reports every variable of the configuration name for which
// getenv returns nothing, as ErrVariable. The server itself refuses a variable
// that is missing but takes an empty password for a password.
func CheckVariables(name string, getenv func(string) string) error {
	names, err := Variables(name)
	if err != nil {
		return err
	}

	var errs []error

	for _, v := range names {
		if strings.TrimSpace(getenv(v)) == "" {
			errs = append(errs, fmt.Errorf("%w: %s of %s: set it in the server's environment", ErrVariable, v, name))
		}
	}
	return errors.Join(errs...)
}

func appendText(b *strings.Builder, name string, without []string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("deploy: %s: more than %d levels of include: does a file include itself?", name, maxDepth)
	}

	text, err := Files.ReadFile(name)
	if err != nil {
		return fmt.Errorf("deploy: read configuration: %w", err)
	}

	for line := range strings.Lines(string(text)) {
		m := includeLine.FindStringSubmatch(line)
		if m == nil {
			b.WriteString(line)

			continue
		}

		target := path.Join(path.Dir(name), m[1])
		if slices.Contains(without, target) {
			continue
		}

		if err := appendText(b, target, without, depth+1); err != nil {
			return err
		}
	}
	return nil
}
