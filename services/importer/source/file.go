package source

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"path"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
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
