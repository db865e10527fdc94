package wolt

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"time"
)

// validate reports everything that is wrong with the configuration.
func (c Config) validate() error {
	return errors.Join(
		c.validateBaseURL(),
		positive("Burst", c.Burst),
		positive("MaxCalls", c.MaxCalls),
		positive("Rate", c.Rate),
		positive("Timeout", c.Timeout),
	)
}

func (c Config) validateBaseURL() error {
	if c.BaseURL == "" {
		return errors.New("BaseURL is missing: set it to an address that you may ask automatically; there is no default")
	}

	u, err := absoluteURL(c.BaseURL)
	if err != nil {
		return fmt.Errorf("BaseURL: %w", err) // The text may hold a password: it is not repeated.
	}

	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return fmt.Errorf("BaseURL asks %s over plain http: use https", u.Host)
	}
	return nil
}

// absoluteURL parses an http or https URL with a host and nothing after its path.
func absoluteURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)

	switch {
	case err != nil:
		return nil, errors.New("it does not parse as a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("its scheme is not http or https")
	case u.Hostname() == "":
		return nil, errors.New("it has no host")
	case u.User != nil:
		return nil, errors.New("it holds a user name: that does not belong into a URL")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("it has a query or a fragment")
	}
	return u, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}

	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

func positive[T int | float64 | time.Duration](field string, value T) error {
	if value > 0 { // Also false for NaN.
		return nil
	}
	return fmt.Errorf("%s is %v: it must be above zero", field, value)
}
