package openai

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/expediter-io/expediter/services/importer/extract/internal/remote"
)

// What a Config falls back to.
const (
	defaultMaxAnswerBytes     = 1 << 20
	defaultMaxImageBytes      = 8 << 20
	defaultMaxTranscriptBytes = 200_000
	defaultTimeout            = 2 * time.Minute
	defaultUserAgent          = "expediter-importer/1"
)

// Format is how the model is held to JSON.
type Format string

// The formats, from the strictest to the loosest.
const (
	// FormatSchema is response_format json_schema with strict set: the server makes no other answer possible.
	FormatSchema Format = "json_schema"
	// FormatObject is response_format json_object, with the schema in the prompt.
	FormatObject Format = "json_object"
	// FormatText sends no response_format; the schema is in the prompt.
	FormatText Format = "text"
)

// formats are in the order in which one falls back to the next.
var formats = []Format{FormatSchema, FormatObject, FormatText}

// Usage is what a call cost.
type Usage struct {
	// PromptTokens and CompletionTokens are as the server counts them, 0 when it does not say.
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
}

// Config sets up an [Extractor]. BaseURL and Model have no default.
type Config struct {
	// AllowHTTP permits plain http to a server on another machine. Defaults to false.
	AllowHTTP bool

	// BaseURL is the address of the API, with its version, such as https://api.openai.com/v1; /chat/completions is appended.
	// Required.
	BaseURL string

	// Format is the first format that is tried. Defaults to FormatSchema.
	Format Format

	// Key is sent as a bearer token. Defaults to none.
	Key string

	// MaxAnswerBytes bounds an answer, unpacked; a longer one is an error. Defaults to 1 MiB.
	MaxAnswerBytes int64

	// MaxImageBytes bounds a photo; a larger one is not sent, and is an error when there is no text. Defaults to 8 MiB.
	MaxImageBytes int

	// MaxTokens bounds the answer in tokens, those of reasoning among them, by max_completion_tokens. Defaults to the
	// server's own bound.
	MaxTokens int

	// MaxTranscriptBytes bounds the transcript that is sent; the rest is left out, and the recipe says so with a warning.
	// Defaults to 200,000, some 50,000 tokens of English.
	MaxTranscriptBytes int

	// Model is the name of the model. Required.
	Model string

	// OnUsage is called with the cost of each answered call, in the goroutine of Extract. Defaults to nothing.
	OnUsage func(Usage)

	// Temperature is sent as it is; some models take none. Defaults to not sent.
	Temperature *float64

	// Timeout bounds a call from beginning to end. Defaults to 2 minutes.
	Timeout time.Duration

	// Transport makes the calls. Defaults to one that heeds the proxies of the environment.
	Transport http.RoundTripper

	// UserAgent names us to the server. Defaults to expediter-importer/1.
	UserAgent string

	// Vision is true for a model that reads images, so that photos are sent. Defaults to false.
	Vision bool
}

// String names the service, without Key.
func (c Config) String() string { return c.Model + " at " + remote.Address(c.BaseURL) }

// GoString returns String, so that nothing prints Key.
func (c Config) GoString() string { return c.String() }

// LogValue returns String, so that nothing logs Key.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c Config) withDefaults() Config {
	c.Format = cmp.Or(c.Format, FormatSchema)
	c.MaxAnswerBytes = cmp.Or(c.MaxAnswerBytes, defaultMaxAnswerBytes)
	c.MaxImageBytes = cmp.Or(c.MaxImageBytes, defaultMaxImageBytes)
	c.MaxTranscriptBytes = cmp.Or(c.MaxTranscriptBytes, defaultMaxTranscriptBytes)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.UserAgent = cmp.Or(c.UserAgent, defaultUserAgent)
	return c
}

// remote is the part that the client checks.
func (c Config) remote() remote.Config {
	return remote.Config{
		AllowHTTP: c.AllowHTTP, BaseURL: c.BaseURL, MaxAnswerBytes: c.MaxAnswerBytes, Name: Name, Timeout: c.Timeout,
		Token: c.Key, TokenField: "Key", TokenHeader: "Authorization", TokenPrefix: "Bearer ", Transport: c.Transport, UserAgent: c.UserAgent,
	}
}

func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("openai: "+format, args...)) }
	if level(c.Format) < 0 {
		bad("Config.Format is %q: want one of %v", c.Format, formats)
	}
	if c.MaxImageBytes <= 0 {
		bad("Config.MaxImageBytes is %d: want more than 0, or 0 for the default", c.MaxImageBytes)
	}
	if c.MaxTokens < 0 {
		bad("Config.MaxTokens is %d: want more than 0, or 0 for the server's bound", c.MaxTokens)
	}
	if c.MaxTranscriptBytes <= 0 {
		bad("Config.MaxTranscriptBytes is %d: want more than 0, or 0 for the default", c.MaxTranscriptBytes)
	}
	if c.Model == "" {
		bad("Config.Model is missing")
	}
	if t := c.Temperature; t != nil && !(*t >= 0 && *t <= 2) {
		bad("Config.Temperature is %v: want 0 to 2", *t)
	}
	return errors.Join(errs...)
}
