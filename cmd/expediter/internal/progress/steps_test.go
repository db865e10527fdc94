package progress

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The bar says what is done, is drawn anew while nothing happens, and goes away.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := NewSteps(Config{Visible: true, Writer: &out})
		s.Set("reading the source", 0.25)
		synctest.Wait()
		check.Says(t, out.String(), "reading the source", "25%")
		out.Reset()
		<-time.After(3*tick + tick/2)
		synctest.Wait()
		n := strings.Count(out.String(), "reading the source")
		check.That(t, n == 3, "it draws %d times in three seconds: %q", n, out.String())
		s.Set(strings.Repeat("x", 100), 2)
		text := out.String()
		check.That(t, !strings.Contains(text, strings.Repeat("x", maxText)) && strings.Contains(text, "99%"), "it draws %q", text)
		s.Close()
		if text := out.String(); !strings.HasSuffix(text, "\r") {
			t.Errorf("it leaves %q", text[max(0, len(text)-40):])
		}
	})
}

func TestStepsThatNobodySees(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := NewSteps(Config{Writer: &out})
	s.Set("x", 1)
	s.Close()
	var none *Steps
	none.Set("x", 1)
	none.Close()
	check.That(t, out.Len() <= 0, "%q", out.String())
}
