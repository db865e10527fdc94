package deploy

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// maxDepth is the largest depth of includes; the files here use two levels.
const maxDepth = 8

// ErrVariable is returned when variables of a configuration are not set, or
// have a value that the server would read as another.
var ErrVariable = errors.New("deploy: unusable variable")

var (
	includeLine = regexp.MustCompile(`^\s*include "([^"]+)"\s*$`)
	variable    = regexp.MustCompile(`\$([A-Z][A-Z0-9_]*)`)
	unparsed    = regexp.MustCompile(`"[^"]*"|#.*`)

	publicKey = regexp.MustCompile(`^U[A-Z2-7]{55}$`)
	list      = regexp.MustCompile(`^\[.*\]$`)
	file      = regexp.MustCompile(`^(/?[A-Za-z][-./_A-Za-z0-9]*|"[^"\\]+")$`)
	word      = regexp.MustCompile(`^([A-Za-z][-_A-Za-z0-9]*|"[^"\\]+")$`)
	noWord    = regexp.MustCompile(`^(?i:true|false|yes|no|on|off)$`)
)

// Text returns the configuration name of Files with every include in its place, except those in without ("accounts.conf"). It is for
// programs that read a configuration without writing it to a disk first.
func Text(name string, without ...string) (string, error) {
	var b strings.Builder
	if err := appendText(&b, name, without, 0); err != nil {
		return "", err
	}
	return b.String(), nil
}

// Variables returns the names of the environment variables that the
// configuration name and its includes refer to, sorted.
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

// CheckVariables returns an ErrVariable for every variable of the configuration name for which getenv returns "", or a value that the
// server would read as another. The server itself accepts an empty password, and it parses a value like a line of the configuration: a
// password of digits is a number, with which it panics. Errors do not have the value.
func CheckVariables(name string, getenv func(string) string) error {
	names, err := Variables(name)
	if err != nil {
		return err
	}

	var errs []error

	for _, v := range names {
		if problem := check(v, strings.TrimSpace(getenv(v))); problem != "" {
			errs = append(errs, fmt.Errorf("%w: %s of %s %s", ErrVariable, v, name, problem))
		}
	}
	return errors.Join(errs...)
}

// check returns the mistake in the value of a variable, "" for none.
func check(name, value string) string {
	switch {
	case value == "":
		return "is empty: set it in the server's environment"
	case strings.HasPrefix(name, "NATS_NKEY_"):
		if !publicKey.MatchString(value) {
			return "is no public key of a user: want U and 55 letters and digits, as nk -gen user -pubout prints on its second line"
		}
	case name == "NATS_ROUTES":
		if !list.MatchString(value) {
			return "is no list: want [nats-route://route:PASSWORD@n1:6222, ...]"
		}
	case name == "NATS_CA" || name == "NATS_CERT" || name == "NATS_KEY":
		if !file.MatchString(value) || noWord.MatchString(value) {
			return "would not be read as a path: begin with a letter or /, use letters, digits, /, ., _ and -, or put it in double quotes"
		}
	case !word.MatchString(value) || noWord.MatchString(value):
		return "would be read as a number, a truth value, a variable or several values: begin with a letter and use letters, " +
			"digits, _ and -, or put it in double quotes"
	}
	return ""
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
