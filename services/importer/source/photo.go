package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"net/http"
	"os/exec"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
	"github.com/expediter-io/expediter/services/importer/source/internal/ocr"
	"github.com/expediter-io/expediter/services/importer/source/internal/program"
)

// heic is the type of the photos of telephones.
const heic = "image/heic"

// maxPixels bounds photos that are read here: unpacked, they are much larger than their files. With so many, the program that reads
// them takes what all jobs together may.
const maxPixels = 20_000_000

// setPhoto finds the program that reads photos. Without one, photos are only passed on, unless byName asks for it.
func (s *Sources) setPhoto(folders *program.Folders, byName bool) error {
	c := s.config.Photo
	ctx := context.Background() //nolint:forbidigo // asking for the languages is bounded, and nobody has a context when setting up
	config := ocr.Config{Folders: folders, Languages: c.Languages, Log: s.log, Path: c.Program, Timeout: c.Timeout}
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

// photo fetches a photo, and reads it where that can be done.
func (s *Sources) photo(ctx context.Context, jobID string, m *Material, progress func(string, float64)) error {
	progress("image", 0)
	response, err := s.get(ctx, m.URL, "image/*", s.config.MaxBytes)
	if err != nil {
		return fetchError(ctx, "The photo", err)
	}
	if response.Truncated {
		return failed(contracts.CodeExtractionFailed, nil, "The photo is larger than %d bytes", s.config.MaxBytes)
	}
	return s.seePhoto(ctx, jobID, m, response.Body, progress)
}

func (s *Sources) seePhoto(ctx context.Context, jobID string, m *Material, photo []byte, progress func(string, float64)) error {
	kind := imageType(photo)
	if kind == "" {
		return failed(contracts.CodeExtractionFailed, nil, "The address holds no photo: want JPEG, PNG, GIF, WebP or HEIC, found %s",
			strings.SplitN(http.DetectContentType(photo), ";", 2)[0])
	}
	m.Image, m.ImageType = photo, kind
	m.Title = titleOf(m.URL)
	if kind == heic {
		if err := s.convert(ctx, jobID, m); err != nil {
			return err
		}
	}
	size, known := sizeOf(m.Image)
	most, takes := maxPixels, 1
	if size.ColorModel == color.CMYKModel {
		most, takes = maxPixels/2, 2 // it is kept in two forms while it is decoded
	}
	if known {
		if err := checkSize(size.Width, size.Height, most); err != nil {
			return err
		}
	}
	if s.photos == nil || !known {
		return nil // an extractor that can see may know what to make of it
	}
	progress("text", 0.4)
	if err := memory.Hold(ctx, ocr.Memory(takes*size.Width*size.Height)); err != nil {
		return fmt.Errorf("source: %w", context.Cause(ctx))
	}
	lines, err := s.photos.Read(ctx, jobID, m.Image)
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
	return s.parse(m, strings.NewReader(text.String()), false)
}

// convert makes a JPEG of a photo of material, which is a HEIC. One that nothing here can convert stays as it is.
func (s *Sources) convert(ctx context.Context, jobID string, m *Material) error {
	if width, height := ocr.SizeOfHEIC(m.Image); width > 0 && height > 0 {
		if err := checkSize(width, height, maxPixels); err != nil {
			return err
		}
	}
	if s.heic == nil {
		return nil
	}
	if err := memory.Hold(ctx, ocr.Memory(maxPixels)); err != nil { // it may be larger than it says
		return fmt.Errorf("source: %w", context.Cause(ctx))
	}
	photo, err := s.heic.JPEG(ctx, jobID, m.Image)
	if err != nil {
		return s.unread(ctx, m, err)
	}
	m.Image, m.ImageType = photo, "image/jpeg"
	return nil
}

// checkSize refuses a photo that is larger than is read, or empty.
func checkSize(width, height, most int) error {
	if width > 0 && height > 0 && width <= most/height {
		return nil
	}
	return failed(contracts.CodeExtractionFailed, nil, "The photo has %d x %d pixels: more than %d are not read", width, height, most)
}

// unread is the error of a photo that a program did not read. It is nil where an extractor that can see may do better.
func (s *Sources) unread(ctx context.Context, m *Material, err error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("source: %w", context.Cause(ctx))
	case errors.Is(err, program.ErrTimeout):
		return failed(contracts.CodeTimeout, err, "The photo could not be read within %s", s.config.Photo.Timeout)
	default:
		s.log.WarnContext(ctx, "cannot read a photo", "source_id", m.ID, "error", err)
		return nil
	}
}

// sizeOf reads the size of an image, of the kinds that can be read here.
func sizeOf(photo []byte) (image.Config, bool) {
	size, _, err := image.DecodeConfig(bytes.NewReader(photo))
	return size, err == nil
}

// imageType returns the type of an image by its first bytes; "" when it is none that is taken.
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
