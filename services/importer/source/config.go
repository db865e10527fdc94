package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/expediter-io/expediter/internal/guardeddial"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/source/internal/fetch"
)

// The defaults of a Config.
const (
	defaultMaxBytes      = 8 << 20
	defaultPhotoTimeout  = 60 * time.Second
	defaultSocketTimeout = 20 * time.Second
	defaultTimeout       = 30 * time.Second
	defaultVideoTimeout  = 90 * time.Second

	// maxTranscript bounds the text that is kept of a caption file, in bytes: some 20 hours of speech. The rest is left out, and
	// Material.Truncated is set.
	maxTranscript = 1 << 20

	// maxCue bounds the text of one cue to a part of maxTranscript, so that a long cue does not displace all others.
	maxCue = maxTranscript / 4

	// minTranscript is the number of characters below which a transcript, and the description that comes with it, are too
	// short to hold a recipe.
	minTranscript = 50

	// defaultUserAgent identifies this service to the sites, in the form of well-known robots. Some sites refuse any other beginning.
	defaultUserAgent = "Mozilla/5.0 (compatible; expediter-importer/1)"

	// minVersionTimeout is the least time that yt-dlp gets to print its version. If the version takes longer than Timeout,
	// no video can be fetched on this machine.
	minVersionTimeout = 30 * time.Second
)

// Config sets up [Sources]. The zero value reads caption files from public addresses.
type Config struct {
	// AllowNetworks are networks that may be dialled although they are private, loopback or link-local. Defaults to none.
	AllowNetworks []netip.Prefix

	// Files has the files that clients have sent, by the URLs of [contracts.File]. Defaults to none: such URLs are
	// refused.
	Files Files

	// Logger gets the failures that no request returns, such as a temporary folder that could not be removed. Defaults
	// to none.
	Logger *slog.Logger

	// MaxBytes bounds the bytes of a file or page that are read, after decompression. The rest is left out, and
	// Material.Truncated is set. A larger photo is refused. Defaults to 8 MiB.
	MaxBytes int64

	// PageText hands over the text of a page that has neither a recipe as data nor a video, for an extractor that understands any
	// text. Defaults to false: such a page is refused.
	PageText bool

	// Photo configures how photos are read. Defaults to tesseract, where that is installed.
	Photo Photo

	// TempDir is the folder for temporary files, which must exist and may be that of others as well. What this user's processes have left
	// when they ended is removed. Defaults to the system's.
	TempDir string

	// Timeout bounds the fetching of one file or page, redirects included. Defaults to 30 seconds.
	Timeout time.Duration

	// UserAgent is the header with which files and pages are fetched, for sites that refuse agents that they do not know. Defaults to
	// "Mozilla/5.0 (compatible; expediter-importer/1)".
	UserAgent string

	// YouTube turns on videos, which need the program yt-dlp. Defaults to nil: videos are refused.
	YouTube *YouTube
}

// Files finds files by their content.
type Files interface {
	// Get returns the content that has a SHA-256. The error wraps ErrNoFile when there is no such file, or no longer.
	Get(ctx context.Context, digest [sha256.Size]byte) ([]byte, error)
}

// ErrNoFile is returned by [Files] for a file that they do not have.
var ErrNoFile = errors.New("source: there is no such file")

// Photo configures how the text of photos is read. The photo itself is also passed on, for extractors that read
// images.
type Photo struct {
	// Languages are the languages of the text, as tesseract names them, such as eng+deu. When set, tesseract and the data
	// of the languages are required. Defaults to eng.
	Languages string

	// Program is the name or path of tesseract, which is then required. Defaults to tesseract where that is installed.
	Program string

	// Timeout bounds the reading of one photo; the program is then killed. Defaults to 60 seconds.
	Timeout time.Duration
}

// YouTube configures how videos of YouTube are fetched. The zero value is good for most.
type YouTube struct {
	// CAFile is a file of certificates in PEM that are trusted instead of the system's, for a proxy that needs them.
	// Defaults to none.
	CAFile string

	// Program is the name or path of yt-dlp. Defaults to yt-dlp.
	Program string

	// Proxy is the http or https address of a proxy, which may hold a password. Defaults to none.
	Proxy string

	// SocketTimeout bounds the wait for an answer of the site. Defaults to 20 seconds.
	SocketTimeout time.Duration

	// Timeout bounds all work for one video, and the call for the program's version at the start. After it the program and
	// all processes that it started are killed. Defaults to 90 seconds.
	Timeout time.Duration
}

func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.MaxBytes = cmp.Or(c.MaxBytes, defaultMaxBytes)
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Photo.Languages = cmp.Or(c.Photo.Languages, "eng")
	c.Photo.Program = cmp.Or(c.Photo.Program, "tesseract")
	c.Photo.Timeout = cmp.Or(c.Photo.Timeout, defaultPhotoTimeout)
	c.TempDir = cmp.Or(c.TempDir, os.TempDir())
	c.UserAgent = cmp.Or(c.UserAgent, defaultUserAgent)
	if c.YouTube != nil {
		y := *c.YouTube
		y.Program = cmp.Or(y.Program, "yt-dlp")
		y.SocketTimeout = cmp.Or(y.SocketTimeout, defaultSocketTimeout)
		y.Timeout = cmp.Or(y.Timeout, defaultVideoTimeout)
		c.YouTube = &y
	}
	return c
}

// validate reports everything that is wrong at once. It expects the defaults to be set.
func (c Config) validate() error {
	var errs []error
	positive := func(name string, value int64) {
		if value <= 0 {
			errs = append(errs, fmt.Errorf("source: Config.%s is %d: want more than 0, or 0 for the default", name, value))
		}
	}
	positive("MaxBytes", c.MaxBytes)
	positive("Photo.Timeout", int64(c.Photo.Timeout))
	positive("Timeout", int64(c.Timeout))
	if y := c.YouTube; y != nil {
		positive("YouTube.SocketTimeout", int64(y.SocketTimeout))
		positive("YouTube.Timeout", int64(y.Timeout))
		if u, err := url.Parse(y.Proxy); y.Proxy != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			errs = append(errs, errors.New("source: Config.YouTube.Proxy is no http or https address"))
		}
	}
	if !httpguts.ValidHeaderFieldValue(c.UserAgent) {
		errs = append(errs, fmt.Errorf("source: Config.UserAgent is %.64q: want text without control characters", c.UserAgent))
	}
	for _, network := range c.AllowNetworks {
		if !network.IsValid() {
			errs = append(errs, errors.New("source: Config.AllowNetworks holds a network that is not valid: make it with netip.ParsePrefix"))
		}
	}
	return errors.Join(errs...)
}

// messageTooShort is a message that the importer's API documents.
const messageTooShort = "Transcript is too short (%d characters). Recipe videos typically have longer transcripts."

// ErrYouTube is returned by New when YouTube is turned on and yt-dlp is missing, too old, or does not work.
var ErrYouTube = errors.New("source: videos of YouTube cannot be fetched")

// Error is returned when a source cannot be fetched.
type Error struct {
	// Code is the class of the error.
	Code contracts.ImportCode
	// Outage reports whether the site does not work, or limits our calls, for all sources: a later attempt may succeed,
	// for this source or another.
	Outage bool
	// Page reports that the site answered with an error that says nothing about other sources (HTTP 500). It is no Outage.
	Page bool
	// Retryable reports whether a later attempt may succeed.
	Retryable bool
	// RetryAfter is the wait that the server has asked for; zero when it has asked for none.
	RetryAfter time.Duration
	// Site is the failed site, as [Site] names it, if a redirect or a page led from the request's site to another.
	Site string
	// Message is for a person. It holds no secrets, no paths and at most 500 bytes.
	Message string
	// Err is the cause, for the log; may be nil.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	text := "source: " + string(e.Code) + ": " + e.Message
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// passing are the codes of failures after which a later attempt may succeed.
var passing = []contracts.ImportCode{failure.BotCheck, failure.Network, failure.RateLimited, failure.Timeout}

// failed makes the error of a code.
func failed(code contracts.ImportCode, err error, format string, args ...any) *Error {
	message := redact.Clip(fmt.Sprintf(format, args...), maxMessage)
	return &Error{Code: code, Retryable: slices.Contains(passing, code), Message: message, Err: err}
}

// fetchError returns the error for a file that could not be fetched over HTTP. subject names the file in messages:
// "The caption file".
func fetchError(ctx context.Context, subject string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("source: %w", context.Cause(ctx))
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	var status *fetch.StatusError
	var blocked *guardeddial.BlockedError
	var timeout *fetch.TimeoutError
	var name *net.DNSError
	switch {
	case errors.As(err, &status):
		return statusError(subject, status)
	case errors.As(err, &blocked):
		return failed(failure.Unavailable, err, "%s is at an address that may not be fetched: %s", subject, blocked.Reason)
	case errors.Is(err, fetch.ErrHollow):
		return failed(failure.Unavailable, err, "%s could not be read: it is longer compressed than unpacked", subject)
	case errors.Is(err, fetch.ErrEncoding):
		return failed(failure.Unavailable, err, "%s is compressed in a form that was not asked for: want gzip, br or zstd", subject)
	case errors.As(err, &timeout):
		return outage(failed(failure.Timeout, err, "%s did not arrive within %s", subject, timeout.After))
	case errors.As(err, &name) && name.IsNotFound:
		return failed(failure.Network, err, "%s could not be fetched: its host has no address", subject)
	default:
		return outage(failed(failure.Network, err, "%s could not be fetched: the connection failed", subject))
	}
}

// outage marks an error as an outage of the site, unless no later attempt can succeed.
func outage(err *Error) *Error {
	if at := fetch.FailedAt(err.Err); err.Retryable && at != nil {
		err.Site = siteOf(at)
	}
	err.Outage = err.Retryable
	return err
}

// byHand is the advice for what only a person with a browser gets.
const byHand = "Open it in a browser, save it, and hand in the file"

func statusError(subject string, err *fetch.StatusError) *Error {
	var out *Error
	switch code := err.Status; {
	case err.Challenge:
		out = failed(failure.BotCheck, err, "%s is behind a test that lets people in and programs out (HTTP %d). %s", subject, code, byHand)
		out.Retryable = false // a program does not pass it later either
	case code == http.StatusTooManyRequests:
		out = failed(failure.RateLimited, err, "%s is rate limited by its site (HTTP 429)", subject)
	case code == http.StatusRequestTimeout, code >= 500:
		out = failed(failure.Network, err, "%s could not be fetched: the site answered HTTP %d", subject, code)
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		out = failed(failure.Private, err, "%s was refused: the site answered HTTP %d, because it wants a login or no programs. %s",
			subject, code, byHand)
	default:
		out = failed(failure.Unavailable, err, "%s is not there: the site answered HTTP %d", subject, code)
	}
	if out.Retryable {
		out.RetryAfter = err.RetryAfter
	}
	if out.Page = err.Status == http.StatusInternalServerError || err.Status == http.StatusNotImplemented; out.Page {
		return out
	}
	return outage(out)
}
