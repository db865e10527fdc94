package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Every command pays for package initialization, even --version. So regular expressions and word lists are built at their first use.
func TestPackagesAllocateLittleAtTheStart(t *testing.T) {
	t.Parallel()
	const each, all = 96 << 10, 512 << 10 // bytes, of the packages of this project
	cmd := exec.CommandContext(t.Context(), "expediter", "--version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	check.OK(t, err)
	inits := regexp.MustCompile(`(?m)^init github\.com/expediter-io/expediter/(\S+) .* clock, ([0-9]+) bytes`).FindAllSubmatch(out, -1)
	check.That(t, len(inits) > 20, "the trace has %d packages of this project: %s", len(inits), out)
	total := 0
	for _, m := range inits {
		size, _ := strconv.Atoi(string(m[2]))
		total += size
		check.That(t, size <= each, "%s allocates %d bytes at the start, want at most %d", m[1], size, each)
	}
	check.That(t, total <= all, "all packages allocate %d bytes at the start, want at most %d", total, all)
}
