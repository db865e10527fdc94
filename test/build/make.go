package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/test/internal/modules"
)

// build is one build.
type build struct {
	dir       string // the folder of the files that are made
	platforms []string
	proxy     *modules.Proxy
	revision  string
	root      string // of the tree that is built
	temp      string
	time      time.Time // the time of the commit, and of the files
	version   string
	work      string
}

// program is a program for one platform.
type program struct {
	name     string
	arch, os string
	path     string
	sbom     string // the path of its SBOM
}

// make makes all files, and returns their sums.
func (b *build) make(ctx context.Context) (string, error) {
	for _, dir := range []string{b.dir, b.temp} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // of files that are public
			return "", err //nolint:wrapcheck // names the folder
		}
	}
	var linux []program
	for _, platform := range b.platforms {
		built, err := b.install(ctx, platform)
		if err != nil {
			return "", err
		}
		if err := b.archive(platform, built); err != nil {
			return "", err
		}
		if built[0].os == "linux" {
			linux = append(linux, built...)
		}
	}
	if err := b.images(linux); err != nil {
		return "", err
	}
	return b.sums()
}

// install installs the programs for a platform, and writes their SBOMs.
func (b *build) install(ctx context.Context, platform string) ([]program, error) {
	goos, arch, _ := strings.Cut(platform, "/")
	for _, variable := range []string{
		// The environment must not change the programs. GOBIN is only for programs of the machine's own platform.
		"GOBIN=", "GOPATH=" + b.temp, "GOFLAGS=-trimpath", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "CGO_ENABLED=0", "GOSUMDB=off",
		"GOOS=" + goos, "GOARCH=" + arch,
	} {
		b.proxy.Setenv(variable)
	}
	tool, err := modules.Output(ctx, b.work, "tools/bin", "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod")
	if err != nil {
		return nil, err
	}
	var built []program
	for _, module := range slices.Sorted(maps.Keys(programs)) {
		name := path.Base(programs[module])
		if _, err := b.proxy.Go(ctx, b.temp, "install", "-ldflags=-s -w", modules.Prefix+programs[module]+"@"+b.version); err != nil {
			return nil, err
		}
		p := program{name: name, arch: arch, os: goos}
		p.sbom = filepath.Join(b.dir, fmt.Sprintf("%s-%s-%s-%s.cdx.json", name, b.version, goos, arch))
		if p.path, err = b.installed(p); err != nil {
			return nil, err
		}
		if _, err := b.proxy.Run(ctx, b.temp, strings.TrimSpace(tool), "bin", "-json", "-noserial", "-notimestamp", "-std",
			"-output", p.sbom, p.path); err != nil {
			return nil, err
		}
		built = append(built, p)
	}
	return built, nil
}

// installed returns the path to which the go command has installed a program: in a folder of its platform, unless that is the machine's
// own.
func (b *build) installed(p program) (string, error) {
	name := p.name
	if p.os == "windows" {
		name += ".exe"
	}
	for _, dir := range []string{p.os + "_" + p.arch, "."} {
		file := filepath.Join(b.temp, "bin", dir, name)
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("go install has made no %s for %s/%s below %s", p.name, p.os, p.arch, b.temp)
}

// sums writes SHA256SUMS, which `sha256sum -c` reads, and returns its text.
func (b *build) sums() (string, error) {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return "", err //nolint:wrapcheck // names the folder
	}
	var text strings.Builder
	for _, entry := range entries {
		if entry.Name() == "SHA256SUMS" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(b.dir, entry.Name()))
		if err != nil {
			return "", err //nolint:wrapcheck // names the file
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(data), entry.Name())
	}
	return text.String(), os.WriteFile(filepath.Join(b.dir, "SHA256SUMS"), []byte(text.String()), 0o644) //nolint:gosec // public
}
