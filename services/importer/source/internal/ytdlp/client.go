// Package ytdlp gets the description of a video, and exactly one of its caption tracks, by the program
// yt-dlp.
//
// It runs the program twice: once for the description of the video in JSON, by which it decides, and once for the chosen
// track, with a description that names only that track. So it never guesses from exit codes or file names whether a video
// has captions, and a track costs one request.
package ytdlp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
	"github.com/expediter-io/expediter/services/importer/source/internal/program"
)

// MinVersion is the oldest version that knows all options that are used.
const MinVersion = "2023.03.04"

const (
	maxInfo = 16 << 20 // a video with all its translations has one or two megabytes

	// maxMemory is several times the memory that the program takes.
	maxMemory = 512 << 20
)

// Config sets up a [Client]. All fields but CAFile and Proxy are required.
type Config struct {
	// CAFile holds the certificates to trust, in PEM, instead of the system's.
	CAFile string
	// Extractors are the names of the program's extractors that may be used. The program refuses any other site.
	Extractors string
	// Folders makes the folders in which the program works.
	Folders *program.Folders
	// MaxFile bounds a caption file.
	MaxFile int64
	// Path is the path of the program.
	Path string
	// Proxy is the address of an HTTP or SOCKS proxy.
	Proxy string
	// SocketTimeout bounds the waits for the network, and Timeout all work for a video.
	SocketTimeout, Timeout time.Duration
	// VersionTimeout bounds the call for the version.
	VersionTimeout time.Duration
}

// Client runs the program.
type Client struct {
	// Version is the version of the program.
	Version string
	config  Config
}

var versionPattern = lazyregexp.New(`^([0-9]{4}\.[0-9]{2}\.[0-9]{2})(\.[0-9]+)?(\s|$)`)

// New returns a client, or an error when the program is missing or too old.
func New(ctx context.Context, config Config) (*Client, error) {
	path, err := program.Find(config.Path)
	if err != nil {
		return nil, fmt.Errorf("source: YouTube is enabled, but the program %s is missing: install yt-dlp %s or later, or leave YouTube out: %w",
			config.Path, MinVersion, err)
	}
	config.Path = path
	c := &Client{config: config}
	var result *program.Result
	err = config.Folders.Use(ctx, "version", func(dir string) (err error) {
		result, err = program.Run(ctx, c.command(dir, config.VersionTimeout, "--ignore-config", "--version"))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("source: ask %s for its version: %w", config.Path, err)
	}
	version := versionPattern.FindStringSubmatch(string(result.Stdout))
	if result.ExitCode != 0 || version == nil {
		return nil, fmt.Errorf("source: %s --version exits with %d and says %.40q: want a version such as %s",
			config.Path, result.ExitCode, result.Stdout, MinVersion)
	}
	if c.Version = version[1]; c.Version < MinVersion {
		return nil, fmt.Errorf("source: yt-dlp is version %s: want %s or later", c.Version, MinVersion)
	}
	return c, nil
}

// Video is the description of a video, and its captions.
type Video struct {
	Info

	// Track is the chosen track.
	Track Track
	// Captions is the file of the track.
	Captions []byte
	// Truncated reports whether the file was longer than MaxFile.
	Truncated bool
}

// Fetch returns a video and its captions, in the wanted language if there are any in it. The error is an [*Error], or the
// cause of ctx when that was cancelled. A video whose captions cannot be had is returned with the error.
func (c *Client) Fetch(ctx context.Context, jobID, address, want string, progress func(share float64)) (video *Video, err error) {
	err = c.config.Folders.Use(ctx, jobID, func(dir string) (err error) {
		video, err = c.fetch(ctx, dir, address, want, progress)
		return err
	})
	if err != nil {
		return video, c.stopped(ctx, err)
	}
	return video, nil
}

// fetch is Fetch in a folder. Its errors are not classified yet.
func (c *Client) fetch(parent context.Context, dir, address, want string, progress func(share float64)) (*Video, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	timer := time.AfterFunc(c.config.Timeout, func() { cancel(program.ErrTimeout) })
	defer timer.Stop()
	result, err := c.run(ctx, dir, "--skip-download", "--ignore-no-formats-error", "-J", "--", address)
	if err != nil {
		return nil, err
	}
	timer.Stop() // the wait for memory does not count as time of the site
	if err := memory.Hold(parent, memory.ToRead(len(result.Stdout))); err != nil {
		return nil, err
	}
	timer.Reset(c.config.Timeout)
	video := &Video{}
	if video.Info, err = decide(result); err != nil {
		return nil, err
	}
	track, ok := video.choose(want)
	if !ok {
		return video, withoutCaptions(string(result.Stderr), bool(video.Formats), video.LiveStatus)
	}
	progress(0.5)
	video.Track = track
	return video, c.captions(ctx, dir, video)
}

// stopped returns the cause of ctx if that has ended, and otherwise the failure.
func (c *Client) stopped(ctx context.Context, err error) error {
	var known *Error
	switch {
	case errors.As(err, &known):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("source: %w", context.Cause(ctx))
	case errors.Is(err, program.ErrTimeout):
		return &Error{Code: failure.Timeout, Detail: "yt-dlp timeout after " + seconds(c.config.Timeout), Err: err}
	case errors.Is(err, program.ErrOutput):
		return &Error{Code: failure.Unavailable, Detail: "yt-dlp failed: it printed too much", Err: err}
	default:
		return &Error{Code: failure.Unavailable, Detail: "yt-dlp failed: it could not be run", Err: err, Local: true}
	}
}

// captions fetches the track of a video into the folder and reads it.
func (c *Client) captions(ctx context.Context, dir string, video *Video) error {
	const name = "track.json"
	data, err := video.Track.request()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		return fmt.Errorf("source: write the request for a track: %w", err)
	}
	kind := "--write-subs"
	if video.Track.Automatic {
		kind = "--write-auto-subs"
	}
	result, err := c.run(ctx, dir, "--load-info-json", name, "--skip-download", "--ignore-no-formats-error", kind,
		"--sub-langs="+video.Track.Key, "--sub-format=vtt", "--output=sub.%(ext)s")
	if err != nil {
		return err
	}
	video.Captions, video.Truncated, err = readTrack(dir, video.Track.Key, c.config.MaxFile)
	switch {
	case result.ExitCode != 0:
		return trackError(string(result.Stderr))
	case errors.Is(err, os.ErrNotExist):
		return &Error{Code: failure.CaptionsBlocked, Detail: captionsBlocked, Err: errors.New("yt-dlp wrote no file")}
	default:
		return err
	}
}

// run runs the program with the options that all runs have.
func (c *Client) run(ctx context.Context, dir string, args ...string) (*program.Result, error) {
	all := []string{
		"--ignore-config", "--no-cache-dir", "--no-colors", "--no-playlist", "--no-progress",
		"--extractor-retries=0", "--file-access-retries=0", "--retries=0",
		"--socket-timeout=" + strconv.FormatFloat(c.config.SocketTimeout.Seconds(), 'f', 1, 64),
		"--use-extractors=" + c.config.Extractors,
	}
	if c.config.CAFile != "" {
		all = append(all, "--compat-options=no-certifi")
	}
	return program.Run(ctx, c.command(dir, c.config.Timeout, append(all, args...)...))
}

// command returns a run of the program.
func (c *Client) command(dir string, timeout time.Duration, args ...string) program.Command {
	env := []string{"PYTHONDONTWRITEBYTECODE=1", "XDG_CACHE_HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "YTDLP_NO_PLUGINS=1"}
	if home, err := os.UserHomeDir(); err == nil { // for a program installed for one user
		env = append(env, "PYTHONUSERBASE="+filepath.Join(home, ".local"))
	}
	if c.config.CAFile != "" {
		env = append(env, "SSL_CERT_FILE="+c.config.CAFile)
	}
	if c.config.Proxy != "" { // everybody can see the command line
		env = append(env, "http_proxy="+c.config.Proxy, "https_proxy="+c.config.Proxy)
	}
	return program.Command{
		Path: c.config.Path, Args: args, Dir: dir, Env: env, Timeout: timeout, MaxStdout: maxInfo, MaxFile: c.config.MaxFile + 1,
		MaxMemory: maxMemory,
	}
}

func seconds(d time.Duration) string { return strings.TrimSuffix(d.Round(time.Second).String(), "m0s") }

const (
	unavailable     = "Video unavailable or private"
	aged            = unavailable + ": it is restricted by age"
	foreign         = unavailable + ": it is not shown in the importer's country"
	gone            = unavailable + ": it was removed"
	live            = unavailable + ": it is live; import it again some time after its end, when it has captions"
	members         = unavailable + ": it is for members or subscribers, or has to be paid for"
	upcoming        = unavailable + ": it has not begun yet; import it again after its end"
	noCaptions      = "No transcript available - this video may not have captions enabled"
	captionsBlocked = "The video has captions, but its site does not hand them out"
	botCheck        = "The site wants us to prove that we are not a bot"
	rateLimited     = "The site limits how often we may ask"
	noNetwork       = "yt-dlp failed: the site cannot be reached"
	tooLarge        = "The captions are larger than is read"
	slowNetwork     = "yt-dlp failed: the site does not answer in time"
)

// Error is returned when a video or its captions cannot be had.
type Error struct {
	// Code is the class of the error.
	Code contracts.ImportCode
	// Detail is the message for a person.
	Detail string
	// Err is the cause, or the program's message; may be nil.
	Err error
	// Local reports whether the machine is at fault and not the video, so that another attempt may succeed.
	Local bool
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err == nil {
		return string(e.Code) + ": " + e.Detail
	}
	return string(e.Code) + ": " + e.Detail + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// said is a message of the program, as an error.
type said string

// Error implements error.
func (s said) Error() string { return "yt-dlp says: " + string(s) }

// class is a kind of failure, and the words by which it is recognised.
type class struct {
	code   contracts.ImportCode
	detail string
	words  *lazyregexp.Regexp
}

// classes are tried in order, the more specific first. The words are from versions 2023 to 2026.
var classes = []class{
	{failure.CaptionsBlocked, captionsBlocked, lazyregexp.New(`any data blocks`)}, // the file is empty
	{failure.BadCaptions, tooLarge, lazyregexp.New(`file too large`)},
	{failure.RateLimited, rateLimited, lazyregexp.New(`http error 429|too many requests|rate[- ]limited`)},
	{failure.Network, noNetwork, lazyregexp.New(`http error 5[0-9]{2}`)},
	{failure.BotCheck, botCheck, lazyregexp.New(`not a bot|captcha|http error 403`)},
	{failure.Private, aged, lazyregexp.New(`confirm your age|age[- ]restricted|inappropriate for some users`)},
	{failure.Private, members, lazyregexp.New(`members[- ]only|join this channel|requires payment|premium members`)},
	{failure.Private, unavailable, lazyregexp.New(`private video|video is private|sign in|log ?in required|use --cookies`)},
	{failure.Unavailable, foreign, lazyregexp.New(`geo.?restrict|your (country|location|region)`)},
	{failure.Unavailable, upcoming, lazyregexp.New(`(event|stream) will begin|premieres? (in|will)|will premiere`)},
	{failure.Unavailable, live, lazyregexp.New(`is live|live ?stream|live event`)},
	{failure.Unavailable, gone, lazyregexp.New(`removed|deleted|terminated|does not exist|no longer available`)},
	{failure.Unavailable, unavailable, lazyregexp.New(`unavailable|not available|isn't available|http error (404|410)|no video`)},
	{failure.Timeout, slowNetwork, lazyregexp.New(`timed out|timeout`)},
	{failure.Network, noNetwork, lazyregexp.New(`errno|not known|connection|reset by peer|unreachable|` +
		`proxy|ssl|certificate|remote end|incomplete ?read|bytes read|tunnel|temporary failure|eof occurred|getaddrinfo`)},
}

// explain returns the error for the program's messages, by their class. The lines are its errors, or its warnings if
// it has no errors.
func explain(lines []string) *Error {
	text := strings.ToLower(strings.ReplaceAll(strings.Join(lines, "\n"), "’", "'"))
	for _, class := range classes {
		if class.words.MatchString(text) {
			return &Error{Code: class.code, Detail: class.detail, Err: said(bounded(lines))}
		}
	}
	return nil
}

// infoError returns the error for a video that cannot be fetched.
func infoError(stderr string) *Error {
	if err := explain(saidAs(stderr, "ERROR:")); err != nil {
		return err
	}
	if err := explain(saidAs(stderr, "WARNING:")); err != nil {
		return err
	}
	return unknown(stderr)
}

// withoutCaptions returns the error for a missing track. A playable video has no captions, unless it is live. For a video that
// is not playable, the warnings have the reason.
func withoutCaptions(stderr string, playable bool, status text) *Error {
	lines := append(saidAs(stderr, "ERROR:"), saidAs(stderr, "WARNING:")...)
	warnings := strings.ToLower(strings.Join(lines, "\n"))
	if strings.Contains(warnings, "missing subtitles") || strings.Contains(warnings, "po token") && strings.Contains(warnings, "subtitles") {
		return &Error{Code: failure.CaptionsBlocked, Detail: captionsBlocked, Err: said(bounded(lines))}
	}
	switch status {
	case "is_live", "post_live":
		return &Error{Code: failure.Unavailable, Detail: live, Err: said(bounded(lines))}
	case "is_upcoming":
		return &Error{Code: failure.Unavailable, Detail: upcoming, Err: said(bounded(lines))}
	default:
	}
	if !playable {
		if err := explain(lines); err != nil {
			return err
		}
	}
	return &Error{Code: failure.NoCaptions, Detail: noCaptions, Err: said(bounded(lines))}
}

// trackError returns the error for a track that exists and cannot be fetched. When the site refuses the track, the
// video itself is still available.
func trackError(stderr string) *Error {
	err := explain(append(saidAs(stderr, "WARNING: The info failed"), saidAs(stderr, "WARNING: Unable to download")...))
	if err == nil {
		err = explain(saidAs(stderr, "ERROR:"))
	}
	if err == nil {
		return unknown(stderr)
	}
	switch err.Code {
	case failure.BadCaptions, failure.Network, failure.RateLimited, failure.Timeout:
		return err
	default:
		return &Error{Code: failure.CaptionsBlocked, Detail: captionsBlocked, Err: err.Err}
	}
}

var (
	origin = lazyregexp.New(`^(ERROR|WARNING): (\[[^\]]*\] )?([A-Za-z0-9_-]{11}: )?`)
	advice = lazyregexp.New(`(?i)[;.] *(please report|confirm you are|see +http|use --|also see).*$`)
	hidden = lazyregexp.New(`[^ ]*(://|@)[^ ]*|/[^ ]*`)
)

// unknown returns the error for messages of no class, with their first words, without addresses and paths.
func unknown(stderr string) *Error {
	lines := saidAs(stderr, "ERROR:")
	detail := "no reason given"
	if len(lines) > 0 {
		detail = hidden.ReplaceAllString(advice.ReplaceAllString(origin.ReplaceAllString(lines[0], ""), ""), "...")
	}
	return &Error{Code: failure.Unavailable, Detail: "yt-dlp failed: " + detail, Err: said(bounded(saidAs(stderr, "")))}
}

// saidAs returns the lines that begin with a prefix, with their continuations.
func saidAs(stderr, prefix string) []string {
	var out []string
	for line := range strings.Lines(strings.ToValidUTF8(stderr, "?")) {
		line = strings.TrimSpace(line)
		if line != "" && strings.HasPrefix(line, prefix) {
			out = append(out, line)
		}
	}
	return out
}

// bounded returns lines as a bounded text for a log.
func bounded(lines []string) string {
	const most = 1000
	return redact.Clip(strings.Join(lines, " | "), most)
}
