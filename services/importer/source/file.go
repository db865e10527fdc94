package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"math"
	"net/http"
	"net/url"
	"os/exec"
	"path"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/charset"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
	"github.com/expediter-io/expediter/services/importer/source/internal/fetch"
	"github.com/expediter-io/expediter/services/importer/source/internal/ocr"
	"github.com/expediter-io/expediter/services/importer/source/internal/program"
)

// KindOf returns the source type of a file, by its content and then by its name.
func KindOf(name string, content []byte) string {
	text := bytes.ToLower(bytes.TrimLeft(begin(content), " \t\r\n"))
	ext := strings.ToLower(path.Ext(name))
	switch {
	case imageType(content) != "":
		return TypePhoto
	case ext == ".vtt", ext == ".srt":
		return TypeCaptions
	case bytes.HasPrefix(text, []byte("{")) && bytes.Contains(text, []byte("schema.org")), ext == ".jsonld":
		return TypeWeb
	case bytes.HasPrefix(text, []byte("<!doctype html")), bytes.HasPrefix(text, []byte("<html")), ext == ".html", ext == ".htm":
		return TypeWeb
	case ext == ".jpg", ext == ".jpeg", ext == ".png", ext == ".webp", ext == ".gif", ext == ".heic":
		return TypePhoto // the photo's error then reports that it is none
	default:
		return TypeCaptions
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

// fileScheme is the scheme of the URLs of files, see contracts.File.
const fileScheme = "ni"

func isFile(address string) bool { return strings.HasPrefix(address, fileScheme+":") }

// get returns the content of an address, from the network or from the files that clients have sent.
func (s *Sources) get(ctx context.Context, address, accept string, maxBytes int64) (*fetch.Response, error) {
	if !isFile(address) {
		response, err := s.client.Get(ctx, address, accept, maxBytes)
		if err == nil {
			err = unread(response.Body)
		}
		return response, err
	}
	file, err := contracts.ParseFileURL(address)
	if err != nil {
		return nil, failed(failure.Unavailable, err, "The address does not name a file")
	}
	if s.config.Files == nil {
		return nil, failed(failure.Unavailable, nil, "Files are not taken here, only addresses")
	}
	if err := memory.Hold(ctx, 2*maxBytes); err != nil {
		return nil, failed(failure.Timeout, err, "The importer is too busy to read the file")
	}
	content, err := s.config.Files.Get(ctx, file.Digest)
	switch {
	case errors.Is(err, ErrNoFile):
		return nil, failed(failure.Unavailable, err, "The file is not kept any more: hand it in again")
	case err != nil:
		return nil, failed(failure.Network, err, "The file could not be read back")
	}
	if err := memory.Hold(ctx, memory.ToRead(len(content))); err != nil {
		return nil, failed(failure.Timeout, err, "The importer is too busy to read the file")
	}
	response := &fetch.Response{Body: content, URL: &url.URL{}}
	if int64(len(content)) > maxBytes {
		response.Body, response.Truncated = content[:maxBytes], true
	}
	return response, unread(content)
}

// unread returns an error for a file of a kind that people hand in and that is not read.
func unread(file []byte) error {
	start := file[:min(len(file), 1024)]
	var kind string
	want := "its text as .txt, the page as .html, or a photo or screenshot of it as JPEG or PNG"
	switch {
	case bytes.Contains(start, []byte("%PDF-")):
		kind = "a PDF"
	case bytes.HasPrefix(start, []byte(`{\rtf`)):
		kind = "a document in RTF"
	case bytes.HasPrefix(start, []byte("PK\x03\x04")), bytes.HasPrefix(start, []byte("\xd0\xcf\x11\xe0")):
		kind = "a document of a word processor, such as .docx, or an archive"
	case len(start) > 12 && string(start[4:8]) == "ftyp" && bytes.Contains(start[8:min(len(start), 40)], []byte("avi")):
		kind, want = "a photo in AVIF", "the photo as JPEG or PNG"
	default:
		return nil
	}
	return failed(failure.Unavailable, nil, "The file is %s, which is not read: hand in %s", kind, want)
}

// isPage reports whether a file whose address looked like another kind is HTML.
func isPage(file []byte) bool {
	return strings.HasPrefix(http.DetectContentType(begin(file)), "text/html")
}

const acceptCaptions = "text/vtt, application/x-subrip, text/plain;q=0.9, */*;q=0.1"

// captions fetches a caption file.
func (s *Sources) captions(ctx context.Context, request Request, m *Material, progress func(float64)) error {
	response, err := s.get(ctx, m.URL, acceptCaptions, s.config.MaxBytes)
	if err != nil {
		return fetchError(ctx, "The caption file", err)
	}
	if request.Type == "" && isPage(response.Body) {
		m.Type = TypeWeb
		return s.web(ctx, request, m, progress)
	}
	progress(0.8)
	m.Truncated = response.Truncated
	m.Title = titleOf(m.URL)
	return s.parseFile(m, response, request, false)
}

// parseFile is parse for a file in any encoding. Text without times may be a written recipe, so it is the description as well.
func (s *Sources) parseFile(m *Material, response *fetch.Response, request Request, timed bool) error {
	text, err := m.decode(response, request)
	if err != nil {
		return err
	}
	if err := s.parse(m, text, timed); err != nil || m.Transcript.Timed {
		return err
	}
	m.Description, _ = paragraphs(string(text)) // the transcript has the end of a longer one
	return nil
}

// parse reads captions into the material. timed refuses text without times.
func (s *Sources) parse(m *Material, text []byte, timed bool) error {
	track, err := caption.Parse(text, caption.Options{
		MaxBytes: s.config.MaxBytes, MaxCueBytes: maxCue, MaxTextBytes: maxTranscript, Lenient: true, Timed: timed,
	})
	var format *caption.FormatError
	switch {
	case errors.As(err, &format):
		return failed(failure.BadCaptions, err, "The captions cannot be read: found %s; %s", format.Found, format.Hint)
	case err != nil:
		return failed(failure.BadCaptions, err, "The captions cannot be read")
	}
	m.Transcript = track.Transcript()
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

// heic is the type of the photos of telephones.
const heic = "image/heic"

// maxSide bounds a side of a photo: that of a JPEG. The samples of a row that is longer could not be counted.
const maxSide = math.MaxUint16

// setPhoto finds the program that reads photos. Without one, photos are only passed on, unless byName asks for it.
func (s *Sources) setPhoto(folders *program.Folders, byName bool) error {
	c := s.config.Photo
	ctx := context.Background() //nolint:forbidigo // asking for the languages is bounded, and nobody has a context when setting up
	config := ocr.Config{Folders: folders, Languages: c.Languages, Path: c.Program, Timeout: c.Timeout}
	var err error
	if s.heic, err = ocr.NewConverter(config); err != nil && !errors.Is(err, exec.ErrNotFound) {
		return err
	}
	reader, err := ocr.New(ctx, config)
	switch {
	case err == nil:
		s.photos = reader
	case byName:
		return err
	case !errors.Is(err, exec.ErrNotFound):
		s.log.WarnContext(ctx, "photos are not read here", "error", err)
	}
	return nil
}

// photo fetches a photo, and reads its text if possible.
func (s *Sources) photo(ctx context.Context, request Request, m *Material, progress func(float64)) error {
	response, err := s.get(ctx, m.URL, "image/*", s.config.MaxBytes)
	if err != nil {
		return fetchError(ctx, "The photo", err)
	}
	if request.Type == "" && isPage(response.Body) { // such as https://commons.wikimedia.org/wiki/File:Soup.jpg
		m.Type = TypeWeb
		return s.web(ctx, request, m, progress)
	}
	if response.Truncated {
		return failed(failure.ExtractionFailed, nil, "The photo is larger than %d bytes", s.config.MaxBytes)
	}
	return s.seePhoto(ctx, request.JobID, m, response.Body, progress)
}

func (s *Sources) seePhoto(ctx context.Context, jobID string, m *Material, photo []byte, progress func(float64)) error {
	kind := imageType(photo)
	if kind == "" {
		return failed(failure.ExtractionFailed, nil, "The address holds no photo: want JPEG, PNG, GIF, WebP or HEIC, found %s",
			strings.SplitN(http.DetectContentType(photo), ";", 2)[0])
	}
	m.Image, m.ImageType = photo, kind
	m.Title = titleOf(m.URL)
	left := ocr.MaxCPU
	if kind == heic {
		var err error
		if left, err = s.convert(ctx, jobID, m); err != nil {
			return err
		}
	}
	size, _, err := image.DecodeConfig(bytes.NewReader(m.Image))
	known := err == nil // a type that can be read here
	most, takes := ocr.MaxPixels(m.Image), 1
	if size.ColorModel == color.CMYKModel {
		most, takes = most/2, 2 // decoding keeps the photo in two forms
	}
	if known {
		if err := checkSize(size.Width, size.Height, most); err != nil {
			return err
		}
	}
	if s.photos == nil || !known {
		return nil // an extractor that reads images may read it
	}
	progress(0.4)
	if err := memory.Hold(ctx, ocr.Memory(takes*size.Width*size.Height)); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	lines, err := s.photos.Read(ctx, jobID, m.Image, left)
	if err != nil {
		return s.unread(ctx, m, err)
	}
	m.Title = cmp.Or(dish(line(ocr.Title(lines))), m.Title)
	var text, sure strings.Builder
	for _, l := range lines {
		text.WriteString(l.Text + "\n")
		sure.WriteString(l.Sure + "\n")
	}
	if strings.TrimSpace(text.String()) == "" {
		return nil
	}
	m.Description, m.Truncated = paragraphs(text.String())
	m.Sure, _ = paragraphs(sure.String())
	return s.parse(m, []byte(text.String()), false)
}

// convert replaces the HEIC photo of material by a JPEG, and returns the processor time that is left to read it. It leaves a photo that
// cannot be converted here unchanged.
func (s *Sources) convert(ctx context.Context, jobID string, m *Material) (left time.Duration, err error) {
	if width, height := ocr.SizeOfHEIC(m.Image); width > 0 && height > 0 {
		if err := checkSize(width, height, ocr.MostPixels); err != nil {
			return 0, err
		}
	}
	if s.heic == nil {
		return 0, nil
	}
	if err := memory.Hold(ctx, ocr.Memory(ocr.MostPixels)); err != nil { // the photo may be larger than it declares
		return 0, fmt.Errorf("source: %w", err)
	}
	photo, left, err := s.heic.JPEG(ctx, jobID, m.Image)
	if err != nil {
		return 0, s.unread(ctx, m, err)
	}
	m.Image, m.ImageType = photo, "image/jpeg"
	return left, nil
}

// checkSize returns an error for a photo that is too large, or empty.
func checkSize(width, height, most int) error {
	if width > 0 && height > 0 && width <= most/height && max(width, height) <= maxSide {
		return nil
	}
	return failed(failure.ExtractionFailed, nil, "The photo has %d x %d pixels: more than %d, or %d on a side, are not read",
		width, height, most, maxSide)
}

// unread returns the error for a photo that a program could not read. It is nil when an extractor that reads images
// may succeed.
func (s *Sources) unread(ctx context.Context, m *Material, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("source: %w", context.Cause(ctx))
	case errors.Is(err, ocr.ErrScans):
		return failed(failure.ExtractionFailed, err, "The photo has more than %d scans: save it as a JPEG that is not progressive",
			ocr.MaxScans)
	case errors.Is(err, program.ErrCPU):
		return failed(failure.ExtractionFailed, err, "Reading the photo takes more than %s of processor time: hand in a smaller part of it",
			ocr.MaxCPU)
	case errors.Is(err, program.ErrTimeout):
		return failed(failure.Timeout, err, "The photo could not be read within %s", s.config.Photo.Timeout)
	default:
		s.log.WarnContext(ctx, "cannot read a photo", "source_id", m.ID, "error", err)
		return nil
	}
}

// imageType returns the type of an image by its first bytes; "" for an unknown type.
func imageType(data []byte) string {
	if len(data) >= 12 && string(data[4:8]) == "ftyp" {
		switch string(data[8:12]) {
		case "heic", "heix", "mif1", "msf1":
			return heic
		default:
			return ""
		}
	}
	switch kind := http.DetectContentType(data); kind {
	case "image/gif", "image/jpeg", "image/png", "image/webp":
		return kind
	default:
		return ""
	}
}
