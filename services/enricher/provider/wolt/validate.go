package wolt

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"time"
)

var languageTag = regexp.MustCompile(`^[a-zA-Z]{2,8}(-[a-zA-Z0-9]{1,8})*$`)

// validate reports everything that is wrong with the configuration.
func (c Config) validate() error {
	errs := []error{
		c.validateBaseURL(),
		positive("BreakerFailures", c.BreakerFailures),
		positive("BreakerPause", c.BreakerPause),
		positive("Burst", c.Burst),
		positive("CallTimeout", c.CallTimeout),
		positive("CitiesTTL", c.CitiesTTL),
		positive("MaxBodyBytes", c.MaxBodyBytes),
		positive("MaxCalls", c.MaxCalls),
		positive("MaxCities", c.MaxCities),
		positive("MaxRetryAfter", c.MaxRetryAfter),
		positive("Rate", c.Rate),
		positive("RateLimitPause", c.RateLimitPause),
		positive("Timeout", c.Timeout),
		headerValue("ClientID", c.ClientID),
		headerValue("ClientVersion", c.ClientVersion),
		headerValue("UserAgent", c.UserAgent),
	}

	for _, language := range append([]string{c.LinkLanguage}, c.Languages...) {
		if !languageTag.MatchString(language) {
			errs = append(errs, fmt.Errorf("language %q is no language tag such as en", language))
		}
	}

	if _, err := absoluteURL(c.LinkBase); err != nil {
		errs = append(errs, fmt.Errorf("LinkBase %q: %w", c.LinkBase, err))
	}
	return errors.Join(errs...)
}

func (c Config) validateBaseURL() error {
	if c.BaseURL == "" {
		return errors.New("BaseURL is missing: set it to an address that you may ask automatically; there is no default")
	}

	u, err := absoluteURL(c.BaseURL)
	if err != nil {
		return fmt.Errorf("BaseURL: %w", err) // The text may hold a password: it is not repeated.
	}

	if u.Scheme == "http" && !c.AllowHTTP && !loopback(u.Hostname()) {
		return fmt.Errorf("BaseURL asks %s over plain http: use https, or set AllowHTTP", u.Host)
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

func positive[T int | int64 | float64 | time.Duration](field string, value T) error {
	if value > 0 { // Also false for NaN.
		return nil
	}
	return fmt.Errorf("%s is %v: it must be above zero", field, value)
}

// headerValue refuses what could not be sent as a header, or would break out of it.
func headerValue(field, value string) error {
	for _, r := range value {
		if r < ' ' || r > '~' {
			return fmt.Errorf("%s %q holds characters that no header may hold", field, value)
		}
	}
	return nil
}
