package wolttest

import (
	"net/http"
	"strconv"
	"strings"
)

// Fault is one way in which the API has been seen to fail, or may.
type Fault struct {
	// Name is a word for it, in test names and reports.
	Name string

	serve func(x exchange)
}

// exchange is a call to be answered badly. Body is what should have been the answer.
type exchange struct {
	body []byte
	quit <-chan struct{}
	r    *http.Request
	w    http.ResponseWriter
}

// Faults returns every fault once: a bad year.
func Faults() []Fault {
	return []Fault{
		RateLimited("7"),
		RateLimited(""),
		Status(430),
		Status(http.StatusGone),
		Status(http.StatusForbidden),
		Status(http.StatusNotFound),
		Status(http.StatusInternalServerError),
		Status(http.StatusServiceUnavailable),
		Status(http.StatusNoContent),
		Redirect("http://elsewhere.invalid/"),
		Empty(),
		NoContent(),
		HTML(),
		Truncated(),
		BrokenOff(),
		Disconnect(),
		Hang(),
		HangInBody(),
		Oversized(16 << 20),
		WithoutSections(),
		WithoutItems(),
		WithoutVenues(),
	}
}

// BrokenOff is an answer that ends before its Content-Length.
func BrokenOff() Fault {
	return Fault{"broken off", func(x exchange) {
		x.w.Header().Set("Content-Length", strconv.Itoa(len(x.body)))
		_, _ = x.w.Write(x.body[:len(x.body)/2])
		_ = http.NewResponseController(x.w).Flush()

		panic(http.ErrAbortHandler)
	}}
}

// Disconnect is a connection closed without an answer.
func Disconnect() Fault {
	return Fault{"disconnect", func(exchange) { panic(http.ErrAbortHandler) }}
}

// Empty is a 200 with nothing in it, as it is given to clients that are not trusted.
func Empty() Fault {
	return Fault{"empty 200", func(x exchange) { x.w.WriteHeader(http.StatusOK) }}
}

// Hang is a call that is never answered.
func Hang() Fault {
	return Fault{"hang", func(x exchange) { x.hang() }}
}

// HangInBody is an answer that stops half way.
func HangInBody() Fault {
	return Fault{"hang in body", func(x exchange) {
		_, _ = x.w.Write(x.body[:len(x.body)/2])
		_ = http.NewResponseController(x.w).Flush()

		x.hang()
	}}
}

// HTML is a page for people, with status 200.
func HTML() Fault {
	return Fault{"html", func(x exchange) {
		x.w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = x.w.Write([]byte("<!DOCTYPE html>\n<html><head><title>Just a moment...</title></head><body></body></html>\n"))
	}}
}

// NoContent is a 200 whose only section says that there is nothing here.
func NoContent() Fault {
	return body("no-content", `{"created":{"$date":1745777425702},"expires_in_seconds":900,"name":"search","sections":[`+
		`{"description":"We're working hard to expand","link":{"target":"","type":"no-link"},`+
		`"name":"no-content","template":"no-content","title":"There aren't any restaurants near you yet"}]}`)
}

// Oversized is the right answer followed by n bytes of white space.
func Oversized(n int) Fault {
	return Fault{"oversized", func(x exchange) {
		writeJSON(x.w, x.body)

		blank := []byte(strings.Repeat(" ", 32<<10))
		for written := 0; written < n; written += len(blank) {
			if _, err := x.w.Write(blank); err != nil {
				return
			}
		}
	}}
}

// RateLimited is a 429 with that Retry-After, or with none if it is empty.
func RateLimited(retryAfter string) Fault {
	return Fault{strings.TrimSpace("429 " + retryAfter), func(x exchange) {
		if retryAfter != "" {
			x.w.Header().Set("Retry-After", retryAfter)
		}

		x.w.WriteHeader(http.StatusTooManyRequests)
	}}
}

// Redirect sends the client elsewhere.
func Redirect(to string) Fault {
	return Fault{"redirect", func(x exchange) { http.Redirect(x.w, x.r, to, http.StatusTemporaryRedirect) }}
}

// Status is an answer with that status and an error in words.
func Status(status int) Fault {
	return Fault{strconv.Itoa(status), func(x exchange) {
		x.w.Header().Set("Content-Type", "application/json")
		x.w.WriteHeader(status)
		_, _ = x.w.Write([]byte(`{"error_code":` + strconv.Itoa(status) + `,"msg":"no"}`))
	}}
}

// StatusRetryAfter is an answer with that status and that Retry-After.
func StatusRetryAfter(status int, retryAfter string) Fault {
	return Fault{strconv.Itoa(status) + " " + retryAfter, func(x exchange) {
		x.w.Header().Set("Retry-After", retryAfter)
		x.w.WriteHeader(status)
	}}
}

// Truncated is a whole answer of half the JSON.
func Truncated() Fault {
	return Fault{"truncated", func(x exchange) { writeJSON(x.w, x.body[:len(x.body)/2]) }}
}

// Body is a 200 with any body.
func Body(content string) Fault { return body("body", content) }

// WithoutItems is an answer whose list of venues is not there.
func WithoutItems() Fault {
	return body("without items", `{"sections":[{"name":"venues","template":"venue-vertical-list","title":"Venues"}]}`)
}

// WithoutSections is an answer of no sections.
func WithoutSections() Fault { return body("without sections", `{"name":"search","sections":[]}`) }

// WithoutVenues is an answer whose items are not about venues.
func WithoutVenues() Fault {
	return body("without venues", `{"sections":[{"name":"venues","template":"venue-vertical-list","items":[`+
		`{"template":"venue-small","title":"Pizza House","track_id":"venue-1"}]}]}`)
}

func body(name, content string) Fault {
	return Fault{name, func(x exchange) { writeJSON(x.w, []byte(content)) }}
}

func (x exchange) hang() {
	select {
	case <-x.r.Context().Done():
	case <-x.quit:
	}
}
