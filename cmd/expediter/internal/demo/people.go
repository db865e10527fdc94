package demo

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
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// public is the URL at which people would reach the pages of the notifiers.
const public = "https://notify.example.com"

// devices are the devices on which one customer gets letters.
var devices = []string{"phone", "laptop"}

// customer returns the id of the n-th customer. The first gets letters on several devices, and the second none about
// reservations.
func customer(n int) string { return fmt.Sprintf("%s-%d", contracts.RecipientCustomer, n) }

// enlist adds people over HTTP: each kind has one recipient that wants only critical letters, one customer has devices, and another
// switches a category off on the page of preferences.
func (d *demo) enlist(ctx context.Context) error {
	var lines bytes.Buffer
	for _, kind := range []contracts.RecipientType{
		contracts.RecipientRestaurantUser, contracts.RecipientCustomer, contracts.RecipientAgencyUser, contracts.RecipientAdmin,
	} {
		for n := range people {
			e := recipient.Entry{Memberships: []recipient.Member{restaurant}, Recipient: contracts.Recipient{
				RecipientType: kind, UserID: fmt.Sprintf("%s-%d", kind, n),
			}}
			if n == 0 {
				e.OptOut = map[string][]string{contracts.Anything: {d.letters.Name()}}
			}
			if err := json.NewEncoder(&lines).Encode(e); err != nil {
				return fmt.Errorf("encode a recipient: %w", err)
			}
		}
	}
	api := d.pipeline.Notifiers[0].URL()
	_, answer, err := send(ctx, d.client, http.MethodPost, api+"/v1/users", &lines)
	if stored := bytes.Count(answer, []byte(`"status":"stored"`)); err == nil && stored != 4*people {
		err = fmt.Errorf("%d of %d people were stored: %s", stored, 4*people, answer)
	}
	return errors.Join(err, d.addDevices(ctx, api), d.switchOff(ctx, api))
}

// addDevices gives a customer several addresses on one channel.
func (d *demo) addDevices(ctx context.Context, api string) error {
	endpoints := map[string]contracts.Endpoint{}
	for _, name := range devices {
		endpoints[name] = contracts.Endpoint{Address: name}
	}
	body, err := json.Marshal(map[string]any{"endpoints": map[string]any{d.letters.Name(): endpoints}})
	if err != nil {
		return fmt.Errorf("encode addresses: %w", err)
	}
	_, _, err = send(ctx, d.client, http.MethodPatch, api+"/v1/users/CUSTOMER/"+customer(1), bytes.NewReader(body))
	return err
}

// fields matches the fields of a page, with their names, values, and check marks. It chooses no option of a list.
var fields = regexp.MustCompile(`<(?:input type="[a-z-]+"|select) name="([^"]*)"(?: value="([^"]*)")?( checked)?>`)

// switchOff acts as a customer who follows the link to the page of preferences, removes one check mark and saves.
func (d *demo) switchOff(ctx context.Context, api string) error {
	link := strings.Replace(d.pipeline.Notifiers[0].PreferencesURL(contracts.RecipientCustomer, customer(2)), public, api, 1)
	_, page, err := send(ctx, d.client, http.MethodGet, link, nil)
	if err != nil {
		return err
	}
	form := url.Values{}
	for _, field := range fields.FindAllStringSubmatch(string(page), -1) {
		if name := field[1]; name != "on" || field[3] != "" {
			form.Add(name, field[2])
		}
	}
	unwanted := "reservations " + d.letters.Name()
	if !slices.Contains(form["on"], unwanted) {
		return fmt.Errorf("the page of preferences has no check mark for %s: %s", unwanted, page)
	}
	form["on"] = slices.DeleteFunc(form["on"], func(value string) bool { return value == unwanted })
	_, page, err = send(ctx, d.client, http.MethodPost, link, strings.NewReader(form.Encode()))
	if err == nil && !bytes.Contains(page, []byte("Saved.")) {
		err = fmt.Errorf("preferences were not saved: %s", page)
	}
	return err
}

// send sends a request, and returns the status and the body of the answer. Its errors are those of call.
func send(ctx context.Context, client *http.Client, method, to string, body io.Reader) (int, []byte, error) {
	answer, err := call(ctx, client, method, to, body)
	if answer == nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, unread := io.ReadAll(io.LimitReader(answer.Body, contracts.MaxBody))
	return answer.StatusCode, text, errors.Join(err, unread)
}

// call sends a request. A refusal is an error, besides the answer, which the caller closes. The error is errBusy for the status 503, and
// when the connection was closed, as servers close connections that were idle for some seconds: the request takes effect once.
func call(ctx context.Context, client *http.Client, method, to string, body io.Reader) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, to, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, to, err)
	}
	answer, err := client.Do(request)
	switch {
	case err != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("%s %s: %w: %w", method, to, errBusy, err)
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", method, to, err)
	case answer.StatusCode == http.StatusServiceUnavailable:
		err = fmt.Errorf("%s %s: %w: %s", method, to, errBusy, answer.Status)
	case answer.StatusCode >= http.StatusMultipleChoices:
		text, unread := io.ReadAll(io.LimitReader(answer.Body, 200))
		err = errors.Join(fmt.Errorf("%s %s: %s: %s", method, to, answer.Status, text), unread)
	}
	return answer, err
}

// user sends one request over HTTP and listens until every place has an answer.
type user struct {
	client *http.Client
	url    string // of the instance that gets the request
	events string // of the instance whose events are followed
	req    contracts.EnrichRequest

	states  map[string]contracts.ProviderState // by place id, the latest
	hits    int                                // answered in the response itself
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

// errBusy means that the service did not answer in time, and that the request may be repeated.
var errBusy = errors.New("the service is busy")

// follow sends the request and listens until every place is known. It repeats the request when the service was busy:
// status 503, or an answer that was not recorded.
func (u *user) follow(ctx context.Context) error {
	longest := askPause
	for range maxAsks {
		err := u.ask(ctx)
		if err == nil && u.pending > 0 {
			err = u.listen(ctx)
		}
		if !errors.Is(err, errBusy) {
			return err
		}
		if !pause.For(ctx, rand.N(longest)) { //nolint:gosec // no secret
			return fmt.Errorf("%w; the last answer: %w", context.Cause(ctx), err)
		}
		longest = min(2*longest, longestPause)
	}
	return fmt.Errorf("ask %s %d times: %w", u.url, maxAsks, errBusy)
}

// ask sends the request and stores the answers in the response. Its error is errBusy if the patches cannot be followed.
func (u *user) ask(ctx context.Context) error {
	body, err := contracts.Encode(u.req)
	if err != nil {
		return err
	}
	_, data, err := send(ctx, u.client, http.MethodPost, u.url+"/v1/enrich", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := contracts.Decode[contracts.EnrichResponse](data)
	if err != nil {
		return err
	}
	u.states, u.hits, u.pending = map[string]contracts.ProviderState{}, 0, resp.Pending
	for _, r := range resp.Results {
		state, _ := r.State(contracts.ProviderWolt)
		u.states[r.PlaceID] = state
		if settled(state) {
			u.hits++
		}
	}
	if resp.Skipped == contracts.SkippedStoreDown {
		return fmt.Errorf("%s answers that it did not record request %s: %w", u.url, u.req.RequestID, errBusy)
	}
	return nil
}

func settled(s contracts.ProviderState) bool {
	return s.Status != contracts.StatusPending || s.Reason != ""
}

var errCutOff = errors.New("the events ended before every place was answered")

// listen follows the events of the request until they are complete.
func (u *user) listen(ctx context.Context) error {
	from := u.events + "/v1/requests/" + u.req.RequestID + "/events"
	resp, err := call(ctx, u.client, http.MethodGet, from, http.NoBody)
	if resp != nil {
		defer resp.Body.Close()
	}
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, contracts.MaxBody)
	event := ""
	for lines.Scan() {
		switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
		case "event":
			event = value
		case "data":
			if err := u.hear(event, []byte(value)); err != nil {
				return fmt.Errorf("event %s of %s: %w", event, from, err)
			}
		case "":
			if event == "complete" {
				return nil
			}
		}
	}
	return errors.Join(fmt.Errorf("listen to %s: %w", from, errCutOff), lines.Err())
}

// hear records the state in one event.
func (u *user) hear(event string, data []byte) error {
	switch event {
	case contracts.TypeResultPatch:
		var patch contracts.ResultPatch
		if err := json.Unmarshal(data, &patch); err != nil {
			return err
		}
		u.patches++
		u.states[patch.PlaceID] = patch.Patch.Providers[contracts.ProviderWolt]
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
			u.states[p.PlaceID] = p.Providers[contracts.ProviderWolt]
		}
	}
	return nil
}
