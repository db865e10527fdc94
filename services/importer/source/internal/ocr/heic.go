package ocr

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/expediter-io/expediter/services/importer/source/internal/program"
)

const (
	// maxJPEG bounds a photo as a JPEG. One of 12 megapixels has some 4 MB.
	maxJPEG = 8 << 20

	// maxHead is where the sizes of a HEIC are looked for: the rest is pixels, in which anything may be found.
	maxHead = 64 << 10
)

// Converter makes JPEGs of the photos of telephones, which are HEIC.
type Converter struct{ config Config }

// NewConverter returns a converter, whose program is that of libheif, or an error that wraps exec.ErrNotFound when it is missing.
// Of a configuration it needs neither the languages nor the path.
func NewConverter(config Config) (*Converter, error) {
	path, err := exec.LookPath("heif-convert")
	if err != nil {
		return nil, fmt.Errorf("source: the program heif-convert, which reads HEIC, is missing: %w", err)
	}
	if config.Path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("source: the path of heif-convert: %w", err)
	}
	return &Converter{config: config}, nil
}

// JPEG returns the first image of a HEIC as a JPEG, upright. The errors are those of [Reader.Read].
func (c *Converter) JPEG(ctx context.Context, jobID string, heic []byte) (jpeg []byte, err error) {
	command := program.Command{Args: []string{"-q", "85", "photo", "photo.jpg"}, MaxFile: maxJPEG}
	err = c.config.inFolder(ctx, jobID, heic, command, func(root *os.Root, _ []byte) (err error) {
		jpeg, err = root.ReadFile("photo.jpg")
		if errors.Is(err, fs.ErrNotExist) { // there are several images
			jpeg, err = root.ReadFile("photo-1.jpg")
		}
		return err //nolint:wrapcheck // the caller says what of
	})
	if err != nil {
		return nil, fmt.Errorf("source: make a JPEG of a HEIC: %w", err)
	}
	return jpeg, nil
}

// SizeOfHEIC returns the largest size that a HEIC declares for one of its images, zero where its head declares none.
func SizeOfHEIC(heic []byte) (width, height int) {
	for rest := heic[:min(len(heic), maxHead)]; ; {
		var found bool
		if _, rest, found = bytes.Cut(rest, []byte("ispe")); !found || len(rest) < 12 {
			return width, height
		}
		w, h := uint64(binary.BigEndian.Uint32(rest[4:])), uint64(binary.BigEndian.Uint32(rest[8:])) // behind the version
		if w*h > uint64(width)*uint64(height) {
			width, height = int(min(w, math.MaxInt32)), int(min(h, math.MaxInt32))
		}
	}
}
