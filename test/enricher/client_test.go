package enricher_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// clients are users of the same enrichers.
type clients struct {
	http     *http.Client
	log      *crash.Log
	retrying chan struct{} // has an element for each retry under way

	mu       sync.Mutex
	urls     map[string]string // of the instances
	recorded map[string]bool   // the places that a client has an answer about
}

func newClients(t *testing.T, log *crash.Log) *clients {
	t.Helper()
	const retriesAtOnce = 8
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	t.Cleanup(transport.CloseIdleConnections)
	return &clients{
		http: &http.Client{Transport: transport}, log: log, retrying: make(chan struct{}, retriesAtOnce),
		recorded: map[string]bool{}, urls: map[string]string{},
	}
}

// at sets the URL of the instance with a key.
func (c *clients) at(key, url string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.urls[key] = url
}

// anyURL returns the URL of any instance.
func (c *clients) anyURL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	urls := make([]string, 0, len(c.urls))
	for _, url := range c.urls {
		urls = append(urls, url)
	}
	return urls[rand.IntN(len(urls))]
}

// record logs the first answer about a place as the record of its lookup: whoever starts to look it up from now on repeats it.
func (c *clients) record(placeID string, state contracts.ProviderState) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if finder(state) == "" || c.recorded[placeID] {
		return nil
	}
	c.recorded[placeID] = true
	log, err := crash.OpenLog(c.log.Path(), finder(state))
	if err != nil {
		return err
	}
	return errors.Join(log.Write(crash.Recorded, placeID), log.Close())
}

// retry waits for the turn of a call that is not the first of its client. Hundreds of clients that try again at their own
// pace keep a slow machine too busy to answer any of them.
func (c *clients) retry() (release func()) {
	c.retrying <- struct{}{}
	return func() { <-c.retrying }
}

// The pauses of a client between two tries, and the time after which it gives up a connection: its instance may be frozen.
const (
	minWait = 50 * time.Millisecond
	maxWait = 4 * time.Second
	silence = 20 * time.Second
)

// client is a user of the enricher as it should be written: it asks any instance, follows the events of its request,
// and comes back with the id of the last event when the stream breaks.
type client struct {
	*clients

	req     contracts.EnrichRequest
	states  map[string]contracts.ProviderState
	lastID  string
	resumes int
}

var (
	// errRepeated is returned when a client that resumed gets a place again, which must not happen.
	errRepeated = errors.New("sent again")
	errUnknown  = errors.New("the request is unknown: ask again")
)

// run asks and listens until every place is answered.
func (c *client) run(ctx context.Context) error {
	release := func() {}
	for n := 0; ; n++ {
		pending, err := c.ask(ctx)
		release()
		if err == nil && pending > 0 {
			err = c.follow(ctx)
		}
		if err == nil || errors.Is(err, errRepeated) {
			return err
		}
		if !retry.Backoff(ctx, n, minWait, maxWait) {
			return fmt.Errorf("%s: %w (last: %w)", c.req.RequestID, context.Cause(ctx), err)
		}
		release = c.retry()
	}
}

func (c *client) ask(ctx context.Context) (pending int, err error) {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	body, err := contracts.Encode(c.req)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.anyURL()+"/v1/enrich", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("ask: %s %s: %w", resp.Status, data, err)
	}
	answer, err := contracts.Decode[contracts.EnrichResponse](data)
	if err != nil {
		return 0, err
	}
	c.states = map[string]contracts.ProviderState{}
	for _, r := range answer.Results {
		state, _ := r.State(contracts.ProviderWolt)
		err = errors.Join(err, c.take(r.PlaceID, state))
	}
	if answer.Skipped != "" {
		err = errors.Join(err, fmt.Errorf("ask: skipped: %s", answer.Skipped))
	}
	return answer.Pending, err
}

// take takes over the state of a place.
func (c *client) take(placeID string, state contracts.ProviderState) error {
	c.states[placeID] = state
	return c.record(placeID, state)
}

// unanswered returns the places without an answer.
func (c *client) unanswered() (places []string) {
	for _, r := range c.req.Results {
		if finder(c.states[r.PlaceID]) == "" {
			places = append(places, c.req.RequestID+" "+r.PlaceID)
		}
	}
	return slices.Clip(places)
}

// follow listens until every place is answered, over as many connections as it takes.
func (c *client) follow(ctx context.Context) error {
	c.lastID = ""
	for n := 0; ; n++ {
		complete, err := c.listen(ctx)
		if complete || errors.Is(err, errUnknown) || errors.Is(err, errRepeated) {
			return err
		}
		if !retry.Backoff(ctx, n, minWait, maxWait) {
			return fmt.Errorf("follow: %w (last: %w)", context.Cause(ctx), err)
		}
		c.resumes++
	}
}

func (c *client) listen(ctx context.Context) (complete bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	url := c.anyURL() + "/v1/requests/" + c.req.RequestID + "/events"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false, err
	}
	if c.lastID != "" {
		req.Header.Set("Last-Event-ID", c.lastID)
	}
	release := c.retry()
	resp, err := c.http.Do(req)
	release()
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return c.read(resp.Body)
	case http.StatusNoContent:
		return true, nil
	case http.StatusNotFound:
		return false, errUnknown
	default:
		return false, fmt.Errorf("listen: %s", resp.Status)
	}
}

// read reads events until the stream ends.
func (c *client) read(r io.Reader) (complete bool, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	event := map[string]string{}
	for lines.Scan() {
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		if len(field) > 0 {
			event[string(field)] = string(value)
			continue
		}
		if event["event"] != "" { // else it is a comment
			if err := c.event(event["event"], []byte(event["data"])); err != nil {
				return false, err
			}
			c.lastID = event["id"]
		}
		if event["event"] == "complete" {
			return true, nil
		}
		clear(event)
	}
	return false, errors.Join(io.ErrUnexpectedEOF, lines.Err())
}

func (c *client) event(event string, data []byte) error {
	switch event {
	case "snapshot":
		var snapshot struct {
			Places []struct {
				contracts.Patch

				PlaceID string `json:"placeId"`
			} `json:"places"`
		}
		err := json.Unmarshal(data, &snapshot)
		for _, p := range snapshot.Places {
			err = errors.Join(err, c.take(p.PlaceID, p.Providers[contracts.ProviderWolt]))
		}
		return err
	case contracts.TypeResultPatch:
		patch, err := contracts.Decode[contracts.ResultPatch](data)
		if err != nil {
			return err
		}
		if before := c.states[patch.PlaceID]; c.lastID != "" && before.Status != contracts.StatusPending {
			return fmt.Errorf("%w: %s of %s", errRepeated, patch.PlaceID, c.req.RequestID)
		}
		return c.take(patch.PlaceID, patch.Patch.Providers[contracts.ProviderWolt])
	}
	return nil
}
