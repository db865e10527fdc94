package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"time"
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

	// userAgent identifies this service to the sites.
	userAgent = "expediter-importer/1"

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

	// Photo configures how photos are read. Defaults to tesseract, where that is installed.
	Photo Photo

	// TempDir is the folder for temporary files, which must exist and may be that of others as well. What this user's processes have left
	// when they ended is removed. Defaults to the system's.
	TempDir string

	// Timeout bounds the fetching of one file or page, redirects included. Defaults to 30 seconds.
	Timeout time.Duration

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
	for _, network := range c.AllowNetworks {
		if !network.IsValid() {
			errs = append(errs, errors.New("source: Config.AllowNetworks holds a network that is not valid: make it with netip.ParsePrefix"))
		}
	}
	return errors.Join(errs...)
}
