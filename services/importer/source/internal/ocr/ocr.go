// Package ocr reads the text of a photo by the program tesseract.
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
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/expediter-io/expediter/services/importer/source/internal/program"
)

// maxText is far more than a photo can hold.
const maxText = 1 << 20

// Config sets up a [Reader]. All fields are required.
type Config struct {
	// Folders makes the folders in which the program works.
	Folders *program.Folders
	// Languages are the languages of the text, as the program names them: eng+deu.
	Languages string
	// Path is the path of the program.
	Path string
	// Timeout bounds the program's work on one photo.
	Timeout time.Duration
}

// Reader runs the program.
type Reader struct{ config Config }

var languages = regexp.MustCompile(`^[A-Za-z][A-Za-z_/]{0,30}(\+[A-Za-z][A-Za-z_/]{0,30})*$`)

// New returns a reader, or an error that wraps exec.ErrNotFound when the program is missing. It runs the program
// once, for the list of its languages.
func New(ctx context.Context, config Config) (*Reader, error) {
	if !languages.MatchString(config.Languages) || strings.Contains(config.Languages, "..") {
		return nil, fmt.Errorf("source: Config.Photo.Languages is %q: want names such as eng or eng+deu", config.Languages)
	}
	path, err := program.Find(config.Path)
	if err != nil {
		return nil, fmt.Errorf("source: the program %s, which reads photos, is missing: install tesseract: %w", config.Path, err)
	}
	config.Path = path
	r := &Reader{config: config}
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// maxMemory bounds the memory of the program, in bytes.
const maxMemory = 344 << 20

// MaxCPU bounds the processor time of the programs for one photo, and maxConverting that for making a JPEG of it. A page of 6,000
// characters takes 5 seconds.
const MaxCPU, maxConverting = 7 * time.Second, 3 * time.Second

// ErrScans is returned for a progressive JPEG of more than MaxScans scans. Others have some ten.
var ErrScans = errors.New("source: the photo has too many scans")

// MaxScans is the largest number of scans of a photo. Each takes time for all pixels, though it may have a few bytes.
const MaxScans = 100

// Memory returns the bytes that reading a photo takes, here and in the program.
func Memory(pixels int) int64 { return 64<<20 + 22*int64(pixels) }

// Read returns the lines of an image, upright and level, for which the program may use so much processor time. The error is ErrScans,
// one of package program, the cause of ctx, or has the program's message.
func (r *Reader) Read(ctx context.Context, jobID string, image []byte, most time.Duration) (lines []Line, err error) {
	page, err := upright(ctx, image)
	if err != nil {
		return nil, err
	}
	out, err := r.run(ctx, jobID, page, most, "photo", "stdout", "-l", r.config.Languages, "tsv")
	if err != nil {
		return nil, err
	}
	return readTable(out), nil
}

// check reports whether the program has all languages.
func (r *Reader) check(ctx context.Context) error {
	out, err := r.run(ctx, "languages", nil, r.config.Timeout, "--list-langs")
	if err != nil {
		return err
	}
	_, list, _ := strings.Cut(out, "\n")
	for language := range strings.SplitSeq(r.config.Languages, "+") {
		if !slices.Contains(strings.Fields(list), language) {
			return fmt.Errorf("source: tesseract has no language %q, only %s: install its data, such as the package tesseract-ocr-%s",
				language, strings.Join(strings.Fields(list), ", "), language)
		}
	}
	return nil
}

// run runs the program in a folder with a photo, and returns its output.
func (r *Reader) run(ctx context.Context, jobID string, photo []byte, most time.Duration, args ...string) (text string, err error) {
	env := []string{"OMP_THREAD_LIMIT=1"}
	if data := os.Getenv("TESSDATA_PREFIX"); data != "" {
		env = append(env, "TESSDATA_PREFIX="+data)
	}
	command := program.Command{Args: args, Env: env, MaxCPU: most, MaxFile: maxText}
	err = r.config.inFolder(ctx, jobID, photo, command, func(_ *os.Root, result *program.Result) error {
		text = strings.ToValidUTF8(string(result.Stdout), "\ufffd")
		return nil
	})
	return text, err
}

// inFolder runs a program in a folder with a photo, and passes on the folder and the program's result.
func (c *Config) inFolder(
	ctx context.Context, jobID string, photo []byte, cmd program.Command, done func(root *os.Root, result *program.Result) error,
) error {
	return c.Folders.Use(ctx, jobID, func(dir string) error {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return fmt.Errorf("source: open a temporary folder: %w", err)
		}
		defer root.Close() //nolint:errcheck // it is only looked into
		if err := root.WriteFile("photo", photo, 0o600); err != nil {
			return fmt.Errorf("source: write the photo: %w", err)
		}
		cmd.Path, cmd.Dir, cmd.Timeout, cmd.MaxStdout, cmd.MaxMemory = c.Path, dir, c.Timeout, maxText, maxMemory
		result, err := program.Run(ctx, cmd)
		switch {
		case err != nil:
			return err
		case result.ExitCode != 0:
			return fmt.Errorf("%s says: %s", filepath.Base(c.Path),
				strings.ToValidUTF8(string(result.Stderr[:min(len(result.Stderr), 500)]), "?"))
		default:
			return done(root, result)
		}
	})
}

// sure is the confidence, of 100, from which a number counts as read.
const sure = 80

// Line is a line of a photo. Lines without words stand between paragraphs.
type Line struct {
	// Text is the line as it was read.
	Text string

	// Sure is Text without the numbers of low confidence.
	Sure string

	// Height is the height of the line's tallest word, in pixels.
	Height int
}

// crowded matches a mixed number whose space was not recognised: "11/2" for "1 1/2".
var crowded = regexp.MustCompile(`^(\d+)(\d)([/⁄]\d+)(.*)$`)

// slashed matches a number with a slashed zero, which is read as another character: "35@".
var slashed = regexp.MustCompile(`^(\d+@[\d@]*|@+\d[\d@]*)$`)

// readTable reads the words that tesseract prints as tab-separated values, and makes lines of them.
func readTable(table string) []Line {
	const (
		level, block, paragraph, line, height, confidence, text = 0, 2, 3, 4, 9, 10, 11
		word                                                    = "5"
	)
	var lines []Line
	var last []string
	for row := range strings.Lines(table) {
		f := strings.Split(strings.TrimRight(row, "\r\n"), "\t")
		if len(f) <= text || f[level] != word || strings.TrimSpace(f[text]) == "" {
			continue
		}
		if last == nil || !slices.Equal(f[block:line+1], last[block:line+1]) {
			if last != nil && !slices.Equal(f[block:paragraph+1], last[block:paragraph+1]) {
				lines = append(lines, Line{})
			}
			lines = append(lines, Line{})
		}
		last = f
		tall, _ := strconv.Atoi(f[height]) // 0 is no height
		known, err := strconv.ParseFloat(f[confidence], 64)
		lines[len(lines)-1].add(f[text], tall, err == nil && known >= sure)
	}
	return lines
}

// add appends a word.
func (l *Line) add(word string, height int, certain bool) {
	if parts := crowded.FindStringSubmatch(word); len(parts) > 0 && !isProper(parts[1]+parts[2], parts[3]) {
		word, certain = parts[1]+" "+parts[2]+parts[3]+parts[4], false
	}
	if slashed.MatchString(word) {
		word, certain = strings.ReplaceAll(word, "@", "0"), false
	}
	l.Height = max(l.Height, height)
	l.Text = strings.TrimSpace(l.Text + " " + word)
	if certain || !strings.ContainsFunc(word, unicode.IsNumber) {
		l.Sure = strings.TrimSpace(l.Sure + " " + word)
	}
}

// isProper reports whether a fraction is less than 1.
func isProper(numerator, rest string) bool {
	n, err := strconv.Atoi(numerator)
	d, err2 := strconv.Atoi(strings.TrimLeft(rest, "/⁄"))
	return err == nil && err2 == nil && n < d
}

// Title returns the title of a photo's text: of the first five lines with words, a line that is taller than most, or else the
// first line if it is a paragraph of its own. It is "" when there is no title.
func Title(lines []Line) string {
	var heights []int
	for _, l := range lines {
		if l.Text != "" {
			heights = append(heights, l.Height)
		}
	}
	if len(heights) == 0 {
		return ""
	}
	slices.Sort(heights)
	best := Line{Height: heights[len(heights)/2] * 7 / 5} // letters with descenders are not enough
	seen := 0
	for _, l := range lines {
		if l.Text == "" {
			continue
		}
		seen++
		if seen > 5 {
			break
		}
		if l.Height > best.Height && strings.ContainsFunc(l.Text, unicode.IsLetter) {
			best = l
		}
	}
	if best.Text == "" && len(lines) > 1 && lines[1].Text == "" {
		return strings.TrimSuffix(lines[0].Text, ":")
	}
	return best.Text
}

const (
	// maxJPEG bounds a photo as a JPEG. One of 12 megapixels has some 4 MB.
	maxJPEG = 8 << 20

	// maxHead is the number of bytes of a HEIC in which its sizes are looked for. The rest is pixels, whose bytes may
	// look like a size.
	maxHead = 64 << 10
)

// Converter makes JPEGs of the photos of telephones, which are HEIC.
type Converter struct{ config Config }

// NewConverter returns a converter that runs the program of libheif, or an error that wraps exec.ErrNotFound when the program is
// missing. It does not use the languages and the path of the configuration.
func NewConverter(config Config) (*Converter, error) {
	path, err := program.Find("heif-convert")
	if err != nil {
		return nil, fmt.Errorf("source: the program heif-convert, which reads HEIC, is missing: %w", err)
	}
	config.Path = path
	return &Converter{config: config}, nil
}

// JPEG returns the first image of a HEIC as a JPEG, upright, and the rest of MaxCPU. The errors are those of [Reader.Read].
func (c *Converter) JPEG(ctx context.Context, jobID string, heic []byte) (jpeg []byte, left time.Duration, err error) {
	command := program.Command{Args: []string{"-q", "85", "photo", "photo.jpg"}, MaxCPU: maxConverting, MaxFile: maxJPEG}
	err = c.config.inFolder(ctx, jobID, heic, command, func(root *os.Root, result *program.Result) (err error) {
		left = (MaxCPU - result.CPU).Truncate(time.Second)
		jpeg, err = root.ReadFile("photo.jpg")
		if errors.Is(err, fs.ErrNotExist) { // the program numbers the files of several images
			jpeg, err = root.ReadFile("photo-1.jpg")
		}
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("source: make a JPEG of a HEIC: %w", err)
	}
	return jpeg, left, nil
}

// SizeOfHEIC returns the largest size that the head of a HEIC declares for an image, zero when it declares none.
func SizeOfHEIC(heic []byte) (width, height int) {
	for rest := heic[:min(len(heic), maxHead)]; ; {
		var found bool
		if _, rest, found = bytes.Cut(rest, []byte("ispe")); !found || len(rest) < 12 {
			return width, height
		}
		w, h := uint64(binary.BigEndian.Uint32(rest[4:])), uint64(binary.BigEndian.Uint32(rest[8:])) // after the version
		if w*h > uint64(width)*uint64(height) {
			width, height = int(min(w, math.MaxInt32)), int(min(h, math.MaxInt32))
		}
	}
}
