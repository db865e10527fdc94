package measure

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func split(text string) []words.Word { return words.Split(words.Plain(text)) }

// rested returns the words that a reader left.
func rested(ws []words.Word, used int) string { return textOf(ws[used:]) }

func TestReadDuration(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text     string
		min, max int
		rest     string
	}{
		{"5 minutes", 300, 300, ""},
		{"5 min.", 300, 300, "."},
		{"30 seconds", 30, 30, ""},
		{"30-45 seconds", 30, 45, ""},
		{"thirty to forty five seconds", 30, 45, ""},
		{"five minutes on each side", 300, 300, "on each side"},
		{"a minute", 60, 60, ""},
		{"an hour", 3600, 3600, ""},
		{"half an hour", 1800, 1800, ""},
		{"a half hour", 1800, 1800, ""},
		{"a half an hour", 1800, 1800, ""},
		{"an hour and a half", 5400, 5400, ""},
		{"one and a half hours", 5400, 5400, ""},
		{"two and a half minutes", 150, 150, ""},
		{"two minutes and a half", 150, 150, ""},
		{"1 hour 30 minutes", 5400, 5400, ""},
		{"1 hour and 20 minutes", 4800, 4800, ""},
		{"1 h 30 min", 5400, 5400, ""},
		{"1h30min", 5400, 5400, ""},
		{"2 hrs", 7200, 7200, ""},
		{"a quarter of an hour", 900, 900, ""},
		{"three quarters of an hour", 2700, 2700, ""},
		{"an hour and a quarter", 4500, 4500, ""},
		{"2 or 3 hours", 7200, 10800, ""},
		{"between 2 and 3 hours", 7200, 10800, ""},
		{"three four minutes", 180, 240, ""},
		{"one minute to two minutes", 60, 120, ""},
		{"45 seconds to 1 minute", 45, 60, ""},
		{"a couple of minutes", 120, 120, ""},
		{"a couple minutes", 120, 120, ""},
		{"a few minutes", 0, 0, ""},
		{"several hours", 0, 0, ""},
		{"overnight please", 0, 0, "please"},
		{"two days", 172800, 172800, ""},
		{"10 more minutes", 600, 600, ""},
		{"a full minute", 60, 60, ""},
		{"20-minute rest", 1200, 1200, "rest"},
		{"10 Minuten", 600, 600, ""},
		{"über Nacht", 0, 0, ""},
		{"20 minutos", 1200, 1200, ""},
		{"5 минут", 300, 300, ""},
		{"10 דקות", 600, 600, ""},
		{"1 minute to 2 minutes to 3 minutes", 60, 120, "to 3 minutes"}, // a chain is not read to its end
	} {
		ws := split(c.text)
		d, used := ReadDuration(ws, 0)
		if used == 0 || d.Min != c.min || d.Max != c.max || rested(ws, used) != c.rest {
			t.Errorf("%q is %d to %d s before %q, want %d to %d before %q", c.text, d.Min, d.Max, rested(ws, used), c.min, c.max, c.rest)
		}
	}
}

func TestReadDurationFindsNone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "5", "5 cups", "minutes", "a second", "one s", "the hour", "500000 hours"} {
		d, used := ReadDuration(split(text), 0)
		check.That(t, used <= 0 || text == "a second", "%q is %+v", text, d)
	}
}

func TestReadUntil(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"until golden brown", "golden brown"},
		{"until golden and crispy", "golden and crispy"},
		{"until it is soft, about 5 minutes", "it is soft"},
		{"until soft about 5 minutes", "soft"},
		{"till the water evaporates and then add salt", "the water evaporates"},
		{"until", ""},
		{"until.", ""},
		{"golden brown", ""},
	} {
		got, _ := ReadUntil(split(c.text), 0)
		check.That(t, got == c.want, "%q is %q, want %q", c.text, got, c.want)
	}
}
