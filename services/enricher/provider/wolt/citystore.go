package wolt

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/expediter-io/expediter/services/enricher/provider"
)

// refreshPause is how long a list that could not be refreshed is used before the
// next attempt.
const refreshPause = time.Minute

// cityStore keeps the list of cities. One caller at a time fetches it; the others
// wait for that, each no longer than its own context.
type cityStore struct {
	fetching chan struct{} // holds a token while a search fetches the cities

	mu      sync.Mutex
	fresh   time.Time // until when list needs no refresh
	list    *cityList // nil until first fetched
	failure error     // of the last attempt, nil when it succeeded
	tried   time.Time // when the last attempt ended
}

func newCityStore() *cityStore {
	return &cityStore{fetching: make(chan struct{}, 1)}
}

// knownCities returns the list of cities, fetching it when there is none or it has
// grown old: one call in citiesTTL. A list that cannot be refreshed is used on.
func (c *Client) knownCities(ctx context.Context) (*cityList, error) {
	store := c.cities
	if list, ok := store.current(); ok {
		return list, nil
	}

	asked := time.Now()

	select {
	case store.fetching <- struct{}{}:
		defer func() { <-store.fetching }()
	case <-ctx.Done():
		return nil, c.ended(ctx)
	}

	if list, ok := store.current(); ok {
		return list, nil
	}

	if err := store.failedSince(asked); err != nil {
		return nil, err
	}

	list, err := c.fetchCities(ctx)

	if ctx.Err() != nil && err != nil {
		return nil, err // given up by its caller, which is no failure for the others
	}
	return store.settle(c, list, err)
}

func (c *Client) fetchCities(ctx context.Context) (*cityList, error) {
	var list *cityList

	r := request{language: languages[0], method: http.MethodGet, path: "/v1/cities"}
	err := c.call(ctx, r, func(body []byte) error {
		decoded, err := decodeCities(body, maxCities)
		if err != nil {
			return c.fail(provider.KindMalformed, "the list of cities cannot be read", err)
		}

		list = decoded
		return nil
	})
	return list, err
}

func (s *cityStore) current() (*cityList, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list, s.list != nil && time.Now().Before(s.fresh)
}

// failedSince returns the error of an attempt that ended after asked, which is also the error of every caller that waited
// for it. It is nil when that attempt was only given up.
func (s *cityStore) failedSince(asked time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.failure == nil || !s.tried.After(asked) {
		return nil
	}
	return s.failure
}

// settle keeps the outcome of a fetch and returns what the caller gets.
func (s *cityStore) settle(c *Client, list *cityList, err error) (*cityList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	now := time.Now()
	s.failure, s.tried = err, now

	switch {
	case err == nil:
		s.list, s.fresh = list, now.Add(citiesTTL)
		return list, nil
	case s.list != nil:
		s.fresh = now.Add(refreshPause)
		c.config.Logger.Warn("list of cities could not be refreshed, the old one is used",
			slog.String("provider", Name), slog.Any("error", err))
		return s.list, nil
	default:
		return nil, err
	}
}
