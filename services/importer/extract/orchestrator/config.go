package orchestrator

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/expediter-io/expediter/services/importer/extract/internal/remote"
)

// What a Config falls back to.
const (
	defaultMaxAnswerBytes     = 1 << 20
	defaultMaxTranscriptBytes = 1 << 20
	defaultTimeout            = 60 * time.Second
	defaultUserAgent          = "expediter-importer/1"
)

// Config sets up an [Extractor]. Only BaseURL has no default.
type Config struct {
	// AllowHTTP permits plain http to a service on another machine, such as one in the same cluster. Defaults to false.
	AllowHTTP bool

	// BaseURL is the address of the service; /extract is appended. Required.
	BaseURL string

	// Context sends the title, description, language and chapters as well, in members that bear these names, to a service
	// that takes them. Defaults to false: the transcript only, or the description where there is no transcript.
	Context bool

	// MaxAnswerBytes bounds an answer, unpacked; a longer one is an error. Defaults to 1 MiB.
	MaxAnswerBytes int64

	// MaxTranscriptBytes bounds the transcript that is sent; the rest is left out, and the recipe says so with a warning.
	// Defaults to 1 MiB.
	MaxTranscriptBytes int

	// Timeout bounds a call from beginning to end. Defaults to 60 seconds.
	Timeout time.Duration

	// Token is sent in the header x-service-token. Defaults to none.
	Token string

	// Transport makes the calls. Defaults to one that heeds the proxies of the environment.
	Transport http.RoundTripper

	// UserAgent names us to the service. Defaults to expediter-importer/1.
	UserAgent string
}

// String names the service, without Token.
func (c Config) String() string { return "orchestrator at " + remote.Address(c.BaseURL) }

// GoString returns String, so that nothing prints Token.
func (c Config) GoString() string { return c.String() }

// LogValue returns String, so that nothing logs Token.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c Config) withDefaults() Config {
	c.MaxAnswerBytes = cmp.Or(c.MaxAnswerBytes, defaultMaxAnswerBytes)
	c.MaxTranscriptBytes = cmp.Or(c.MaxTranscriptBytes, defaultMaxTranscriptBytes)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.UserAgent = cmp.Or(c.UserAgent, defaultUserAgent)
	return c
}

// remote is the part that the client checks.
func (c Config) remote() remote.Config {
	return remote.Config{
		AllowHTTP: c.AllowHTTP, BaseURL: c.BaseURL, MaxAnswerBytes: c.MaxAnswerBytes, Name: Name, Timeout: c.Timeout,
		Token: c.Token, TokenField: "Token", TokenHeader: "X-Service-Token", Transport: c.Transport, UserAgent: c.UserAgent,
	}
}

func (c Config) validate() error {
	if c.MaxTranscriptBytes <= 0 {
		return fmt.Errorf("orchestrator: Config.MaxTranscriptBytes is %d: want more than 0, or 0 for the default", c.MaxTranscriptBytes)
	}
	return nil
}
