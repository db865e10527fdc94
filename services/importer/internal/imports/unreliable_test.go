package imports

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/internal/remote"
	"github.com/expediter-io/expediter/services/importer/store/recipeservice"
)

// unreliable is a Recipe Service as the documents have it, on a bad day: one call in five fails, before or after it was
// done, and one in twenty never ends.
type unreliable struct {
	mu      sync.Mutex
	rng     *rand.Rand
	recipes map[string]string                 // by job
	status  map[string]contracts.ImportStatus // by job
	created int
}

func (u *unreliable) RoundTrip(req *http.Request) (*http.Response, error) {
	u.mu.Lock()
	luck := u.rng.Float64()
	u.mu.Unlock()
	switch {
	case luck < 0.05:
		<-req.Context().Done()
		return nil, req.Context().Err()
	case luck < 0.15:
		return answer(http.StatusInternalServerError, `{"error":"bad luck"}`), nil
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	done := u.do(req, body)
	if luck < 0.25 {
		return nil, errors.New("connection reset") // it was done all the same
	}
	return done, nil
}

func (u *unreliable) do(req *http.Request, body []byte) *http.Response {
	u.mu.Lock()
	defer u.mu.Unlock()
	id := path.Base(strings.TrimSuffix(req.URL.Path, "/status"))
	switch {
	case req.URL.Path == "/internal/recipes/from-import-job":
		var draft struct {
			JobID string `json:"job_id"`
		}
		if err := json.Unmarshal(body, &draft); err != nil {
			return answer(http.StatusBadRequest, "{}")
		}
		if u.recipes[draft.JobID] == "" {
			u.created++
			u.recipes[draft.JobID] = fmt.Sprintf("recipe-%d", u.created)
		}
		return answer(http.StatusOK, fmt.Sprintf(`{"recipe_id":%q}`, u.recipes[draft.JobID]))
	case req.Method == http.MethodGet:
		status, known := u.status[id]
		if !known {
			return answer(http.StatusNotFound, "{}")
		}
		data, _ := json.Marshal(status) //nolint:errchkjson // strings
		return answer(http.StatusOK, string(data))
	case strings.HasSuffix(req.URL.Path, "/status"):
		var status contracts.ImportStatus
		if err := json.Unmarshal(body, &status); err != nil {
			return answer(http.StatusBadRequest, "{}")
		}
		u.status[id] = status
	}
	return answer(http.StatusNoContent, "")
}

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

// TestABadDayOfTheRecipeService works many jobs of fewer videos at two instances, each job published twice. Whatever the
// service answers, each job ends, has one recipe at most, and the service knows how it ended. Time is fake.
func TestABadDayOfTheRecipeService(t *testing.T) {
	const jobs, videos = 500, 50
	seed := uint64(time.Now().UnixNano())
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		t.Logf("seed %d", seed)
		service := &unreliable{
			rng: rand.New(rand.NewPCG(seed, 0)), recipes: map[string]string{}, status: map[string]contracts.ImportStatus{},
		}
		keep := func(_ *instance, c *Config) {
			s := check.Must(recipeservice.New(remote.Config{BaseURL: "https://recipes.test", Token: "t", Transport: service}))(t)
			c.Store = s
		}
		a, b := newInstance(t, srv, keep), newInstance(t, srv, keep)
		a.work(t)
		b.work(t)
		for n := range jobs {
			req := job(fmt.Sprintf("j%d", n), fmt.Sprintf("v%d", n%videos))
			for m := range 2 {
				a.publish(t, "jobs.import.normal."+req.JobID, fmt.Sprintf("%s-%d", req.JobID, m), bodyOf(req))
			}
		}
		a.settledAfter(t, 2*time.Hour)
		failed := 0
		for n := range jobs {
			id := fmt.Sprintf("j%d", n)
			j := check.Must(a.Get(t.Context(), id))(t)
			switch {
			case j.Status == contracts.ImportReady && j.RecipeID == service.recipes[id]:
			case j.Status == contracts.ImportFailed && j.Code == contracts.CodeStoreFailed:
				failed++
			default:
				t.Errorf("%+v: the service has %q", j, service.recipes[id])
			}
			reported := service.status[id]
			check.That(t, reported.Status == j.Status, "%s is %s, and the service was told %s", id, j.Status, reported.Status)
		}
		check.Same(t, "fetches of videos", a.far.total()+b.far.total(), videos)
		t.Logf("%d of %d failed, %d recipes", failed, jobs, service.created)
	})
}

// A status update that comes late does not undo the end of a job.
func TestTheEndIsTheLastThatTheStoreIsTold(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t))
	i.work(t)
	for n := range 20 {
		i.submit(t, job(fmt.Sprintf("j%d", n), "v"))
	}
	for n := range 20 {
		i.ready(t, fmt.Sprintf("j%d", n))
	}
	i.settled(t)
	for id := range 20 {
		reported := i.keeper.reportedTo(fmt.Sprintf("j%d", id))
		check.That(t, reported[len(reported)-1] == contracts.ImportReady, "%v", reported)
	}
}

// TestAnEndThatIsOvertakenDoesNotStay has one attempt tell that a job has failed, while another makes its recipe and tells
// that: however the first ends, the last status that the store gets is the right one.
func TestAnEndThatIsOvertakenDoesNotStay(t *testing.T) {
	t.Parallel()
	for _, arrives := range []error{nil, errFar} {
		t.Run(fmt.Sprint(arrives), func(t *testing.T) {
			t.Parallel()
			i := newInstance(t, natstest.Server(t))
			end := func(status contracts.ImportState) *record {
				r, err := i.update(t.Context(), "j1", func(r *record) (*record, error) {
					if r == nil {
						fresh := newRecord(job("j1", "v1"), "v1", time.Now())
						r = &fresh
					}
					r.enter(status, 1)
					return r, nil
				})
				check.Is(t, err, nil)
				return &r
			}
			first := true
			i.keeper.setStatus = func(s contracts.ImportStatus) error {
				if s.Status != contracts.ImportFailed {
					return nil
				}
				if first {
					first = false
					refused, err := i.report(t.Context(), end(contracts.ImportReady))
					check.That(t, refused == nil && err == nil, "%v, %v", refused, err)
				}
				i.keeper.mu.Lock()
				defer i.keeper.mu.Unlock()
				i.keeper.reported["j1"] = append(i.keeper.reported["j1"], s.Status)
				return arrives
			}
			refused, err := i.report(t.Context(), end(contracts.ImportFailed))
			check.That(t, refused == nil && errors.Is(err, arrives), "%v, %v; want %v", refused, err, arrives)
			now, _, err := i.read(t.Context(), "j1")
			check.That(t, err == nil && now.Status == contracts.ImportReady && now.Reported == (arrives == nil), "%+v, %v", now, err)
			refused, err = i.report(t.Context(), &now)
			check.That(t, refused == nil && err == nil, "%v, %v", refused, err)
			reported := i.keeper.reportedTo("j1")
			check.That(t, reported[len(reported)-1] == contracts.ImportReady, "the store was told %v", reported)
		})
	}
}
