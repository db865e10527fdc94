package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// fetchEvery is how often the keys of an issuer are fetched. One that it withdraws is in force no longer than that.
	fetchEvery = 5 * time.Minute

	// fetchTimeout bounds one fetch.
	fetchTimeout = 5 * time.Second

	// maxDocument bounds a document of the issuer.
	maxDocument = 256 << 10

	// maxWaiting is how many callers wait for a fetch at a time: an issuer that does not answer holds up few requests.
	maxWaiting = 64

	// minFetch is the least time between two fetches, whatever keys tokens name.
	minFetch = 15 * time.Second
)

// errNotAsked is the failure before the first fetch.
var errNotAsked = errors.New("its keys have not been fetched yet")

// newClient returns a client whose answers come from the address that was asked.
func newClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10, Proxy: http.ProxyFromEnvironment}
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: transport,
	}
}

// Run fetches the keys of the issuer until ctx ends: at once, every five minutes, and when a token names one that is missing, but
// never twice in 15 seconds. Keys stay in force while a fetch fails.
func (o *OIDC) Run(ctx context.Context) error {
	for {
		o.fetch(ctx)
		wait := fetchEvery
		if o.Err() != nil {
			wait = minFetch
		}
		select {
		case <-time.After(wait):
		case <-o.wanted:
		case <-ctx.Done():
			return nil
		}
	}
}

// Err returns why the keys of the issuer could not be fetched the last time, nil when they could.
func (o *OIDC) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// find returns the keys with an id. A missing one is fetched, once for all callers, unless the last fetch was a short time ago.
func (o *OIDC) find(ctx context.Context, id string, wait bool) ([]jose.JSONWebKey, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if keys := o.keys[id]; len(keys) > 0 {
		return keys, nil
	}
	if wait && (o.fetched.IsZero() || time.Since(o.fetched) >= minFetch) {
		if o.waiting >= maxWaiting {
			return nil, fmt.Errorf("%w: as many requests as may be wait for it", ErrUnavailable)
		}
		select {
		case o.wanted <- struct{}{}:
		default:
		}
		o.waiting++
		ended := o.await(ctx, o.next)
		o.waiting--
		if keys := o.keys[id]; len(keys) > 0 {
			return keys, nil
		}
		if !ended {
			return nil, fmt.Errorf("%w in time", ErrUnavailable)
		}
	}
	if o.failed != nil {
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, o.failed.Error()) // no service takes it for its own store's
	}
	return nil, &tokenError{"is signed with a key that the issuer does not have"}
}

// await reports whether a fetch has ended in time. It gives the lock back meanwhile.
func (o *OIDC) await(ctx context.Context, fetch <-chan struct{}) bool {
	o.mu.Unlock()
	defer o.mu.Lock()
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	select {
	case <-fetch:
		return true
	case <-ctx.Done():
		return false
	}
}

// fetch asks the issuer for its keys, which replace the ones before.
func (o *OIDC) fetch(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	keys, err := o.read(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the service stops
	}
	o.mu.Lock()
	before := o.failed
	o.failed, o.fetched = err, time.Now()
	if err == nil {
		o.keys = keys
	}
	close(o.next)
	o.next = make(chan struct{})
	select {
	case <-o.wanted: // by a caller that this fetch has answered
	default:
	}
	o.mu.Unlock()
	log := o.cfg.Logger.With("issuer", o.cfg.Issuer)
	switch {
	case err == nil && before != nil:
		log.InfoContext(ctx, o.cfg.Name+": the keys of the issuer are in force") //nolint:sloglint // begins with the service's name
	case err != nil && (before == nil || before.Error() != err.Error()):
		log.ErrorContext(ctx, o.cfg.Name+": the keys of the issuer stay as they are", "error", err) //nolint:sloglint // as above
	}
}

// Reach asks the issuer for its keys once, and returns why they cannot be used.
func (o *OIDC) Reach(ctx context.Context) error {
	_, err := o.read(ctx)
	return err
}

// read returns the keys of the issuer by their ids (OpenID Connect Discovery, RFC 7517), without those that do not check signatures.
func (o *OIDC) read(ctx context.Context) (map[string][]jose.JSONWebKey, error) {
	var about struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if err := o.get(ctx, strings.TrimSuffix(o.cfg.Issuer, "/")+"/.well-known/openid-configuration", &about); err != nil {
		return nil, err
	}
	if about.Issuer != o.cfg.Issuer {
		return nil, fmt.Errorf("the document names the issuer %.200q, want %q, to the last character", about.Issuer, o.cfg.Issuer)
	}
	if u, err := url.Parse(about.JWKSURI); err != nil || !isSafe(u) || len(about.JWKSURI) > 2<<10 {
		return nil, fmt.Errorf("the document has the jwks_uri %.200q, want an https address", about.JWKSURI)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := o.get(ctx, about.JWKSURI, &set); err != nil {
		return nil, err
	}
	keys := map[string][]jose.JSONWebKey{}
	for _, data := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(data) == nil && key.IsPublic() && key.Valid() && (key.Use == "" || key.Use == "sig") {
			keys[key.KeyID] = append(keys[key.KeyID], key)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%.200s has no public key for signatures", about.JWKSURI)
	}
	return keys, nil
}

// get reads one document.
func (o *OIDC) get(ctx context.Context, address string, document any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask the issuer: %w", err)
	}
	r.Header.Set("Accept", "application/json")
	resp, err := o.client.Do(r)
	if err != nil {
		return fmt.Errorf("ask the issuer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%.200s answers %d, want 200; redirects are not followed", address, resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err == nil && len(data) > maxDocument {
		err = fmt.Errorf("it is over the limit of %d KiB", maxDocument>>10)
	}
	if err == nil {
		err = json.Unmarshal(data, document)
	}
	if err != nil {
		return fmt.Errorf("read %.200s: %w", address, err)
	}
	return nil
}
