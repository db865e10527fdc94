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
	Formats     list     `json:"formats"`
	Entries     []*Info  `json:"entries"`
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
	var info Info
	if err := json.Unmarshal(data, &info); err != nil {
		return Info{}, fmt.Errorf("ytdlp: %w", err)
	}
	if info.Type == "playlist" {
		for _, entry := range info.Entries {
			if entry != nil && entry.Type != "playlist" {
				return *entry, nil
			}
		}
		return Info{}, errNothing
	}
	return info, nil
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

type list []json.RawMessage

// UnmarshalJSON implements json.Unmarshaler.
func (l *list) UnmarshalJSON(data []byte) error {
	var items []json.RawMessage
	if json.Unmarshal(data, &items) == nil {
		*l = items
	}
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

const maxChapters = 500

// UnmarshalJSON implements json.Unmarshaler.
func (c *chapters) UnmarshalJSON(data []byte) error {
	var items []json.RawMessage
	_ = json.Unmarshal(data, &items) //nolint:errcheck // see above
	for _, item := range items {
		var chapter Chapter
		if json.Unmarshal(item, &chapter) == nil && chapter.Title != "" && len(*c) < maxChapters {
			*c = append(*c, chapter)
		}
	}
	return nil
}
