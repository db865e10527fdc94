package demo

import (
	"strings"
	"testing"
)

// Every promise of the notifier that is broken is named.
func TestJudgeNotifier(t *testing.T) {
	t.Parallel()
	good := NotifierReport{Told: 50, Events: 25, DuplicatesDropped: 25, Refused: 1, Rows: 10, Sent: 9, Suppressed: 1, Letters: 4}
	for want, spoil := range map[string]func(*NotifierReport){
		"": func(*NotifierReport) {},
		"an event that is published twice is one event: 50 published, 26 events": func(r *NotifierReport) { r.Events = 26 },
		"another event under the same id is refused: 0 refused":                  func(r *NotifierReport) { r.Refused = 0 },
		"every row reaches its user: 9 of 10 rows sent or suppressed, 1 lost":    func(r *NotifierReport) { r.Lost, r.Sent = 1, 8 },
		"no notification is sent twice: 1 of 4 letters came once more":           func(r *NotifierReport) { r.DuplicateSends = 1 },
		"nothing is given up: 0 rows failed, 1 dead letters":                     func(r *NotifierReport) { r.DeadLetters = 1 },
	} {
		d := flawless()
		d.report.Notifier = good
		spoil(&d.report.Notifier)
		d.judge()
		if got := strings.Join(d.report.Broken, "; "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
