package service

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

// askReady returns an error unless a URL, such as that of /readyz, is answered with 200. The certificate may be of any authority and
// for any name: a health check asks its own machine, and sends nothing that is secret.
func askReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody) //nolint:gosec // the operator names it
	if err != nil {
		return err //nolint:wrapcheck // names the URL
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(r) //nolint:gosec // as above
	if err != nil {
		return err //nolint:wrapcheck // names the URL
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	return err
}
