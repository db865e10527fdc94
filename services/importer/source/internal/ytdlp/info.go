package ytdlp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/source/internal/program"
)

// Info is what the program says of a video, as far as it is used.
type Info struct {
	ID          text     `json:"id"`
	Type        text     `json:"_type"`
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

// Duration is how long the video is; zero when that is not known.
func (i *Info) Duration() time.Duration { return i.Seconds.duration() }

// Author is who published it.
func (i *Info) Author() string {
	if i.Channel != "" {
		return string(i.Channel)
	}
	return string(i.Uploader)
}

// decide reads a run that was to print a description.
func decide(result *program.Result) (Info, error) {
	info, err := decode(result.Stdout)
	switch {
	case result.ExitCode != 0 || errors.Is(err, errNothing):
		return Info{}, infoError(string(result.Stderr))
	case err != nil:
		return Info{}, &Error{Code: contracts.CodeUnavailable, Detail: "yt-dlp failed: what it says of the video cannot be read", Err: err}
	default:
		return info, nil
	}
}

var errNothing = errors.New("ytdlp: no description of a video")

// decode reads what the program prints. A page with several videos counts as its first.
func decode(data []byte) (Info, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || string(data) == "null" {
		return Info{}, errNothing
	}
	var page struct {
		Info

		Entries entries `json:"entries"`
	}
	if err := json.Unmarshal(data, &page); err != nil {
		return Info{}, fmt.Errorf("ytdlp: %w", err)
	}
	switch {
	case page.Type != "playlist":
		return page.Info, nil
	case page.Entries.first == nil:
		return Info{}, errNothing
	default:
		return *page.Entries.first, nil
	}
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

// entries are the videos of a page, of which only the first is kept.
type entries struct{ first *Info }

// UnmarshalJSON implements json.Unmarshaler.
func (e *entries) UnmarshalJSON(data []byte) error {
	each(data, func(item json.RawMessage) {
		var info Info
		if e.first == nil && item[0] == '{' && json.Unmarshal(item, &info) == nil && info.Type != "playlist" {
			e.first = &info
		}
	})
	return nil
}

// The types below take whatever JSON holds: a field of another type is as good as a missing one.

type text string

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*t = text(s)
	}
	return nil
}

type number float64

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(data []byte) error {
	var f float64
	if json.Unmarshal(data, &f) == nil {
		*n = number(f)
	}
	return nil
}

// duration reads seconds. What is no time that a video can have is none.
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

// At is where the chapter begins.
func (c Chapter) At() time.Duration { return c.Start.duration() }

type chapters []Chapter

// maxChapters is one more than extractors read: they report what they cut.
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
