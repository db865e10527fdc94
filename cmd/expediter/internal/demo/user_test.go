package demo

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// A machine that is overloaded answers 503, or that it did not record the request. The demo asks again.
func TestUserAsksAgainWhereTheServiceIsBusy(t *testing.T) {
	t.Parallel()
	type answer struct {
		status int
		body   string
	}
	busy := answer{http.StatusServiceUnavailable, `{"detail":"the store does not answer"}`}
	place := `"results":[{"id":"a","placeId":"a","name":"Anna"}]`
	recorded := answer{http.StatusOK, `{"requestId":"r",` + place + `,"pending":1}`}
	skipped := answer{http.StatusOK, `{"requestId":"r",` + place + `,"pending":1,"skipped":"store_down"}`}
	complete := answer{http.StatusOK, "event: complete\ndata: {}\n\n"}
	for _, tc := range []struct {
		name    string
		answers []answer
		want    string // of the error
	}{
		{"known", []answer{recorded, complete}, ""},
		{"busy when asked", []answer{busy, recorded, complete}, ""},
		{"not recorded", []answer{skipped, recorded, complete}, ""},
		{"busy when listened to", []answer{recorded, busy, recorded, complete}, ""},
		{"gone", []answer{recorded, {http.StatusNotFound, ""}}, "404 Not Found"},
		{"busy for ever", slices.Repeat([]answer{busy}, maxAsks), "30 times: the service is busy"},
		{"broken", []answer{{http.StatusInternalServerError, "no"}}, "500 Internal Server Error: no"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				left := slices.Clone(tc.answers)
				client := &http.Client{Transport: roundTrip(func(*http.Request) *http.Response {
					next := left[0]
					left = left[1:]
					w := httptest.ResponseRecorder{Code: next.status, Body: bytes.NewBufferString(next.body)}
					return w.Result()
				})}
				req := contracts.EnrichRequest{RequestID: "r", Results: []contracts.Restaurant{{PlaceID: "a", Name: "Anna"}}}
				u := &user{client: client, url: "http://one", events: "http://other", req: req}
				err := u.follow(t.Context())
				if got := fmt.Sprint(err); tc.want == "" && err != nil || !strings.Contains(got, tc.want) {
					t.Errorf("got error %q, want %q", got, tc.want)
				}
				if len(left) > 0 {
					t.Errorf("%d answers were not asked for", len(left))
				}
			})
		})
	}
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req), nil }
