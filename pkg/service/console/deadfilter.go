package console

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// targetPrefix begins the targets of replays in the audit; a query of filterQuery follows.
const targetPrefix = "dead letters ?"

const fingerprintPrefix = "sha256:"

// deadNames are the names of the parts of a selection of letters, in addresses and as flags of expediter dead.
var deadNames = []string{"account", "job-stream", "kind", "reason", "signature", "subject", "worker", "since", "until"}

// filterQuery returns the query of a filter in an address. The names are those of the flags of expediter dead.
func filterQuery(f deadletter.Filter) url.Values {
	q := url.Values{}
	for _, of := range [][2]string{
		{"job-stream", f.Stream},
		{"kind", string(f.Kind)},
		{"reason", string(f.Reason)},
		{"signature", f.Signature},
		{"subject", f.Subject},
		{"since", timeText(f.Since)},
		{"until", timeText(f.Until)},
		{"worker", f.Worker},
	} {
		if of[1] != "" {
			q.Set(of[0], of[1])
		}
	}
	return q
}

// timeText returns a time as in an address, "" for none.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// parseFilter reads a filter from an address or a form. now is the server's time.
func parseFilter(q url.Values, now time.Time) (deadletter.Filter, error) {
	f := deadletter.Filter{
		Kind: deadletter.Kind(q.Get("kind")), Reason: worker.Reason(q.Get("reason")), Signature: q.Get("signature"), Stream: q.Get("job-stream"),
		Subject: q.Get("subject"), Worker: q.Get("worker"),
	}
	for name, at := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		text := q.Get(name)
		if text == "" {
			continue
		}
		var err error
		if *at, err = deadletter.ParseTime(now, text); err != nil {
			return f, fail(http.StatusBadRequest, "%s is %v.", name, err)
		}
	}
	if err := f.Validate(); err != nil {
		return f, fail(http.StatusBadRequest, "These letters cannot be selected: %v.", err)
	}
	return f, nil
}

// parseTarget is the inverse of auditTarget, except that fingerprints of texts stay fingerprints.
func parseTarget(target string) (p replay, ok bool) {
	text, ok := strings.CutPrefix(target, targetPrefix)
	if !ok {
		return p, false
	}
	q, err := url.ParseQuery(text)
	if err != nil {
		return p, false
	}
	p.Account = q.Get("account")
	p.Filter, err = parseFilter(q, time.Time{})
	return p, err == nil
}

// fingerprint returns a substitute for a text that a record may not have.
func fingerprint(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fingerprintPrefix + hex.EncodeToString(sum[:8])
}

// matches reports whether want is the text, or its fingerprint.
func matches(want, text string) bool { return want == text || want == fingerprint(text) }

// deadCommand returns the command line of expediter dead that does the same.
func deadCommand(verb, account string, f deadletter.Filter, more ...string) string {
	args := []string{"expediter", "dead", verb}
	q := filterQuery(f)
	q.Set("account", account)
	for _, name := range deadNames {
		if q.Get(name) != "" {
			args = append(args, "--"+name, q.Get(name))
		}
	}
	for _, seq := range f.Sequences {
		args = append(args, strconv.FormatUint(seq, 10))
	}
	if (verb == actionReplay || verb == actionDiscard) && len(filterQuery(f))+len(f.Sequences) == 0 {
		args = append(args, "--all")
	}
	return shellLine(append(args, more...)...)
}
