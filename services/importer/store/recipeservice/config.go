// Package recipeservice stores recipes in a Recipe Service, by its four internal endpoints:
//
//	GET  /internal/import-jobs/:job_id             the status of a job
//	POST /internal/import-jobs/:job_id/status      a new status
//	POST /internal/import-jobs/:job_id/transcript  the transcript of the source
//	POST /internal/recipes/from-import-job         the recipe; idempotent by job id
//
// Every call carries the header x-service-token. A call is made once: the caller repeats it if the error is retryable. No
// error and no log line holds the token, or an answer's body beyond its error message.
package recipeservice

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Config sets up a [Store].
type Config struct {
	// AllowHTTP permits plain http to another machine, such as one in the same cluster. Defaults to false.
	AllowHTTP bool

	// BaseURL is the address of the service. Required.
	BaseURL string

	// Timeout bounds a call from beginning to end. Defaults to 10 seconds.
	Timeout time.Duration

	// Token is sent in the header x-service-token. Required.
	Token string

	// Transport makes the calls. Defaults to one of the store's own, which heeds the proxies of the environment.
	Transport http.RoundTripper
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	return c
}

// Validate reports everything that is wrong at once. It repeats neither the address nor the token: both may be secret.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("recipe service: "+format, args...)) }
	switch u, err := url.Parse(c.BaseURL); {
	case c.BaseURL == "":
		bad("its address is missing")
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		bad("its address is not an http or https URL with a host")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		bad("its address has a user name, a query or a fragment")
	case u.Scheme == "http" && !c.AllowHTTP && !isLoopback(u.Hostname()):
		bad("its address is plain http to another machine, where the token may be read by anybody between: use https, or allow it")
	}
	if c.Token == "" {
		bad("the token is missing")
	} else if !httpguts.ValidHeaderFieldValue(c.Token) {
		bad("the token holds characters that no header may hold")
	}
	if c.Timeout < 0 {
		bad("its timeout is %s: want more than 0", c.Timeout)
	}
	return errors.Join(errs...)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
