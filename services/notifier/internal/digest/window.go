package digest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/schedule"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// maxGroup is up to which length, in bytes, a template is part of an id.
const maxGroup = 128

// Group is what a row is counted, and collected, with: its category or, when it has none, its template.
func Group(n *contracts.Notification) string {
	if n.Category != "" {
		return n.Category
	}
	name := cmp.Or(n.Template, n.EventType)
	if len(name) > maxGroup {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:])
	}
	return "template/" + name // no category has a slash
}

// TemplateOf is the name of the template of the digest that a row goes into.
func TemplateOf(n *contracts.Notification) string {
	return cmp.Or(n.Digest.Template, cmp.Or(n.Category, n.Template, n.EventType)+rules.DigestSuffix)
}

// End is when the window of a digest ends that now is in. In a zone that this machine does not know, the clock is that of
// UTC, and an error that names it.
func End(now time.Time, d *contracts.Digest, zone string) (time.Time, error) {
	local, unknown := schedule.In(zone, now)
	if unknown != nil {
		local = now.UTC()
	}
	if d.Every > 0 {
		return schedule.NextEvery(local, time.Duration(d.Every)*time.Minute).UTC(), unknown
	}
	clocks := make([]time.Duration, len(d.At))
	for i, text := range d.At {
		var err error
		if clocks[i], err = schedule.Clock(text); err != nil {
			return time.Time{}, fmt.Errorf("digest: at: %w", err)
		}
	}
	return schedule.NextOf(local, clocks).UTC(), unknown
}

// idPrefix begins the event ids of digests.
const idPrefix = "digest:"

// IsID reports whether an event id looks like that of a digest.
func IsID(eventID string) bool { return strings.HasPrefix(eventID, idPrefix) }

// Row is the row of the digest that a row goes into when the window ends at a moment.
func Row(n *contracts.Notification, end time.Time) *contracts.Notification {
	return &contracts.Notification{
		Category: n.Category, Channel: n.Channel, Collected: true, CreatedAt: time.Now().UTC(), EventType: contracts.EventTypeDigest,
		EventID: idPrefix + Group(n) + ":" + end.UTC().Format(time.RFC3339), NotBefore: end.UTC(), Priority: contracts.UrgencyNormal,
		RecipientType: n.RecipientType, Template: clip(TemplateOf(n)), UserID: n.UserID,
	}
}

// clip keeps the name of a template that was not named in the rules within what a row takes.
func clip(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), contracts.MaxText)], "")
}
