package sourcetest

import (
	"os"
	"path/filepath"
	"strings"
)

// AtWork returns the processes whose folder is dir or below it; none where there is no /proc.
func AtWork(dir string) []string {
	processes, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		panic(err) // the pattern is good
	}
	var out []string
	for _, process := range processes {
		if cwd, err := os.Readlink(process); err == nil && (cwd == dir || strings.HasPrefix(cwd, dir+string(filepath.Separator))) {
			out = append(out, process+" is "+cwd)
		}
	}
	return out
}
