package orchestrator

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/expediter-io/expediter/services/importer/extract/internal/remote"
)

// Config sets up an [Extractor]. Only BaseURL has no default.
type Config struct {
	// AllowHTTP permits plain http to a service on another machine, such as one in the same cluster. Defaults to false.
	AllowHTTP bool

	// BaseURL is the address of the service; /extract is appended. Required.
	BaseURL string

	// Timeout bounds a call from beginning to end. Defaults to 60 seconds.
	Timeout time.Duration

	// Token is sent in the header x-service-token. Defaults to none.
	Token string
}

// String names the service, without Token.
func (c Config) String() string { return "orchestrator at " + remote.Address(c.BaseURL) }

// GoString returns String, so that nothing prints Token.
func (c Config) GoString() string { return c.String() }

// LogValue returns String, so that nothing logs Token.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// remote is the configuration of the client.
func (c Config) remote() remote.Config {
	return remote.Config{
		AllowHTTP: c.AllowHTTP, BaseURL: c.BaseURL, Name: Name, Timeout: cmp.Or(c.Timeout, time.Minute),
		Token: c.Token, TokenField: "Token", TokenHeader: "X-Service-Token",
	}
}
