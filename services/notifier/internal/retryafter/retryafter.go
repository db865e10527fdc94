// Package retryafter reads the wait that a provider asks for.
package retryafter

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Parse reads the header of RFC 9110, section 10.2.3: seconds, or a date. It is zero when the provider did not say, or said
// it in another way, and at most most.
func Parse(header http.Header, most time.Duration) time.Duration {
	value := strings.TrimSpace(header.Get("Retry-After"))
	wait := time.Duration(0)
	if isNumber(value) {
		wait = most // also when there are more digits than a number here can have
		if seconds, err := strconv.Atoi(value); err == nil && seconds < int(most/time.Second) {
			wait = time.Duration(seconds) * time.Second
		}
	} else if at, err := http.ParseTime(value); err == nil {
		wait = time.Until(at)
	}
	return min(max(wait, 0), most)
}

func isNumber(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}
