package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/expediter-io/expediter/test/internal/modules"
)

const noRelease = "API: there is no release to compare with\n"

// api prints the changes that break the exported API since the last release.
func (r *release) api(ctx context.Context) (err error) {
	tags, err := readTags(ctx, r.work)
	if err != nil || tags.last == "" {
		r.say.Printf(noRelease)
		return err
	}
	tree, proxy, remove, err := modules.Scratch(ctx, r.work)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.say.Err, remove()) }()
	if err := tree.SetVersion("v0.99999.0"); err != nil { // any version that is not released, because its content differs
		return err
	}
	if err := tree.Stage(ctx, proxy); err != nil {
		return err
	}
	return r.compare(ctx, tree, proxy, tags.last)
}

// compare prints the changes that break the exported API of released modules since a version, "" if there is none. It fails if the release
// must not break the API: before v1 a release may, unless it is a patch.
func (r *release) compare(ctx context.Context, tree *modules.Tree, proxy *modules.Proxy, last string) error {
	if last == "" {
		r.say.Printf(noRelease)
		return nil
	}
	old, err := modules.PutTags(ctx, r.work, last, proxy)
	if err != nil {
		return err
	}
	r.say.Printf("API: breaking changes since %s:\n", last)
	broken := 0
	for _, m := range old.Modules {
		if !m.Released || strings.HasPrefix(m.Dir, "cmd/") { // programs have no API
			continue
		}
		lines, err := r.incompatible(ctx, tree, m, proxy, last)
		if err != nil {
			return err
		}
		for _, line := range lines {
			broken++
			r.say.Printf("\t%s\n", line)
		}
	}
	if broken == 0 {
		r.say.Printf("\tnothing\n")
	}
	if broken > 0 && r.version != "" && (semver.Major(r.version) != "v0" || !strings.HasSuffix(r.version, ".0")) {
		return fmt.Errorf("%s must not break the API, and breaks it in %d places", r.version, broken)
	}
	return nil
}

// incompatible returns the changes of a module that break its API.
func (r *release) incompatible(ctx context.Context, t *modules.Tree, m modules.Module, p *modules.Proxy, last string) ([]string, error) {
	dir := filepath.Join(t.Root, m.Dir)
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); errors.Is(err, os.ErrNotExist) {
		return []string{m.Dir + ": the module is gone"}, nil
	}
	text, err := p.Run(ctx, dir, r.tool, "-base="+last)
	report, _, complete := strings.Cut(text, "# summary\n") // the summary is not used, nor the exit code
	if !complete {
		return nil, err
	}
	var lines []string
	var where string
	breaks := false
	for line := range strings.Lines(report) {
		line = strings.TrimSpace(line)
		switch heading, isHeading := strings.CutPrefix(line, "# "); {
		case isHeading:
			where = strings.TrimPrefix(heading, modules.Prefix)
		case strings.HasPrefix(line, "## "):
			breaks = line == "## incompatible changes"
		case breaks && line != "":
			lines = append(lines, where+": "+line)
		}
	}
	return lines, nil
}
