package ytdlp

import (
	"regexp"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/redact"
)

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
	words  *regexp.Regexp
}

// classes are tried in order, the more specific first. The words are from versions 2023 to 2026.
var classes = []class{
	{contracts.CodeCaptionsBlocked, captionsBlocked, regexp.MustCompile(`any data blocks`)}, // the file is empty
	{contracts.CodeBadCaptions, tooLarge, regexp.MustCompile(`file too large`)},
	{contracts.CodeRateLimited, rateLimited, regexp.MustCompile(`http error 429|too many requests|rate[- ]limited`)},
	{contracts.CodeNetwork, noNetwork, regexp.MustCompile(`http error 5[0-9]{2}`)},
	{contracts.CodeBotCheck, botCheck, regexp.MustCompile(`not a bot|captcha|http error 403`)},
	{contracts.CodePrivate, aged, regexp.MustCompile(`confirm your age|age[- ]restricted|inappropriate for some users`)},
	{contracts.CodePrivate, members, regexp.MustCompile(`members[- ]only|join this channel|requires payment|premium members`)},
	{contracts.CodePrivate, unavailable, regexp.MustCompile(`private video|video is private|sign in|log ?in required|use --cookies`)},
	{contracts.CodeUnavailable, foreign, regexp.MustCompile(`geo.?restrict|your (country|location|region)`)},
	{contracts.CodeUnavailable, upcoming, regexp.MustCompile(`(event|stream) will begin|premieres? (in|will)|will premiere`)},
	{contracts.CodeUnavailable, live, regexp.MustCompile(`is live|live ?stream|live event`)},
	{contracts.CodeUnavailable, gone, regexp.MustCompile(`removed|deleted|terminated|does not exist|no longer available`)},
	{contracts.CodeUnavailable, unavailable, regexp.MustCompile(`unavailable|not available|isn't available|http error (404|410)|no video`)},
	{contracts.CodeTimeout, slowNetwork, regexp.MustCompile(`timed out|timeout`)},
	{contracts.CodeNetwork, noNetwork, regexp.MustCompile(`errno|not known|connection|reset by peer|unreachable|` +
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
		return &Error{Code: contracts.CodeCaptionsBlocked, Detail: captionsBlocked, Err: said(bounded(lines))}
	}
	switch status {
	case "is_live", "post_live":
		return &Error{Code: contracts.CodeUnavailable, Detail: live, Err: said(bounded(lines))}
	case "is_upcoming":
		return &Error{Code: contracts.CodeUnavailable, Detail: upcoming, Err: said(bounded(lines))}
	default:
	}
	if !playable {
		if err := explain(lines); err != nil {
			return err
		}
	}
	return &Error{Code: contracts.CodeNoCaptions, Detail: noCaptions, Err: said(bounded(lines))}
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
	case contracts.CodeBadCaptions, contracts.CodeNetwork, contracts.CodeRateLimited, contracts.CodeTimeout:
		return err
	default:
		return &Error{Code: contracts.CodeCaptionsBlocked, Detail: captionsBlocked, Err: err.Err}
	}
}

var (
	origin = regexp.MustCompile(`^(ERROR|WARNING): (\[[^\]]*\] )?([A-Za-z0-9_-]{11}: )?`)
	advice = regexp.MustCompile(`(?i)[;.] *(please report|confirm you are|see +http|use --|also see).*$`)
	hidden = regexp.MustCompile(`[^ ]*(://|@)[^ ]*|/[^ ]*`)
)

// unknown returns the error for messages of no class, with their first words, without addresses and paths.
func unknown(stderr string) *Error {
	lines := saidAs(stderr, "ERROR:")
	detail := "no reason given"
	if len(lines) > 0 {
		detail = hidden.ReplaceAllString(advice.ReplaceAllString(origin.ReplaceAllString(lines[0], ""), ""), "...")
	}
	return &Error{Code: contracts.CodeUnavailable, Detail: "yt-dlp failed: " + detail, Err: said(bounded(saidAs(stderr, "")))}
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
