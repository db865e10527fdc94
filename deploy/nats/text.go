package deploy

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	includeLine = regexp.MustCompile(`^\s*include "([^"]+)"\s*$`)
	variable    = regexp.MustCompile(`\$([A-Z][A-Z0-9_]*)`)
	unparsed    = regexp.MustCompile(`"[^"]*"|#.*`)
)

// Text returns the configuration name of Files with every include in its place, except those in without ("accounts.conf"). It is for
// programs that read a configuration without writing it to a disk first.
func Text(name string, without ...string) (string, error) {
	text, err := Files.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("deploy: read configuration: %w", err)
	}
	var b strings.Builder
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
		included, err := Text(target, without...)
		if err != nil {
			return "", err
		}
		b.WriteString(included)
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
