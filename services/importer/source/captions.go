package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/charset"
	"github.com/expediter-io/expediter/services/importer/source/internal/fetch"
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
	text, found, err := charset.NewReader(r, "", "")
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	m.readAs(found)
	if err := s.parse(m, text, false); err != nil {
		return nil, err
	}
	return m, s.enough(m)
}

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

// maxCue is how much is kept of one cue: a part of what is kept of all, so that one that is too long does not hide the others.
func (s *Sources) maxCue() int { return int(max(1, s.config.MaxTranscriptBytes/4)) }

// parse reads captions into the material. Timed refuses text without times.
func (s *Sources) parse(m *Material, r io.Reader, timed bool) error {
	track, err := caption.Parse(r, caption.Options{
		MaxBytes: s.config.MaxBytes, MaxCueBytes: s.maxCue(), MaxTextBytes: s.config.MaxTranscriptBytes, Timed: timed,
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
