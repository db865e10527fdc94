package wolt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/expediter-io/expediter/pkg/retryafter"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// request is one call to make.
type request struct {
	body     []byte
	language string
	method   string
	path     string
}

// exchange makes one HTTP call and returns the body of a 200. Everything else is a
// *provider.Error.
func (c *Client) exchange(ctx context.Context, r request) ([]byte, error) {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	req, err := http.NewRequestWithContext(callCtx, r.method, c.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, c.fail(provider.KindMisconfigured, "build the request", err)
	}

	c.setHeaders(req, r.language)

	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.transportError(ctx, callCtx, err)
	}

	defer func() { _ = resp.Body.Close() }()

	if resp.StatusCode != http.StatusOK {
		return nil, c.statusError(resp)
	}
	return c.readBody(ctx, callCtx, resp)
}

// readBody reads the body of a 200, as far as it is taken at all.
func (c *Client) readBody(ctx, callCtx context.Context, resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBodyBytes+1))

	switch {
	case err != nil && callCtx.Err() != nil:
		return nil, c.transportError(ctx, callCtx, err)
	case err != nil:
		return nil, c.answered(provider.KindMalformed, resp, "the answer broke off", err)
	case len(body) > maxBodyBytes:
		return nil, c.answered(provider.KindMalformed, resp,
			fmt.Sprintf("the answer is larger than %d bytes", maxBodyBytes), nil)
	case len(bytes.TrimSpace(body)) == 0:
		return nil, c.answered(provider.KindBlocked, resp,
			"the answer is empty, as it is for clients that are not trusted: check the rate and whether Wolt expects a newer client", nil)
	}
	return body, nil
}

func (c *Client) setHeaders(req *http.Request, language string) {
	h := req.Header
	h.Set("Accept", "application/json")
	h.Set("App-Language", language)
	h.Set("Client-Version", clientVersion)
	h.Set("Clientversionnumber", clientVersion)
	h.Set("Platform", "Web") // Without it some answers are a no-content page.
	h.Set("User-Agent", userAgent)
	h.Set("W-Wolt-Session-Id", "no-analytics-consent")
	h.Set("X-Wolt-Web-Clientid", c.id)

	if req.Method == http.MethodPost {
		h.Set("Content-Type", "application/json")
	}
}

// transportError sorts a call that brought no answer: it was given up by its
// caller, took too long, or did not get through.
func (c *Client) transportError(ctx, callCtx context.Context, err error) *provider.Error {
	switch {
	case ctx.Err() != nil:
		return c.ended(ctx)
	case callCtx.Err() != nil:
		return c.fail(provider.KindTimeout, fmt.Sprintf("no answer within %s", callTimeout), err)
	default:
		return c.fail(provider.KindUnavailable, "the call did not get through", err)
	}
}

// ended is the error of a search whose context is over.
func (c *Client) ended(ctx context.Context) *provider.Error {
	cause := context.Cause(ctx)

	switch {
	case errors.Is(cause, errSearchTimeout):
		return c.fail(provider.KindTimeout, fmt.Sprintf("no result within the %s of Timeout", c.config.Timeout), cause)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return c.fail(provider.KindTimeout, "the caller's deadline passed", cause)
	default:
		return c.fail(provider.KindCanceled, "the caller gave up", cause)
	}
}

// statusError sorts an answer by its status, and starts the pause that it asks for.
func (c *Client) statusError(resp *http.Response) *provider.Error {
	kind, detail := sortStatus(resp.StatusCode)
	failure := c.answered(kind, resp, detail, nil)

	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		failure.RetryAfter = retryafter.Parse(resp.Header, time.Second, maxRetryAfter)
		failure.RetryAfter = cmp.Or(failure.RetryAfter, rateLimitPause)
	case http.StatusServiceUnavailable:
		failure.RetryAfter = retryafter.Parse(resp.Header, time.Second, maxRetryAfter)
	}

	if failure.RetryAfter > 0 {
		c.pause.extend(failure.RetryAfter)
	}
	return failure
}

// statusClientTooOld is the status with which Wolt refuses an outdated client. It is no registered status.
const statusClientTooOld = 430

func sortStatus(status int) (provider.Kind, string) {
	switch {
	case status == http.StatusTooManyRequests:
		return provider.KindRateLimited, "too many calls"
	case status == statusClientTooOld, status == http.StatusGone:
		return provider.KindBlocked, "this client is asked to update: a newer enricher is needed"
	case status == http.StatusForbidden, status == http.StatusUnavailableForLegalReasons:
		return provider.KindBlocked, "this client is refused"
	case status == http.StatusRequestTimeout, status == http.StatusGatewayTimeout:
		return provider.KindTimeout, "Wolt ran out of time"
	case status >= http.StatusInternalServerError:
		return provider.KindUnavailable, "Wolt is out of order"
	case status >= http.StatusBadRequest:
		return provider.KindMisconfigured, "Wolt does not accept such a call: check BaseURL and whether the API changed"
	case status >= http.StatusMultipleChoices:
		return provider.KindBlocked, "the call was redirected, which is not followed"
	case status == http.StatusNoContent:
		return provider.KindBlocked, "the answer is empty, as it is for clients that are not trusted"
	default:
		return provider.KindMalformed, "only 200 carries an answer"
	}
}

func (c *Client) fail(kind provider.Kind, detail string, cause error) *provider.Error {
	return &provider.Error{Cause: cause, Detail: detail, Kind: kind, Provider: Name}
}

func (c *Client) answered(kind provider.Kind, resp *http.Response, detail string, cause error) *provider.Error {
	failure := c.fail(kind, detail, cause)
	failure.Status = resp.StatusCode
	return failure
}
