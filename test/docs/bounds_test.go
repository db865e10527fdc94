package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// bounds is a line of the table of streams: name, bound, age, and behaviour when it is full.
var bounds = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([0-9]+ [MG]iB)(?:, [^|]+)? \\| ([^|]+) \\| (refuses|drops the oldest) \\| ([^|]+) \\|$")

// The table in docs/operate.md has every stream and bucket, as it is declared, and each has a bound.
func TestTheTableOfBoundsIsDeclared(t *testing.T) {
	t.Parallel()
	text := check.Must(os.ReadFile(filepath.Join("..", "..", "docs", "operate.md")))(t)
	listed := map[string][]string{}
	for _, line := range bounds.FindAllStringSubmatch(string(text), -1) {
		listed[line[1]] = line[2:]
	}
	declared := contracts.Assets(contracts.AssetOptions{})
	for _, c := range declared {
		line, ok := listed[c.Name]
		if !ok || c.MaxBytes <= 0 {
			t.Errorf("%s is not listed, or has no bound of bytes: %d", c.Name, c.MaxBytes)
			continue
		}
		want := size(c.MaxBytes)
		check.That(t, line[0] == want, "the bound of %s is %s, want %s", c.Name, line[0], want)
		if want := fmt.Sprintf("%d days", c.MaxAge/(24*time.Hour)); c.MaxAge > 0 && line[1] != want {
			t.Errorf("the age of %s is %s, want %s", c.Name, line[1], want)
		}
		want, noticed := "refuses", "gauge, readiness"
		if c.Discard == jetstream.DiscardOld {
			want, noticed = "drops the oldest", "gauge, alert"
		}
		check.Equal(t, line[2], want, c.Name+" when it is full")
		check.That(t, c.Name == "KV_"+contracts.BucketLocks || strings.HasPrefix(c.Name, contracts.StreamAudit) || line[3] == noticed,
			"%s is noticed by %s, want %s", c.Name, line[3], noticed)
	}
	check.Equal(t, len(listed), len(declared), "len(listed)")
}

func size(bytes int64) string {
	if bytes%(1<<30) == 0 {
		return fmt.Sprintf("%d GiB", bytes>>30)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
