// Package remote asks a service that reads recipes: one call with a JSON body, in bounded time, with a bounded answer, and
// what it means when that fails.
package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
)

const (
	dialTimeout   = 10 * time.Second
	maxHeader     = 64 << 10
	maxAnswer     = 1 << 20
	maxErrorBody  = 16 << 10
	maxRetryAfter = time.Hour
	userAgent     = "expediter-importer/1"

	// costOfByte is how many bytes one of an answer may take as a recipe: lists can be of empty ingredients.
	costOfByte = 100
)

// Client asks one service. It is safe for concurrent use.
type Client struct {
	config Config
	http   *http.Client
}

// New returns a client, or an error that names everything that is wrong with the configuration.
func New(config Config) (*Client, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	transport := config.Transport
	if transport == nil {
		transport = &http.Transport{
			DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
			// On a connection that is kept, an answer that comes twice can be taken for that to the next question.
			DisableKeepAlives:      true,
			ForceAttemptHTTP2:      true,
			MaxResponseHeaderBytes: maxHeader,
			Proxy:                  http.ProxyFromEnvironment,
			TLSHandshakeTimeout:    dialTimeout,
		}
	}
	config.BaseURL = strings.TrimRight(config.BaseURL, "/")
	return &Client{config: config, http: &http.Client{
		// A redirect would take the token to where nobody set it up to go.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     transport,
	}}, nil
}

// Close closes idle connections. Calls in progress go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Post sends a JSON body with the key of its input and returns the body of a 200. The error is an [*extract.Error], which
// wraps a [*StatusError] where there was another answer; or it wraps the cause of ctx when that has ended.
func (c *Client) Post(ctx context.Context, path string, body []byte, key string) ([]byte, error) {
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.config.BaseURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, extract.Failed(false, err, "the request cannot be made")
	}
	request.GetBody = nil // Else the transport would send it again by itself when a kept connection breaks.
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	request.Header.Set("User-Agent", userAgent)
	if c.config.Token != "" {
		request.Header.Set(c.config.TokenHeader, c.config.TokenPrefix+c.config.Token)
	}
	answer, err := c.exchange(request)
	if err == nil {
		return answer, nil
	}
	if parent.Err() != nil {
		return nil, fmt.Errorf("%s: %w", c.config.Name, context.Cause(parent))
	}
	if failed, ok := errors.AsType[*extract.Error](err); ok {
		return nil, failed
	}
	var network net.Error
	if ctx.Err() != nil || errors.As(err, &network) && network.Timeout() {
		return nil, outage(extract.Failed(true, err, "no complete answer within %s", c.config.Timeout))
	}
	return nil, outage(extract.Failed(true, err, "the connection failed"))
}

func (c *Client) exchange(request *http.Request) ([]byte, error) {
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.config.Name, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		// What cannot be read of it is not needed.
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBody)) //nolint:errcheck // the status says enough
		return nil, statusError(&StatusError{
			Body: body, RetryAfter: retryAfter(response.Header), Status: response.StatusCode,
		})
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: read the answer: %w", c.config.Name, err)
	case len(body) > maxAnswer:
		failed := extract.Failed(false, nil, "the answer is longer than %d bytes", maxAnswer)
		failed.Status = response.StatusCode
		return nil, failed
	}
	if err := memory.More(request.Context(), costOfByte*int64(len(body))); err != nil {
		return nil, err
	}
	return body, nil
}
