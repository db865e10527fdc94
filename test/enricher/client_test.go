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
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// client is a user of the enricher as it should be written: it asks any instance, follows the events of its request,
// and comes back with the id of the last event when the stream breaks.
type client struct {
	http      *http.Client
	instances []string
	req       contracts.EnrichRequest
	retrying  chan struct{} // has an element for each retry under way, of all clients

	states  map[string]contracts.ProviderState
	lastID  string
	resumes int
}

// errRepeated is returned when a client that resumed gets a place again, which must not happen.
var errRepeated = errors.New("told again")

// run asks and listens until every place is answered.
func (c *client) run(ctx context.Context) error {
	release := func() {}
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		pending, err := c.ask(ctx)
		release()
		if err == nil && pending == 0 {
			return nil
		}
		if err == nil {
			err = c.follow(ctx)
		}
		if err == nil || errors.Is(err, errRepeated) {
			return err
		}
		if !backOff(ctx, wait) {
			return fmt.Errorf("%s: %w (last: %w)", c.req.RequestID, context.Cause(ctx), err)
		}
		release = c.retry()
	}
}

// retry waits for the turn of a call that is not the first of its client. Hundreds of clients that try again at their own
// pace keep a slow machine too busy to answer any of them.
func (c *client) retry() (release func()) {
	c.retrying <- struct{}{}
	return func() { <-c.retrying }
}

// The pauses of a client between two tries.
const (
	minWait = 50 * time.Millisecond
	maxWait = 4 * time.Second
)

func backOff(ctx context.Context, wait time.Duration) bool {
	select {
	case <-time.After(wait/2 + rand.N(wait)):
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *client) instance() string { return c.instances[rand.IntN(len(c.instances))] }

func (c *client) ask(ctx context.Context) (pending int, err error) {
	body, err := contracts.Encode(c.req)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.instance()+"/v1/enrich", bytes.NewReader(body))
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
		c.states[r.PlaceID], _ = r.State("wolt")
	}
	if answer.Skipped != "" {
		return answer.Pending, fmt.Errorf("ask: skipped: %s", answer.Skipped)
	}
	return answer.Pending, nil
}

var errUnknown = errors.New("the request is unknown: ask again")

// follow listens until every place is answered, over as many connections as it takes.
func (c *client) follow(ctx context.Context) error {
	c.lastID = ""
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		complete, err := c.listen(ctx)
		if complete || errors.Is(err, errUnknown) || errors.Is(err, errRepeated) {
			return err
		}
		if !backOff(ctx, wait) {
			return fmt.Errorf("follow: %w (last: %w)", context.Cause(ctx), err)
		}
		c.resumes++
	}
}

func (c *client) listen(ctx context.Context) (complete bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.instance()+"/v1/requests/"+c.req.RequestID+"/events", http.NoBody)
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
		return c.hear(resp.Body)
	case http.StatusNoContent:
		return true, nil
	case http.StatusNotFound:
		return false, errUnknown
	default:
		return false, fmt.Errorf("listen: %s", resp.Status)
	}
}

// hear reads events until the stream ends.
func (c *client) hear(r io.Reader) (complete bool, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	var id, event, data string
	for lines.Scan() {
		switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
		case "id":
			id = value
		case "event":
			event = value
		case "data":
			data = value
		case "":
			if event == "" {
				continue
			}
			if err := c.event(event, []byte(data)); err != nil {
				return false, err
			}
			c.lastID = id
			if event == "complete" {
				return true, nil
			}
			id, event, data = "", "", ""
		}
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
		if err := json.Unmarshal(data, &snapshot); err != nil {
			return err
		}
		for _, p := range snapshot.Places {
			c.states[p.PlaceID] = p.Providers["wolt"]
		}
	case contracts.TypeResultPatch:
		patch, err := contracts.Decode[contracts.ResultPatch](data)
		if err != nil {
			return err
		}
		if before := c.states[patch.PlaceID]; c.lastID != "" && before.Status != contracts.StatusPending {
			return fmt.Errorf("%w: %s of %s", errRepeated, patch.PlaceID, c.req.RequestID)
		}
		c.states[patch.PlaceID] = patch.Patch.Providers["wolt"]
	}
	return nil
}

func newHTTP(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 1000}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
