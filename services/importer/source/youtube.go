package source

import (
	"bytes"
	"context"
	"errors"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/source/internal/ytdlp"
)

// youTube fetches a video. Nothing of the request but the id, of which only its 11 characters are known, goes to the program.
func (s *Sources) youTube(ctx context.Context, jobID string, t target, m *Material, progress func(string, float64)) error {
	if s.videos == nil {
		return failed(contracts.CodeUnavailable, nil, "Videos of YouTube are not fetched here: it is not turned on")
	}
	video, err := s.videos.Fetch(ctx, jobID, m.URL, t.language, progress)
	if err != nil {
		return videoError(err)
	}
	if string(video.ID) != t.video {
		return failed(contracts.CodeUnavailable, nil, "The site answered with another video")
	}
	progress("parse", 0.9)
	m.Version = version + " yt-dlp/" + s.videos.Version
	return s.video(m, video)
}

// video fills in the material.
func (s *Sources) video(m *Material, video *ytdlp.Video) error {
	m.Title, m.Author, m.Duration = line(string(video.Title)), line(video.Author()), video.Duration()
	m.Description, m.Truncated = paragraphs(string(video.Description))
	for _, chapter := range video.Chapters {
		m.Chapters = append(m.Chapters, Chapter{Start: chapter.At(), Title: line(string(chapter.Title))})
	}
	m.Track = Track{Kind: TrackManual, Language: video.Track.Language}
	if video.Track.Automatic {
		m.Track.Kind = TrackAutomatic
	}
	m.Language = video.Track.Language
	m.Truncated = m.Truncated || video.Truncated
	if len(bytes.TrimSpace(video.Captions)) == 0 { // what the site sends those whom it does not trust
		return failed(contracts.CodeCaptionsBlocked, nil, "The video has captions, but its site does not hand them out")
	}
	return s.parse(m, bytes.NewReader(video.Captions), true)
}

// videoError makes an *Error of one of the program; the cause of a cancelled context stays what it is.
func videoError(err error) error {
	var e *ytdlp.Error
	if !errors.As(err, &e) {
		return err
	}
	out := outage(failed(e.Code, err, "%s", e.Detail))
	out.Retryable = out.Retryable || e.Local
	return out
}
