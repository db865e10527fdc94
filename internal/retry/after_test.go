package retry_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC() // midnight of 2000-01-01
		for value, want := range map[string]time.Duration{
			"": 0, "0": 0, "30": 30 * time.Second, " 7 ": 7 * time.Second, "-1": 0, "1.5": 0, "soon": 0,
			"999999999": time.Hour, "99999999999999999999": time.Hour,
			now.Add(time.Minute).Format(http.TimeFormat): time.Minute, now.Add(-time.Minute).Format(http.TimeFormat): 0,
			"Fri, 20 Nov 2099 12:01:00 GMT": time.Hour,
		} {
			check.Equal(t, retry.After(http.Header{"Retry-After": {value}}, 0, time.Hour), want, value)
		}
		at := "Fri, 20 Nov 2026 12:01:00 GMT"
		for date, want := range map[string]time.Duration{ // the server's clock
			"Fri, 20 Nov 2026 12:00:00 GMT": time.Minute, "Fri, 20 Nov 2026 12:02:00 GMT": 0, "Fri, 20 Nov 2020 12:00:00 GMT": time.Hour,
			"now": time.Hour, "": time.Hour,
		} {
			check.Equal(t, retry.After(http.Header{"Retry-After": {at}, "Date": {date}}, 0, time.Hour), want, "at "+date)
		}
	})
}
