package remote

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// Config sets up a [Client]. Everything but AllowHTTP, Token and Transport is required.
type Config struct {
	// AllowHTTP permits plain http to another machine.
	AllowHTTP bool
	// BaseURL is what paths are appended to.
	BaseURL string
	// Name stands in errors.
	Name string
	// Timeout bounds a call.
	Timeout time.Duration
	// Token is sent in TokenHeader, after TokenPrefix, when it is not empty. TokenField is what the caller calls it.
	Token, TokenField, TokenHeader, TokenPrefix string
	// Transport makes the calls. Defaults to one of the client's own.
	Transport http.RoundTripper
}

// validate reports everything that is wrong at once. It repeats no address and no token: they may be secret.
func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(c.Name+": "+format, args...)) }
	switch u, err := url.Parse(c.BaseURL); {
	case c.BaseURL == "":
		bad("Config.BaseURL is missing")
	case err != nil:
		bad("Config.BaseURL does not parse as a URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		bad("Config.BaseURL is not an http or https address with a host")
	case u.User != nil:
		bad("Config.BaseURL holds a user name: use Config.%s", c.TokenField)
	case u.RawQuery != "" || u.Fragment != "":
		bad("Config.BaseURL has a query or a fragment")
	case u.Scheme == "http" && !c.AllowHTTP && !loopback(u.Hostname()):
		bad("Config.BaseURL is plain http to another machine, which anybody between may read: use https, or set AllowHTTP")
	}
	if c.Timeout <= 0 {
		bad("Config.Timeout is %s: want more than 0, or 0 for the default", c.Timeout)
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r < ' ' || r > '~' }) {
		bad("Config.%s holds characters that no header may hold", c.TokenField)
	}
	return errors.Join(errs...)
}

// Address returns a base URL as it may be printed.
func Address(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return "an address that does not parse"
	}
	return u.Redacted()
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
