package importer_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	importer "github.com/expediter-io/expediter/services/importer"
)

var errSeen = errors.New("seen")

// A hostile owner imports what fails at a site, in every way that he can choose. The imports of another owner from it wait for nothing.
func TestASiteIsHeldUpByNoOwner(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); name {
		case "out":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "day":
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusTooManyRequests)
		case "broken":
			w.Header().Set("Content-Length", "100")
		case "away":
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		default:
			w.Header().Set("Content-Type", "text/vtt")
			_, _ = w.Write([]byte(captions))
		}
	}))
	defer site.Close()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, site.URL+"/out", http.StatusFound) }))
	defer other.Close()
	i, _ := startHere(t)
	jobs := 0
	submit := func(owner, url string) string {
		jobs++
		id := fmt.Sprint("job-", jobs)
		_, _, err := i.Submit(t.Context(), importer.Submission{ImportJob: contracts.ImportJob{JobID: id, OwnerID: owner, URL: url}})
		check.OK(t, err)
		return id
	}
	for _, bad := range []string{
		"http://127.0.0.1:1/", site.URL + "/out", strings.Replace(site.URL, "http:", "HTTP:", 1) + "/out/", other.URL,
		strings.Replace(site.URL, "127.0.0.1", "[::ffff:127.0.0.1]", 1) + "/out/x", site.URL + "/broken", site.URL + "/away", site.URL + "/day",
	} {
		for n := range 2 {
			id := submit("mallory", fmt.Sprint(bad, "?", n))
			check.Is(t, i.Follow(t.Context(), id, func(j importer.Job) error {
				if j.WaitingFor != "" || j.Status.Final() {
					check.That(t, j.WaitingFor != "", "%s: %+v", bad, j)
					return errSeen
				}
				return nil
			}), errSeen)
		}
		id := submit("ada", fmt.Sprint(site.URL, "/good/", jobs))
		check.OK(t, i.Follow(t.Context(), id, func(j importer.Job) error {
			check.Require(t, j.WaitingFor == "", "after %s: %+v", bad, j)
			return nil
		}))
	}
}
