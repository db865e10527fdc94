package source

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/source/internal/fetch"
)

const acceptCaptions = "text/vtt, application/x-subrip, text/plain;q=0.9, */*;q=0.1"

// captions fetches a caption file.
func (s *Sources) captions(ctx context.Context, request Request, m *Material, progress func(string, float64)) error {
	progress("captions", 0)
	response, err := s.get(ctx, m.URL, acceptCaptions, s.config.MaxBytes)
	if err != nil {
		return fetchError(ctx, "The caption file", err)
	}
	progress("parse", 0.8)
	m.Truncated = response.Truncated
	m.Title = titleOf(m.URL)
	return s.parseFile(m, response, request, false)
}

// parseFile is parse for a file in any encoding.
func (s *Sources) parseFile(m *Material, response *fetch.Response, request Request, timed bool) error {
	text, err := m.decode(response, request)
	if err != nil {
		return err
	}
	return s.parse(m, bytes.NewReader(text), timed)
}

// parse reads captions into the material. Timed refuses text without times.
func (s *Sources) parse(m *Material, r io.Reader, timed bool) error {
	track, err := caption.Parse(r, caption.Options{
		MaxBytes: s.config.MaxBytes, MaxCueBytes: maxCue, MaxTextBytes: maxTranscript, Timed: timed,
	})
	var format *caption.FormatError
	switch {
	case errors.As(err, &format):
		return failed(contracts.CodeBadCaptions, err, "The captions cannot be read: found %s; %s", format.Found, format.Hint)
	case err != nil:
		return failed(contracts.CodeBadCaptions, err, "The captions cannot be read")
	}
	m.Transcript = track.Transcript(caption.TranscriptOptions{})
	if track.Skipped > 0 {
		m.warnf(WarnCues, "%d captions were left out: their times cannot be read.", track.Skipped)
	}
	lost := 0
	for _, segment := range m.Transcript.Segments {
		lost += strings.Count(segment.Text, replacement)
	}
	m.lost(lost)
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
