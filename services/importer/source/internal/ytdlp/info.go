package ytdlp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/source/internal/program"
)

// Info is the used part of the program's description of a video.
type Info struct {
	ID          text     `json:"id"`
	Title       text     `json:"title"`
	Description text     `json:"description"`
	Channel     text     `json:"channel"`
	Uploader    text     `json:"uploader"`
	Language    text     `json:"language"`
	LiveStatus  text     `json:"live_status"`
	Seconds     number   `json:"duration"`
	Chapters    chapters `json:"chapters"`
	Subtitles   tracks   `json:"subtitles"`
	Automatic   tracks   `json:"automatic_captions"`
	Formats     some     `json:"formats"`
}

// Duration returns the length of the video; zero when it is not known.
func (i *Info) Duration() time.Duration { return i.Seconds.duration() }

// Author returns the publisher.
func (i *Info) Author() string {
	return string(cmp.Or(i.Channel, i.Uploader))
}

// decide returns the description that a run has printed, or the error of the run.
func decide(result *program.Result) (Info, error) {
	info, err := decode(result.Stdout)
	switch {
	case result.ExitCode != 0 || errors.Is(err, errNothing):
		return Info{}, infoError(string(result.Stderr))
	case err != nil:
		return Info{}, &Error{Code: failure.Unavailable, Detail: "yt-dlp failed: its description of the video cannot be read", Err: err}
	default:
		return info, nil
	}
}

var errNothing = errors.New("ytdlp: no description of a video")

// decode reads the program's output.
func decode(data []byte) (info Info, err error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || string(data) == "null" {
		return Info{}, errNothing
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return Info{}, fmt.Errorf("ytdlp: %w", err)
	}
	return info, nil
}

// each calls a function with each item of a list. The item is overwritten by the next: a list of millions takes no memory.
func each(list []byte, f func(item json.RawMessage)) {
	decoder := json.NewDecoder(bytes.NewReader(list))
	if token, err := decoder.Token(); err != nil || token != json.Delim('[') {
		return
	}
	for item := json.RawMessage(nil); decoder.More() && decoder.Decode(&item) == nil; {
		f(item)
	}
}

// The types below take any JSON: a field of another type counts as missing.

type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(data []byte) error {
	_ = json.Unmarshal(data, (*string)(t)) // it stays empty
	return nil
}

type number float64

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(data []byte) error {
	_ = json.Unmarshal(data, (*float64)(n)) // it stays 0
	return nil
}

// duration reads seconds. A time that no video can have is 0.
func (n number) duration() time.Duration {
	const most = 30 * 24 * 3600
	if !(n > 0 && n <= most) {
		return 0
	}
	return time.Duration(math.Round(float64(n)*1000)) * time.Millisecond
}

// some reports whether a list has items.
type some bool

// UnmarshalJSON implements json.Unmarshaler.
func (s *some) UnmarshalJSON(data []byte) error {
	each(data, func(json.RawMessage) { *s = true })
	return nil
}

// Chapter is a part of a video.
type Chapter struct {
	Start number `json:"start_time"`
	Title text   `json:"title"`
}

// At returns the time at which the chapter begins.
func (c Chapter) At() time.Duration { return c.Start.duration() }

type chapters []Chapter

// maxChapters is one more than extractors read, so that they report the cut.
const maxChapters = 1001

// UnmarshalJSON implements json.Unmarshaler.
func (c *chapters) UnmarshalJSON(data []byte) error {
	each(data, func(item json.RawMessage) {
		var chapter Chapter
		if len(*c) < maxChapters && json.Unmarshal(item, &chapter) == nil && chapter.Title != "" {
			*c = append(*c, chapter)
		}
	})
	return nil
}

// Track is one track of captions.
type Track struct {
	// Key is the program's name for the track: a language, sometimes with a suffix.
	Key string
	// Language is the language as a BCP 47 tag.
	Language string
	// Automatic reports whether a program made the captions.
	Automatic bool

	source  json.RawMessage // the program's description of the file
	address string
}

// trackKey matches the keys that may be put on the command line, where the program reads them as regular expressions.
var trackKey = lazyregexp.New(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

type tracks []Track

const maxTracks = 1000

// UnmarshalJSON implements json.Unmarshaler. It keeps the publisher's order, and the WebVTT file of each track.
func (t *tracks) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil //nolint:nilerr // no object, no tracks
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return fmt.Errorf("ytdlp: tracks: %w", err)
		}
		var files json.RawMessage
		if err := decoder.Decode(&files); err != nil {
			return fmt.Errorf("ytdlp: tracks: %w", err)
		}
		key, _ := token.(string)
		if !trackKey.MatchString(key) || key == "all" || key == "live_chat" || len(*t) == maxTracks {
			continue
		}
		found := false
		each(files, func(file json.RawMessage) {
			var f struct {
				Ext text `json:"ext"`
				URL text `json:"url"`
			}
			if found || json.Unmarshal(file, &f) != nil || f.Ext != "vtt" || !fetchable(string(f.URL)) {
				return
			}
			found = true
			*t = append(*t, Track{Key: key, Language: tag(key), source: bytes.Clone(file), address: string(f.URL)})
		})
	}
	return nil
}

func fetchable(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}

// tag returns the BCP 47 tag of a key: "he" for "iw", and without the suffix by which YouTube distinguishes tracks.
func tag(key string) string {
	key = strings.TrimSuffix(key, "-orig")
	for {
		if t, err := language.Parse(key); err == nil {
			if t == language.Und {
				return ""
			}
			return t.String()
		}
		i := strings.LastIndexByte(key, '-')
		if i < 0 {
			return ""
		}
		key = key[:i]
	}
}

// choose returns a track in the wanted language, or else in the spoken language, or else in English, or else the first.
// In one language it prefers a written track to an automatic one. It never returns a machine translation.
func (i *Info) choose(wanted string) (Track, bool) {
	automatic := i.Automatic.originals(tag(string(i.Language)))
	spoken := tag(string(i.Language))
	if spoken == "" && len(automatic) > 0 {
		spoken = automatic[0].Language
	}
	for _, language := range []string{wanted, spoken, "en"} {
		for _, from := range []tracks{i.Subtitles, automatic} {
			if t, ok := from.in(language); ok {
				return t, true
			}
		}
	}
	for _, t := range slices.Concat(i.Subtitles, automatic) {
		return t, true
	}
	return Track{}, false
}

// in returns the track of a language, or else of another variant of the language.
func (t tracks) in(want string) (Track, bool) {
	if want == "" {
		return Track{}, false
	}
	for _, same := range []func(a, b string) bool{func(a, b string) bool { return a == b }, sameBase} {
		if i := slices.IndexFunc(t, func(track Track) bool { return same(track.Language, want) }); i >= 0 {
			return t[i], true
		}
	}
	return Track{}, false
}

func sameBase(a, b string) bool {
	baseA, _, _ := strings.Cut(a, "-")
	baseB, _, _ := strings.Cut(b, "-")
	return baseA == baseB
}

// originals returns the automatic tracks that are not translations.
func (t tracks) originals(spoken string) tracks {
	var marked, heard tracks
	for _, track := range t {
		track.Automatic = true
		u, err := url.Parse(track.address)
		if strings.HasSuffix(track.Key, "-orig") {
			marked = append(marked, track)
		} else if err == nil && !u.Query().Has("tlang") {
			heard = append(heard, track)
		}
	}
	if _, ok := marked.in(spoken); ok || spoken == "" && len(marked) > 0 {
		return marked
	}
	return append(marked, heard...)
}

// request returns a description of a video, for the program, with nothing but the track. No extractor of the program handles
// the address in it, so the program does not fetch the description again when the track cannot be fetched. Without an address
// it would not print the reason.
func (t *Track) request() ([]byte, error) {
	files := map[string][]json.RawMessage{t.Key: {t.source}}
	info := map[string]any{
		"_type": "video", "id": "track", "title": "track", "ext": "mp4", "extractor": "youtube", "extractor_key": "Youtube",
		"formats": []string{}, "webpage_url": "none:", "subtitles": files,
	}
	if t.Automatic {
		info["subtitles"], info["automatic_captions"] = map[string]any{}, files
	}
	data, err := json.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("ytdlp: %w", err)
	}
	return data, nil
}

// readTrack reads the file of a track, up to a size.
func readTrack(dir, key string, maxBytes int64) (data []byte, truncated bool, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, false, fmt.Errorf("ytdlp: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	file, err := root.Open("sub." + key + ".vtt")
	if err != nil {
		return nil, false, fmt.Errorf("ytdlp: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	data, err = io.ReadAll(io.LimitReader(file, maxBytes+1))
	if err != nil {
		return nil, false, fmt.Errorf("ytdlp: %w", err)
	}
	if int64(len(data)) > maxBytes {
		return data[:maxBytes], true, nil
	}
	return data, false, nil
}
