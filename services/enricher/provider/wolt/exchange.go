package wolt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/sony/gobreaker/v2"

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

// readBody reads the body of a 200, up to maxBodyBytes.
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

// transportError returns the error of a call without an answer: its caller gave up, it took too long, or it did not
// reach the server.
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

// ended returns the error of a search whose context has ended.
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

// statusError returns the error for the status of an answer, and starts the pause that the answer asks for.
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

// turnPause is the wait before another attempt after no turn was free.
const turnPause = 5 * time.Second

// changed is called when the breaker changes.
func (c *Client) changed(_ string, from, to gobreaker.State) {
	if to == gobreaker.StateOpen {
		c.open.extend(breakerPause)
	}
	c.config.Logger.Warn("circuit breaker of the provider changed",
		slog.String("provider", Name), slog.String("from", from.String()), slog.String("to", to.String()))
}

// sparedError is the error of a call that is no failure of Wolt, because it was not made, or its caller ended it.
type sparedError struct{ error }

func (e sparedError) Unwrap() error { return e.error }

// spared reports whether a failed call is left out of the breaker's count. A server that asks for a pause works, and
// keeping the pause is enough.
func spared(err error) bool {
	_, ok := errors.AsType[sparedError](err)
	return ok || provider.KindOf(err) == provider.KindRateLimited
}

// call makes a call, unless Wolt has asked for a pause or keeps failing, and has its body read. An answer that cannot be read counts as
// a failure, like a missing answer.
func (c *Client) call(ctx context.Context, r request, read func(body []byte) error) error {
	if err := c.paused(); err != nil {
		return err
	}
	_, err := c.breaker.Execute(func() (struct{}, error) {
		if err := c.takeTurn(ctx); err != nil {
			return struct{}{}, sparedError{err}
		}
		body, err := c.exchange(ctx, r)
		if err != nil && ctx.Err() != nil {
			return struct{}{}, sparedError{err}
		}
		if err == nil {
			err = read(body)
		}
		return struct{}{}, err
	})
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return c.circuitOpen()
	}
	if s, ok := errors.AsType[sparedError](err); ok {
		return s.error
	}
	return err //nolint:wrapcheck // It is a provider.Error, from the function above.
}

// Held reports whether calls are held back now, because Wolt has asked for a pause, or has failed too often in a row.
func (c *Client) Held() bool {
	return c.pause.left() > 0 || c.breaker.State() == gobreaker.StateOpen
}

// takeTurn waits until the rate allows a call. It then checks the pause and the breaker again, because waiting calls must
// not be sent when Wolt has begun to refuse or to fail.
func (c *Client) takeTurn(ctx context.Context) error {
	if err := c.config.Turn(ctx); ctx.Err() != nil {
		return c.ended(ctx)
	} else if err != nil {
		failure := c.fail(provider.KindRateLimited, "there is no turn under the rate", err)
		failure.RetryAfter = turnPause
		return failure
	}
	if c.breaker.State() == gobreaker.StateOpen {
		return c.circuitOpen()
	}
	return c.paused()
}

// paused returns the error of a call during a pause, or nil.
func (c *Client) paused() error {
	left := c.pause.left()
	if left == 0 {
		return nil
	}
	failure := c.fail(provider.KindRateLimited, "the pause that was asked for is not over", nil)
	failure.RetryAfter = bound(left, maxRetryAfter)
	return failure
}

func (c *Client) circuitOpen() *provider.Error {
	failure := c.fail(provider.KindUnavailable, "no call was made", ErrCircuitOpen)
	failure.RetryAfter = bound(c.open.left(), breakerPause)
	return failure
}
