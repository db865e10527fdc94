package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// public is where people would reach the pages of the notifiers.
const public = "https://notify.example.com"

// devices are those on which one customer gets letters.
var devices = []string{"phone", "laptop"}

// customer returns the n-th customer, of whom the first gets letters on several devices and the second none of reservations.
func customer(n int) string { return fmt.Sprintf("%s-%d", contracts.RecipientCustomer, n) }

// enlist puts people in over HTTP: each kind has one recipient that wants no letters but critical ones, one customer has devices, and
// another switches a category off on the page for that.
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
	_, answer, err := d.send(ctx, http.MethodPost, api+"/v1/users", &lines)
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
	_, _, err = d.send(ctx, http.MethodPatch, api+"/v1/users/CUSTOMER/"+customer(1)+"/addresses", bytes.NewReader(body))
	return err
}

// fields are those of a page, with their names, values, and whether they are checked. Of a list nothing is chosen.
var fields = regexp.MustCompile(`<(?:input type="[a-z-]+"|select) name="([^"]*)"(?: value="([^"]*)")?( checked)?>`)

// switchOff does what a customer does who follows the link to the page of preferences, takes one check mark away and saves.
func (d *demo) switchOff(ctx context.Context, api string) error {
	link := strings.Replace(d.pipeline.Notifiers[0].PreferencesURL(contracts.RecipientCustomer, customer(2)), public, api, 1)
	_, page, err := d.send(ctx, http.MethodGet, link, nil)
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
	_, page, err = d.send(ctx, http.MethodPost, link, strings.NewReader(form.Encode()))
	if err == nil && !bytes.Contains(page, []byte("Saved.")) {
		err = fmt.Errorf("preferences were not saved: %s", page)
	}
	return err
}

// send sends a request, and returns the status and the body of the answer. A refusal is an error.
func (d *demo) send(ctx context.Context, method, to string, body io.Reader) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, to, body)
	if err != nil {
		return 0, nil, fmt.Errorf("%s %s: %w", method, to, err)
	}
	answer, err := d.client.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("%s %s: %w", method, to, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err == nil && answer.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: answered %d: %s", method, to, answer.StatusCode, text)
	}
	return answer.StatusCode, text, err
}
