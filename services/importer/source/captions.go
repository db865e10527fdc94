package source

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/caption"
)

const acceptCaptions = "text/vtt, application/x-subrip, text/plain;q=0.9, */*;q=0.1"

// Captions reads a caption file that is at hand, WebVTT, SRT or text, as [Sources] reads one from an address. The name is
// used as title. An error is an [*Error].
func Captions(name string, r io.Reader, config Config) (*Material, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Sources{config: config}
	m := &Material{Type: contracts.SourceCaptions, Title: line(name), Version: version}
	if err := s.parse(m, r, false); err != nil {
		return nil, err
	}
	return m, s.enough(m)
}

// captions fetches a caption file.
func (s *Sources) captions(ctx context.Context, m *Material, progress func(string, float64)) error {
	progress("captions", 0)
	response, err := s.get(ctx, m.URL, acceptCaptions, s.config.MaxBytes)
	if err != nil {
		return fetchError(ctx, "The caption file", err)
	}
	progress("parse", 0.8)
	m.Truncated = response.Truncated
	m.Title = titleOf(m.URL)
	return s.parse(m, bytes.NewReader(response.Body), false)
}

// parse reads captions into the material. Timed refuses text without times.
func (s *Sources) parse(m *Material, r io.Reader, timed bool) error {
	track, err := caption.Parse(r, caption.Options{MaxBytes: s.config.MaxBytes, MaxTextBytes: s.config.MaxTranscriptBytes, Timed: timed})
	var format *caption.FormatError
	switch {
	case errors.As(err, &format):
		return failed(contracts.CodeBadCaptions, err, "The captions cannot be read: found %s; %s", format.Found, format.Hint)
	case err != nil:
		return failed(contracts.CodeBadCaptions, err, "The captions cannot be read")
	}
	m.Transcript = track.Transcript(caption.TranscriptOptions{})
	m.Transcript.Truncated = m.Transcript.Truncated || m.Truncated
	m.Truncated = m.Transcript.Truncated
	if m.Language == "" {
		m.Language = line(m.Transcript.Language)
	}
	if m.Track.Language == "" {
		m.Track.Language = m.Language
	}
	return nil
}
