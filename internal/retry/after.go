package retry

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// After reads the header of RFC 9110, section 10.2.3: seconds, or a date, which counts from the Date of the same answer. The result is
// zero when the header is missing or invalid, and otherwise from least to most.
func After(header http.Header, least, most time.Duration) time.Duration {
	value := strings.TrimSpace(header.Get("Retry-After"))
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(most/time.Second) { // err: more digits than a number here can have
			return most
		}
		return max(least, time.Duration(seconds)*time.Second)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(header.Get("Date")) // the server's clock may be wrong, but by the same time in both
	if err != nil {
		now = time.Now()
	}
	return min(max(at.Sub(now), least), most)
}
