package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// devices are the devices on which one customer gets messages.
var devices = []string{"phone", "laptop"}

// customer returns the id of the n-th customer. The first gets messages on several devices.
func customer(n int) string { return fmt.Sprintf("CUSTOMER-%d", n) }

// enlist adds people over HTTP: each kind has one recipient that wants only critical messages, and one customer has devices.
func (d *demo) enlist(ctx context.Context) error {
	var lines bytes.Buffer
	for _, kind := range []contracts.RecipientType{
		"RESTAURANT_USER", "CUSTOMER", "AGENCY_USER", "ADMIN",
	} {
		for n := range people {
			e := recipient.Entry{Memberships: []recipient.Member{pipeline.Restaurant}, Recipient: contracts.Recipient{
				RecipientType: kind, UserID: fmt.Sprintf("%s-%d", kind, n),
			}}
			if n == 0 {
				e.OptOut = map[string][]string{contracts.Anything: {d.mailbox.Name()}}
			}
			if err := json.NewEncoder(&lines).Encode(e); err != nil {
				return fmt.Errorf("encode a recipient: %w", err)
			}
		}
	}
	notifier := d.service("notifier", d.pipeline.Notifiers[0].URL())
	var answer []byte
	_, err := notifier.Do(ctx, http.MethodPost, "/v1/users", nil, lines.Bytes(), &answer)
	if stored := bytes.Count(answer, []byte(`"status":"stored"`)); err == nil && stored != 4*people {
		err = fmt.Errorf("%d of %d people were stored: %s", stored, 4*people, answer)
	}
	return errors.Join(err, d.addDevices(ctx, notifier))
}

// addDevices gives a customer several addresses on one channel.
func (d *demo) addDevices(ctx context.Context, notifier *api.Client) error {
	endpoints := map[string]contracts.Endpoint{}
	for _, name := range devices {
		endpoints[name] = contracts.Endpoint{Address: name}
	}
	body, err := json.Marshal(map[string]any{"endpoints": map[string]any{d.mailbox.Name(): endpoints}})
	if err != nil {
		return fmt.Errorf("encode addresses: %w", err)
	}
	_, err = notifier.Do(ctx, http.MethodPatch, "/v1/users/CUSTOMER/"+customer(1), nil, body, &[]byte{})
	return err
}

// user sends one request over HTTP and listens until every place has an answer.
type user struct {
	asked *api.Client // the instance that gets the request
	heard *api.Client // the instance whose events are followed
	req   contracts.EnrichRequest

	states  map[string]contracts.ProviderState // by place id, the latest
	patches int
	pending int // places that were not known in the last answer
}

// Bounds of the repetitions when the service cannot answer a user in time, as on an overloaded machine. All users begin at the same
// moment. Random waits, up to twice as long each time, prevent that they block each other again.
const (
	maxAsks      = 30
	askPause     = time.Second
	longestPause = 32 * time.Second
)

// follow sends the request and listens until every place is known. It repeats the request when the service was busy:
// status 503, or an answer that was not recorded.
func (u *user) follow(ctx context.Context) error {
	for n := range maxAsks {
		err := u.ask(ctx)
		if err == nil && u.pending > 0 {
			err = u.listen(ctx)
		}
		if !errors.Is(err, api.ErrBusy) {
			return err
		}
		if !retry.Sleep(ctx, rand.N(retry.Wait(n, askPause, longestPause))) {
			return fmt.Errorf("%w; the last answer: %w", context.Cause(ctx), err)
		}
	}
	return fmt.Errorf("ask %s %d times: %w", u.asked.URL, maxAsks, api.ErrBusy)
}

// ask sends the request and stores the answers in the response. Its error is [api.ErrBusy] if the patches cannot be followed.
func (u *user) ask(ctx context.Context) error {
	resp, err := u.asked.Enrich(ctx, u.req)
	if err != nil {
		return err
	}
	u.states, u.pending = map[string]contracts.ProviderState{}, resp.Pending
	for _, r := range resp.Results {
		u.states[r.PlaceID], _ = r.State(contracts.ProviderWolt)
	}
	if resp.Skipped == "store_down" {
		return fmt.Errorf("%w: %s answers that it did not record request %s", api.ErrBusy, u.asked.URL, u.req.RequestID)
	}
	return nil
}

func settled(s contracts.ProviderState) bool {
	return s.Status != contracts.StatusPending || s.Reason != ""
}

// listen follows the events of the request until they are complete.
func (u *user) listen(ctx context.Context) error {
	answer, err := u.heard.Open(ctx, "/v1/requests/"+u.req.RequestID+"/events", "")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for e, err := range api.Events(answer.Body) {
		if err == nil && e.Data != nil {
			err = u.hear(e)
		}
		if err != nil {
			return fmt.Errorf("event %q of %s: %w", e.Kind, u.heard.URL, err)
		}
		if e.Kind == "complete" {
			return nil
		}
	}
	return nil
}

// hear records the states in one event.
func (u *user) hear(e api.Event) error {
	places, err := api.Places(e)
	for _, p := range places {
		u.states[p.PlaceID] = p.Providers[contracts.ProviderWolt]
	}
	if e.Kind == contracts.TypeResultPatch {
		u.patches++
	}
	return err
}
