package recipient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/redact"
	"github.com/expediter-io/expediter/pkg/retryafter"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

const (
	// maxPage bounds one page of an answer, in bytes.
	maxPage = 4 << 20

	// pageTimeout bounds one request.
	pageTimeout = 30 * time.Second

	// maxIdle is the number of connections that are kept for the next requests, for idleTimeout.
	maxIdle     = 8
	idleTimeout = 90 * time.Second
	tlsTimeout  = 10 * time.Second

	// maxRetryAfter bounds the pause that a source can ask for.
	maxRetryAfter = 10 * time.Minute
)

// HTTPConfig configures an [HTTP].
type HTTPConfig struct {
	// Logger gets the mistakes of recipients, at most one line a minute. Defaults to slog.Default().
	Logger *slog.Logger

	// RootCAs are the authorities against which the service's certificate is checked. Defaults to the system's.
	RootCAs *x509.CertPool

	// Token is sent as "Authorization: Bearer <token>". Defaults to none.
	Token string

	// URL is the address to which requests are sent. Required.
	URL string
}

// HTTP asks a service for recipients, page by page. A request is a POST of
//
//	{"event_id":"…","event_type":"…","aggregate_type":"…","aggregate_id":"…","user_id":"…",
//	 "recipient_type":"CUSTOMER","scope":"aggregate","cursor":"…"}
//
// and an answer, 200, is
//
//	{"recipients":[{"user_id":"…","recipient_type":"CUSTOMER", …}],"next":"…"}
//
// where next is the cursor of the next page, and absent from the last page. An answer that was cut off is no JSON, so
// it cannot be taken for the last page. After 429 and 5xx the request is sent again, after Retry-After; after other
// answers it is not.
//
// An invalid field of a recipient, but for the ids and opt-outs, counts as absent and is logged.
type HTTP struct {
	cfg    HTTPConfig
	client *http.Client
	name   string // the service's name in errors: its URL, without secrets
	warner *warner
}

// NewHTTP returns the resolver.
func NewHTTP(cfg HTTPConfig) (*HTTP, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("recipients: the URL of the service that knows them must be an absolute http or https URL")
	}
	client := &http.Client{
		Timeout:       pageTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			ForceAttemptHTTP2: true, IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: maxIdle, Proxy: http.ProxyFromEnvironment,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cfg.RootCAs}, TLSHandshakeTimeout: tlsTimeout,
		},
	}
	return &HTTP{cfg: cfg, client: client, name: redact.URL(cfg.URL), warner: newWarner(cfg.Logger)}, nil
}

// Close closes the connections that no request is using.
func (h *HTTP) Close() { h.client.CloseIdleConnections() }

type pageRequest struct {
	EventID       string                  `json:"event_id"`
	EventType     string                  `json:"event_type"`
	AggregateType string                  `json:"aggregate_type"`
	AggregateID   string                  `json:"aggregate_id,omitempty"`
	UserID        string                  `json:"user_id,omitempty"`
	RecipientType contracts.RecipientType `json:"recipient_type"`
	Scope         rules.Scope             `json:"scope"`
	Cursor        string                  `json:"cursor,omitempty"`
}

type pageAnswer struct {
	Recipients []json.RawMessage `json:"recipients"`
	Next       string            `json:"next"`
}

// Resolve implements [Resolver]. One request for each page, made when the recipients of the page before have been
// taken.
func (h *HTTP) Resolve(ctx context.Context, q Query) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) {
		kind, id := Aggregate(q.Event)
		request := pageRequest{
			EventID: q.Event.EventID, EventType: q.Event.EventType, AggregateType: kind, AggregateID: id,
			UserID: q.Event.UserID, RecipientType: q.Type, Scope: q.Scope,
		}
		for {
			page, err := h.page(ctx, request)
			if err != nil {
				yield(contracts.Recipient{}, err)
				return
			}
			for i, data := range page.Recipients {
				r, wrong, err := readProfile(data, contracts.Recipient{})
				h.warner.ignored(ctx, r, wrong)
				if err == nil && r.RecipientType != q.Type {
					err = fmt.Errorf("it is a %s, want a %s", r.RecipientType, q.Type)
				}
				if err != nil {
					yield(contracts.Recipient{}, permanent(fmt.Errorf("recipient %d of a page from %s: %w", i, h.name, err)))
					return
				}
				if !yield(r, nil) {
					return
				}
			}
			switch page.Next {
			case "":
				return
			case request.Cursor:
				yield(contracts.Recipient{}, permanent(fmt.Errorf("%s names the same page as the next one", h.name)))
				return
			}
			request.Cursor = page.Next
		}
	}
}

func (h *HTTP) page(ctx context.Context, ask pageRequest) (page pageAnswer, err error) {
	body, err := json.Marshal(ask)
	if err != nil {
		return page, permanent(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return page, permanent(redact.Error(err))
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	if h.cfg.Token != "" {
		request.Header.Set("Authorization", "Bearer "+h.cfg.Token)
	}
	response, err := h.client.Do(request)
	if err != nil {
		return page, temporary(redact.Error(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return page, &Error{
			Cause:      fmt.Errorf("%s answered %s", h.name, response.Status),
			Permanent:  response.StatusCode != http.StatusTooManyRequests && response.StatusCode < http.StatusInternalServerError,
			RetryAfter: retryafter.Parse(response.Header, 0, maxRetryAfter),
		}
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxPage+1))
	switch {
	case err != nil:
		return page, temporary(fmt.Errorf("%s: %w: %w", h.name, ErrIncomplete, err))
	case len(data) > maxPage:
		return page, permanent(fmt.Errorf("%s answered a page of more than %d bytes: make pages smaller", h.name, maxPage))
	}
	if err := json.Unmarshal(data, &page); err != nil {
		return page, temporary(fmt.Errorf("%s: %w: %w", h.name, ErrIncomplete, err))
	}
	return page, nil
}
