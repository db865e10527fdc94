package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/retryafter"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

const (
	// maxBody bounds the body of an answer, unpacked, and maxVenues its venues. A larger answer is refused, not cut: the place
	// could be in the part that was cut off.
	maxBody   = 1 << 20
	maxVenues = 100
	// maxAliases bounds the other names of a venue.
	maxAliases = 20
	// maxRefusal bounds what an error repeats of a refusal's body.
	maxRefusal = 200
	// maxRetryAfter bounds the wait that an answer can ask for, and rateLimitPause is the wait after a 429 that asks for none.
	maxRetryAfter  = 5 * time.Minute
	rateLimitPause = 30 * time.Second
	// turnPause is the wait before the retry when no turn was free.
	turnPause = 5 * time.Second
)

// post makes one call. Any error is a *provider.Error.
func (c *Client) post(ctx context.Context, place []byte) ([]provider.Venue, error) {
	callCtx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(callCtx, http.MethodPost, c.config.URL, bytes.NewReader(place))
	if err != nil {
		return nil, c.fail(provider.KindMisconfigured, "build the request", err)
	}
	req.Header = http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"expediter-enricher/1"}}
	if c.config.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.config.Key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.broken(ctx, callCtx, provider.KindUnavailable, "the call did not get through", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, c.refused(resp)
	}
	kind := resp.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(kind); err != nil || media != "application/json" {
		return nil, c.fail(provider.KindMalformed, fmt.Sprintf("the content type is %.100q, want application/json", kind), nil)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, c.broken(ctx, callCtx, provider.KindMalformed, "the answer broke off", err)
	case len(body) > maxBody:
		return nil, c.fail(provider.KindMalformed, fmt.Sprintf("the answer is larger than %d bytes", maxBody), nil)
	}
	venues, err := decode(body)
	if err != nil {
		return nil, c.fail(provider.KindMalformed, "the answer cannot be used", err)
	}
	return venues, nil
}

// broken returns the error of a call without a whole answer: its caller gave up, it took too long, or the connection failed.
func (c *Client) broken(ctx, callCtx context.Context, kind provider.Kind, detail string, err error) *provider.Error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the address, which may be secret
	}
	switch {
	case ctx.Err() != nil:
		return c.ended(ctx)
	case callCtx.Err() != nil:
		return c.fail(provider.KindTimeout, fmt.Sprintf("no answer within %s", c.config.Timeout), err)
	}
	return c.fail(kind, detail, err)
}

// ended returns the error of a search whose context has ended.
func (c *Client) ended(ctx context.Context) *provider.Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return c.fail(provider.KindTimeout, "the caller's deadline passed", context.Cause(ctx))
	}
	return c.fail(provider.KindCanceled, "the caller gave up", context.Cause(ctx))
}

// refused returns the error for the status of an answer, with the pause that the answer asks for.
func (c *Client) refused(resp *http.Response) *provider.Error {
	kind, detail := sortStatus(resp.StatusCode)
	// The beginning of the body usually says what was wrong. A body that breaks off changes nothing.
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // see above
	if said = bytes.TrimSpace(said); len(said) > 0 {
		detail += fmt.Sprintf(": %q", said)
	}
	failure := c.fail(kind, detail, nil)
	failure.Status = resp.StatusCode
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		failure.RetryAfter = cmp.Or(retryafter.Parse(resp.Header, time.Second, maxRetryAfter), rateLimitPause)
	case http.StatusServiceUnavailable:
		failure.RetryAfter = retryafter.Parse(resp.Header, time.Second, maxRetryAfter)
	}
	return failure
}

// sortStatus returns the kind of a status other than 200. A 404 is no answer: a service without the place answers with an empty
// list, and a wrong path must not become NOT_FOUND for a day.
func sortStatus(status int) (provider.Kind, string) {
	switch {
	case status == http.StatusTooManyRequests:
		return provider.KindRateLimited, "too many calls"
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return provider.KindBlocked, "the key is refused"
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		return provider.KindTimeout, "the service ran out of time"
	case status >= http.StatusInternalServerError:
		return provider.KindUnavailable, "the service is out of order"
	case status >= http.StatusBadRequest:
		return provider.KindMisconfigured, "the service does not accept such a call: check the URL and its version of the contract"
	case status >= http.StatusMultipleChoices:
		return provider.KindMisconfigured, "redirects are not followed: set the final URL"
	}
	return provider.KindMalformed, "only 200 carries an answer"
}

func (c *Client) fail(kind provider.Kind, detail string, cause error) *provider.Error {
	return &provider.Error{Cause: cause, Detail: detail, Kind: kind, Provider: c.config.Name}
}

// decode reads the body of a 200. Unknown members are ignored, so that a service may answer with its own records. One venue that
// breaks the contract refuses the whole answer: it may be the place, and without it "none" cannot be concluded.
func decode(body []byte) ([]provider.Venue, error) {
	var answer struct {
		Venues *[]provider.Venue `json:"venues"` // nil: missing, which is not an empty list
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("decode %d bytes: %w", len(body), err)
	}
	if answer.Venues == nil {
		return nil, errors.New("it has no list of venues: without a venue, answer with an empty one")
	}
	if n := len(*answer.Venues); n > maxVenues {
		return nil, fmt.Errorf("it has %d venues, more than %d: answer with the likeliest", n, maxVenues)
	}
	for i := range *answer.Venues {
		if err := checkVenue(&(*answer.Venues)[i]); err != nil {
			return nil, fmt.Errorf("venues/%d: %w", i, err)
		}
	}
	return *answer.Venues, nil
}

// checkVenue reports the first mistake of a venue. It takes 0,0 as a location that was not filled in.
func checkVenue(v *provider.Venue) error {
	for _, field := range []struct {
		name, value string
		most        int
	}{
		{"name", v.Name, contracts.MaxText},
		{"address", v.Address, contracts.MaxText},
		{"city", v.City, contracts.MaxText},
		{"phone", v.Phone, contracts.MaxText},
		{"id", v.ID, contracts.MaxID},
		{"url", v.URL, contracts.MaxURL},
		{"aliases", strings.Join(v.Aliases, ""), contracts.MaxText},
	} {
		if len(field.value) > field.most {
			return fmt.Errorf("%s has %d bytes, more than %d", field.name, len(field.value), field.most)
		}
	}
	if strings.ContainsRune(v.ID, utf8.RuneError) { // as results may not have it
		return fmt.Errorf("id %q is not valid Unicode", v.ID)
	}
	if strings.TrimSpace(v.Name) == "" {
		return errors.New("name is missing")
	}
	if len(v.Aliases) > maxAliases {
		return fmt.Errorf("aliases are %d, more than %d", len(v.Aliases), maxAliases)
	}
	if _, err := provider.ParseURL(v.URL); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	if at := v.Location; at != nil {
		if math.Abs(at.Lat) > 90 || math.Abs(at.Lng) > 180 {
			return fmt.Errorf("location: latitude %g, longitude %g is no place on earth", at.Lat, at.Lng)
		}
		if *at == (match.Point{}) {
			v.Location = nil
		}
	}
	return nil
}
