package openai

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/expediter-io/expediter/services/importer/extract/internal/remote"
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

// Config sets up an [Extractor]. BaseURL and Model have no default.
type Config struct {
	// AllowHTTP permits plain http to a server on another machine. Defaults to false.
	AllowHTTP bool

	// BaseURL is the address of the API, with its version, such as https://api.openai.com/v1; /chat/completions is appended.
	// Required.
	BaseURL string

	// Key is sent as a bearer token. Defaults to none.
	Key string

	// Model is the name of the model. Required.
	Model string

	// Timeout bounds a call from beginning to end. Defaults to 2 minutes.
	Timeout time.Duration

	// Transport makes the calls. Defaults to one that heeds the proxies of the environment.
	Transport http.RoundTripper

	// Vision is true for a model that reads images, so that photos are sent. Defaults to false.
	Vision bool
}

// String names the service, without Key.
func (c Config) String() string { return c.Model + " at " + remote.Address(c.BaseURL) }

// GoString returns String, so that nothing prints Key.
func (c Config) GoString() string { return c.String() }

// LogValue returns String, so that nothing logs Key.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// remote is the configuration of the client.
func (c Config) remote() remote.Config {
	return remote.Config{
		AllowHTTP: c.AllowHTTP, BaseURL: c.BaseURL, Name: Name, Timeout: cmp.Or(c.Timeout, 2*time.Minute),
		Token: c.Key, TokenField: "Key", TokenHeader: "Authorization", TokenPrefix: "Bearer ", Transport: c.Transport,
	}
}
