package deploy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// divided matches the parts of subjects that name a divided stream or bucket.
var divided = regexp.MustCompile(`\b(ENRICH_JOBS|NOTIFICATIONS|KV_enrich|rp\.enrich|\$KV\.enrich)\b`)

var (
	accountLine = regexp.MustCompile(`^  ([A-Z]+) \{`)
	streamsLine = regexp.MustCompile(`max_streams: (\d+)`)
	remark      = regexp.MustCompile(`\s+#.*`)
)

// entries are the subjects under which clients write to divided streams, each with its form for a partition. The first partition of jobs
// and of results has an entry of its own.
var entries = []struct {
	subject, form string
	from          int
}{
	{`"jobs.enrich.>"`, `"ENRICH_JOBS-%d.jobs.enrich.>"`, 0},
	{`"notify.>"`, `"NOTIFICATIONS-%d.notify.send.>"`, 1},
	{`"$KV.enrich.>"`, `"$KV.enrich-%d.>"`, 0},
}

// Divide returns accounts.conf with the lines for n partitions: each permission, export and import of a stream that `expediter apply
// --partitions` divides is repeated for the other partitions, and the limits of the accounts' streams are raised.
func Divide(accounts string, n int) string {
	var b strings.Builder
	account := ""
	more := map[string]int{"ENRICHER": 2, "NOTIFIER": 1}
	for line := range strings.Lines(accounts) {
		if m := accountLine.FindStringSubmatch(line); m != nil {
			account = m[1]
		}
		line = streamsLine.ReplaceAllStringFunc(line, func(setting string) string {
			streams, _ := strconv.Atoi(streamsLine.FindStringSubmatch(setting)[1]) //nolint:errcheck // digits
			return fmt.Sprintf("max_streams: %d", streams+more[account]*(n-1))
		})
		b.WriteString(line)
		if n < 2 || strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		writePartitions(&b, remark.ReplaceAllString(line, ""), n)
	}
	return b.String()
}

// writePartitions repeats a line that names a stream, for each of its partitions.
func writePartitions(b *strings.Builder, line string, n int) {
	for _, e := range entries {
		if strings.Contains(line, e.subject) {
			for p := e.from; p < n; p++ {
				b.WriteString(strings.ReplaceAll(line, e.subject, fmt.Sprintf(e.form, p)))
			}
			if e.from == 0 && strings.Contains(line, "service:") && strings.HasPrefix(e.form, `"ENRICH_JOBS`) { // of those that divide
				b.WriteString(strings.ReplaceAll(line, e.subject, `"ENRICH_JOBS-0.partitions-done.$barrier"`))
			}
			return
		}
	}
	if !divided.MatchString(line) || strings.Contains(line, "notify.plan") {
		return
	}
	if strings.Contains(line, `"$JS.API.STREAM.INFO.ENRICH_JOBS"`) { // any replica may answer reads of messages left in the first
		b.WriteString(strings.ReplaceAll(line, "STREAM.INFO", "DIRECT.GET"))
	}
	for p := 1; p < n; p++ {
		b.WriteString(divided.ReplaceAllString(line, "${1}-"+strconv.Itoa(p)))
	}
}
