package catalog

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// What a Config falls back to.
const (
	defaultMaxBytes      = 256 << 20
	defaultMaxCandidates = 50
	defaultMaxVenues     = 1_000_000
	defaultName          = "catalog"
	defaultURLTemplate   = "https://catalog.invalid/venues/{id}"
)

// Config sets up a [Catalog]. The zero value is usable.
type Config struct {
	// MaxBytes bounds the size of a file. Defaults to 256 MiB.
	MaxBytes int64

	// MaxCandidates bounds the venues that a search returns. Defaults to 50.
	MaxCandidates int

	// MaxVenues bounds the number of rows, good and bad. Defaults to 1,000,000.
	MaxVenues int

	// Name is the provider's name. Defaults to catalog.
	Name string

	// OnBadRow is called with each row that cannot be used, which is then left out. Defaults to nil: bad rows keep a file
	// from being loaded.
	OnBadRow func(RowError)

	// URLTemplate makes the URL of a venue that has none of its own, from {id},
	// {name} and {city}, which are escaped for a path. Defaults to
	// https://catalog.invalid/venues/{id}, an address that leads nowhere by
	// definition (RFC 2606).
	URLTemplate string
}

func (c Config) withDefaults() Config {
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultMaxBytes
	}

	if c.MaxCandidates == 0 {
		c.MaxCandidates = defaultMaxCandidates
	}

	if c.MaxVenues == 0 {
		c.MaxVenues = defaultMaxVenues
	}

	if c.Name == "" {
		c.Name = defaultName
	}

	if c.URLTemplate == "" {
		c.URLTemplate = defaultURLTemplate
	}
	return c
}

var (
	nameRule    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	placeholder = regexp.MustCompile(`\{[^{}]*\}`)
)

// validate reports everything that is wrong with the configuration.
func (c Config) validate() error {
	var errs []error

	for _, bound := range []struct {
		field string
		value int64
	}{{"MaxBytes", c.MaxBytes}, {"MaxCandidates", int64(c.MaxCandidates)}, {"MaxVenues", int64(c.MaxVenues)}} {
		if bound.value < 0 {
			errs = append(errs, fmt.Errorf("%s is %d: it must be above zero", bound.field, bound.value))
		}
	}

	if !nameRule.MatchString(c.Name) {
		errs = append(errs, fmt.Errorf("the name %q must be lower-case letters, digits and hyphens, a letter first", c.Name))
	}

	for _, p := range placeholder.FindAllString(c.URLTemplate, -1) {
		if p != "{id}" && p != "{name}" && p != "{city}" {
			errs = append(errs, fmt.Errorf("URLTemplate has %s: only {id}, {name} and {city} are known", p))
		}
	}

	if err := checkURL(placeholder.ReplaceAllString(c.URLTemplate, "x")); err != nil {
		errs = append(errs, fmt.Errorf("URLTemplate %q: %w", c.URLTemplate, err))
	}
	return errors.Join(errs...)
}

// fillURL makes the URL of a venue from the template.
func (c Config) fillURL(id, name, city string) string {
	return strings.NewReplacer(
		"{id}", url.PathEscape(id), "{name}", url.PathEscape(name), "{city}", url.PathEscape(city),
	).Replace(c.URLTemplate)
}

// checkURL accepts what a customer may be sent to.
func checkURL(text string) error {
	u, err := url.Parse(text)

	switch {
	case err != nil:
		return errors.New("it does not parse as a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return errors.New("it does not start with https:// or http://")
	case u.Hostname() == "":
		return errors.New("it has no host")
	case u.User != nil:
		return errors.New("it holds a user name")
	}
	return nil
}
