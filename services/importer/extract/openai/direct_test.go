package openai_test

import (
	"io"
	"net/http"
	"strings"
)

// direct answers in place of the network.
type direct func(*http.Request) string

// RoundTrip implements http.RoundTripper.
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		Body: io.NopCloser(strings.NewReader(d(r))), Header: http.Header{}, Request: r, StatusCode: http.StatusOK,
	}, nil
}
