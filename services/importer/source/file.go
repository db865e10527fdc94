package source

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"path"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/charset"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
	"github.com/expediter-io/expediter/services/importer/source/internal/fetch"
)

// KindOf returns the source type of a file, by its content and then by its name.
func KindOf(name string, content []byte) string {
	text := bytes.ToLower(bytes.TrimLeft(begin(content), " \t\r\n"))
	ext := strings.ToLower(path.Ext(name))
	switch {
	case imageType(content) != "":
		return contracts.SourcePhoto
	case ext == ".vtt", ext == ".srt":
		return contracts.SourceCaptions
	case bytes.HasPrefix(text, []byte("<!doctype html")), bytes.HasPrefix(text, []byte("<html")), ext == ".html", ext == ".htm":
		return contracts.SourceWeb
	case ext == ".jpg", ext == ".jpeg", ext == ".png", ext == ".webp", ext == ".gif", ext == ".heic":
		return contracts.SourcePhoto // which it is not, as it will be told
	default:
		return contracts.SourceCaptions
	}
}

// begin returns the first characters of a file in UTF-8.
func begin(content []byte) []byte {
	text, _, err := charset.Decode(content[:min(len(content), 1024)], "", "")
	if err != nil {
		return nil
	}
	return text
}

func isFile(address string) bool { return strings.HasPrefix(address, contracts.FileScheme+":") }

// get returns what an address holds: of the network, or of the files that were handed in.
func (s *Sources) get(ctx context.Context, address, accept string, maxBytes int64) (*fetch.Response, error) {
	if !isFile(address) {
		return s.client.Get(ctx, address, accept, maxBytes)
	}
	file, err := contracts.ParseFileURL(address)
	if err != nil {
		return nil, failed(contracts.CodeUnavailable, err, "The address does not name a file")
	}
	if s.config.Files == nil {
		return nil, failed(contracts.CodeUnavailable, nil, "Files are not taken here, only addresses")
	}
	if err := memory.Hold(ctx, 2*maxBytes); err != nil {
		return nil, failed(contracts.CodeTimeout, err, "The importer is too busy to read the file")
	}
	content, err := s.config.Files.Get(ctx, file.Digest)
	switch {
	case errors.Is(err, ErrNoFile):
		return nil, failed(contracts.CodeUnavailable, err, "The file is not kept any more: hand it in again")
	case err != nil:
		return nil, failed(contracts.CodeNetwork, err, "The file could not be read back")
	}
	if err := memory.Hold(ctx, memory.ToRead(len(content))); err != nil {
		return nil, failed(contracts.CodeTimeout, err, "The importer is too busy to read the file")
	}
	response := &fetch.Response{Body: content, URL: &url.URL{}}
	if int64(len(content)) > maxBytes {
		response.Body, response.Truncated = content[:maxBytes], true
	}
	return response, nil
}

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
