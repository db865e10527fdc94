package service

import (
	"cmp"
	"strings"

	"github.com/expediter-io/expediter/pkg/service/access"
)

// LimitConfig bounds what the callers of the HTTP API use. A caller is a key, or the user of an issuer, or else a remote address, of
// which a gateway has one for all of its callers. Refused requests are answered 429, with Retry-After and the name of the quota.
type LimitConfig struct {
	// Connections is how many connections each listener has at a time. A new one takes the place of one that waits for a request;
	// requests beyond seven eighths of them are answered 503. Defaults to 16,384, and at most a quarter of the files that the
	// process may open.
	Connections int `env:"SERVICE_CONNECTIONS"`

	// Rate is how many requests a caller may begin in a second. Defaults to 500, and without Keys and OIDCIssuer to no
	// bound.
	Rate int `env:"SERVICE_RATE"`

	// Requests is how many requests of a caller may be under way at a time, without streams. Defaults to 256, and without
	// Keys and OIDCIssuer to no bound.
	Requests int `env:"SERVICE_REQUESTS"`

	// Streams is how many event streams and WebSockets a caller may have open. Defaults to 1,000, and without Keys and
	// OIDCIssuer to no bound.
	Streams int `env:"SERVICE_STREAMS"`

	// Waiting is how many jobs that a caller submitted to this process may wait for a worker, see [Backlog]. Defaults to 10,000, and
	// without Keys and OIDCIssuer to no bound.
	Waiting int `env:"SERVICE_WAITING"`
}

// minConnections leaves some for requests, and some to wait.
const minConnections = 16

// limits returns the limits with their defaults, for callers that the guard knows.
func (cfg LimitConfig) limits(guard *access.Guard) LimitConfig {
	cfg.Connections = cmp.Or(cfg.Connections, max(minConnections, min(16_384, maxFiles()/4)))
	if guard != nil {
		cfg.Rate, cfg.Requests, cfg.Streams = cmp.Or(cfg.Rate, 500), cmp.Or(cfg.Requests, 256), cmp.Or(cfg.Streams, 1000)
		cfg.Waiting = cmp.Or(cfg.Waiting, 10_000)
	}
	return cfg
}

// validate reports every mistake to bad.
func (cfg LimitConfig) validate(bad func(field, variable string, value any, want string)) {
	if cfg.Connections != 0 && cfg.Connections < minConnections {
		bad("Connections", "CONNECTIONS", cfg.Connections, "at least 16")
	}
	for field, n := range map[string]int{"Rate": cfg.Rate, "Requests": cfg.Requests, "Streams": cfg.Streams, "Waiting": cfg.Waiting} {
		if n < 0 {
			bad(field, strings.ToUpper(field), n, "a positive number")
		}
	}
}
