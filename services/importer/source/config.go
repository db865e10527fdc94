package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// What a Config falls back to.
const (
	defaultMaxBytes      = 8 << 20
	defaultMaxTranscript = 1 << 20
	defaultMinTranscript = 50
	defaultPhotoTimeout  = 60 * time.Second
	defaultSocketTimeout = 20 * time.Second
	defaultTimeout       = 30 * time.Second
	defaultUserAgent     = "expediter-importer/1"
	defaultVideoTimeout  = 90 * time.Second

	// minVersionTimeout is how long yt-dlp may take at least to say its version. On a machine so slow that it takes longer
	// than all that is done for a video, no video can be fetched.
	minVersionTimeout = 30 * time.Second
)

// Config sets up [Sources]. The zero value reads caption files from public addresses.
type Config struct {
	// AllowNetworks are networks that may be dialled although they are private, loopback or link-local. Defaults to none.
	AllowNetworks []netip.Prefix

	// Files holds the files that were handed in, whose URLs are those of [contracts.File]. Defaults to none: such URLs are
	// refused.
	Files Files

	// Logger gets what is no error of a request, such as a temporary folder that could not be removed. Defaults to none.
	Logger *slog.Logger

	// MaxBytes is how much of a file or page is read, unpacked; the rest is left out, which Material.Truncated reports. A
	// photo that is larger is refused. Defaults to 8 MiB.
	MaxBytes int64

	// MaxTranscriptBytes is how much text is kept of a caption file; the rest is left out, which Material.Truncated reports.
	// Defaults to 1 MiB, which is some 20 hours of speech.
	MaxTranscriptBytes int64

	// MinTranscript is the number of characters below which a transcript, and the description that comes with it, are too
	// short to hold a recipe. -1 lets any length pass. Defaults to 50.
	MinTranscript int

	// Photo configures how photos are read. Defaults to tesseract, where that is installed.
	Photo Photo

	// TempDir is the folder for temporary files, of which nothing else makes use. What was left in it by a process that is gone
	// is removed. Defaults to the folder expediter-importer among the temporary files of the system.
	TempDir string

	// Timeout bounds the fetching of one file or page, redirects included. Defaults to 30 seconds.
	Timeout time.Duration

	// UserAgent identifies this service to the sites. Defaults to expediter-importer/1.
	UserAgent string

	// YouTube turns on what needs the program yt-dlp. Defaults to nil: videos are refused.
	YouTube *YouTube
}

// Files finds files by their content.
type Files interface {
	// Get returns the content that has a SHA-256. The error wraps ErrNoFile when it is not there, or not any more.
	Get(ctx context.Context, digest [sha256.Size]byte) ([]byte, error)
}

// ErrNoFile is to be wrapped by [Files] that do not have a file.
var ErrNoFile = errors.New("source: there is no such file")

// Photo configures how the text of photos is read. Each photo is passed on as well, for extractors that can see.
type Photo struct {
	// Languages are those to look for, as tesseract names them, such as eng+deu. It then has to be there, with their data.
	// Defaults to eng.
	Languages string

	// Program is the name or path of tesseract, which then has to be there. Defaults to tesseract where that is installed.
	Program string

	// Timeout bounds the reading of one photo; the program is then killed. Defaults to 60 seconds.
	Timeout time.Duration
}

// YouTube configures how videos of YouTube are fetched. The zero value is good for most.
type YouTube struct {
	// CAFile is a file of certificates in PEM to trust instead of the system's, where a proxy needs it. Defaults to none.
	CAFile string

	// Program is the name or path of yt-dlp. Defaults to yt-dlp.
	Program string

	// Proxy is the http or https address of a proxy, which may hold a password. Defaults to none.
	Proxy string

	// SocketTimeout bounds the wait for an answer of the site. Defaults to 20 seconds.
	SocketTimeout time.Duration

	// Timeout bounds all that is done for one video, and the question for the program's version at the start; the program and
	// whatever it started is then killed. Defaults to 90 seconds.
	Timeout time.Duration
}

func (c Config) withDefaults() Config {
	c.Logger = orDefault(c.Logger, slog.New(slog.DiscardHandler))
	c.MaxBytes = orDefault(c.MaxBytes, defaultMaxBytes)
	c.MaxTranscriptBytes = orDefault(c.MaxTranscriptBytes, defaultMaxTranscript)
	c.MinTranscript = orDefault(c.MinTranscript, defaultMinTranscript)
	c.Timeout = orDefault(c.Timeout, defaultTimeout)
	c.UserAgent = orDefault(c.UserAgent, defaultUserAgent)
	c.Photo.Languages = orDefault(c.Photo.Languages, "eng")
	c.Photo.Program = orDefault(c.Photo.Program, "tesseract")
	c.Photo.Timeout = orDefault(c.Photo.Timeout, defaultPhotoTimeout)
	c.TempDir = orDefault(c.TempDir, filepath.Join(os.TempDir(), "expediter-importer"))
	if c.YouTube != nil {
		y := *c.YouTube
		y.Program = orDefault(y.Program, "yt-dlp")
		y.SocketTimeout = orDefault(y.SocketTimeout, defaultSocketTimeout)
		y.Timeout = orDefault(y.Timeout, defaultVideoTimeout)
		c.YouTube = &y
	}
	return c
}

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
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
	positive("MaxTranscriptBytes", c.MaxTranscriptBytes)
	positive("Photo.Timeout", int64(c.Photo.Timeout))
	positive("Timeout", int64(c.Timeout))
	if c.MinTranscript < -1 {
		errs = append(errs, fmt.Errorf("source: Config.MinTranscript is %d: want -1 or more", c.MinTranscript))
	}
	if y := c.YouTube; y != nil {
		positive("YouTube.SocketTimeout", int64(y.SocketTimeout))
		positive("YouTube.Timeout", int64(y.Timeout))
		if u, err := url.Parse(y.Proxy); y.Proxy != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			errs = append(errs, errors.New("source: Config.YouTube.Proxy is no http or https address"))
		}
	}
	for _, network := range c.AllowNetworks {
		if !network.IsValid() {
			errs = append(errs, errors.New("source: Config.AllowNetworks holds a network that is not valid: make it with netip.ParsePrefix"))
		}
	}
	return errors.Join(errs...)
}
