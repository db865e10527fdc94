// Package ocr reads the text of a photo by the program tesseract.
package ocr

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image/jpeg"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/expediter-io/expediter/internal/lazyregexp"
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

var languages = lazyregexp.New(`^[A-Za-z][A-Za-z_/]{0,30}(\+[A-Za-z][A-Za-z_/]{0,30})*$`)

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
	err = r.config.inFolder(ctx, jobID, photo, command, func(_ *os.Root, result *program.Result, err error) error {
		text = strings.ToValidUTF8(string(result.Stdout), "\ufffd")
		return err
	})
	return text, err
}

// inFolder runs a program in a folder with a photo, and passes on the folder and the program's result and error.
func (c *Config) inFolder(
	ctx context.Context, jobID string, photo []byte, cmd program.Command, done func(*os.Root, *program.Result, error) error,
) error {
	return c.Folders.Use(ctx, jobID, func(dir string) error {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return fmt.Errorf("source: open a temporary folder: %w", err)
		}
		defer root.Close()
		if err := root.WriteFile("photo", photo, 0o600); err != nil {
			return fmt.Errorf("source: write the photo: %w", err)
		}
		cmd.Path, cmd.Dir, cmd.Timeout, cmd.MaxStdout, cmd.MaxMemory = c.Path, dir, c.Timeout, maxText, maxMemory
		result, err := program.Run(ctx, cmd)
		if err == nil && result.ExitCode != 0 {
			err = fmt.Errorf("%s says: %s", filepath.Base(c.Path),
				strings.ToValidUTF8(string(result.Stderr[:min(len(result.Stderr), 500)]), "?"))
		}
		return done(root, result, err)
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
var crowded = lazyregexp.New(`^(\d+)(\d)([/⁄]\d+)(.*)$`)

// slashed matches a number with a slashed zero, which is read as another character: "35@".
var slashed = lazyregexp.New(`^(\d+@[\d@]*|@+\d[\d@]*)$`)

// vulgar matches what the program makes of a fraction in one character, at the place of an amount: "%", "Y2" and "1%" for "½" and "1½".
var vulgar = lazyregexp.New(`^\d*[^\pL\pN]?(?:[%¥].{0,3}|[YV](?:[^\pL].?|\pL[^\pL]?)?)$`)

// word is a word with its place, in pixels.
type word struct {
	text                string
	left, right, height int
	certain             bool
}

// readTable reads the words that tesseract prints as tab-separated values, and makes lines of them.
func readTable(table string) []Line {
	const (
		level, block, paragraph, line, left, width, height, confidence, text = 0, 2, 3, 4, 6, 8, 9, 10, 11
		isWord                                                               = "5"
	)
	var rows [][]word // an empty one stands between paragraphs
	var last []string
	for row := range strings.Lines(table) {
		f := strings.Split(strings.TrimRight(row, "\r\n"), "\t")
		if len(f) <= text || f[level] != isWord || strings.TrimSpace(f[text]) == "" {
			continue
		}
		if last == nil || !slices.Equal(f[block:line+1], last[block:line+1]) {
			if last != nil && !slices.Equal(f[block:paragraph+1], last[block:paragraph+1]) {
				rows = append(rows, nil)
			}
			rows = append(rows, nil)
		}
		last = f
		number := func(field int) int {
			n, _ := strconv.Atoi(f[field]) // 0 is no place
			return min(max(n, 0), math.MaxUint16)
		}
		known, err := strconv.ParseFloat(f[confidence], 64)
		rows[len(rows)-1] = append(rows[len(rows)-1], word{
			f[text], number(left), number(left) + number(width), number(height), err == nil && known >= sure,
		})
	}
	rows = byColumns(rows)
	lines := make([]Line, len(rows))
	fractions := false
	for i, row := range rows {
		for _, w := range row {
			fractions = lines[i].add(w) || fractions
		}
	}
	for i := range lines {
		// The type has fractions that the program cannot read: it takes "1⅔" for "10", and is sure.
		first, rest, _ := strings.Cut(lines[i].Sure, " ")
		if fractions && len(first) > 1 && isNumber(first) && strings.HasPrefix(lines[i].Text, first) {
			lines[i].Sure = rest
		}
	}
	return lines
}

// isNumber reports whether a text has no other characters than digits.
func isNumber(text string) bool { return strings.Trim(text, "0123456789") == "" }

// add appends a word, and reports whether it is a fraction that was misread. The number before it is then no amount.
func (l *Line) add(w word) (misread bool) {
	text := w.text
	if parts := crowded.FindStringSubmatch(text); len(parts) > 0 && !isProper(parts[1]+parts[2], parts[3]) {
		text, w.certain = parts[1]+" "+parts[2]+parts[3]+parts[4], false
	}
	if slashed.MatchString(text) {
		text, w.certain = strings.ReplaceAll(text, "@", "0"), false
	}
	misread = isNumber(l.Text) && vulgar.MatchString(text)
	l.Height = max(l.Height, w.height)
	l.Text = strings.TrimSpace(l.Text + " " + text)
	switch {
	case misread:
		l.Sure = ""
	case w.certain, !strings.ContainsFunc(text, unicode.IsNumber):
		l.Sure = strings.TrimSpace(l.Sure + " " + text)
	}
	return misread
}

// isProper reports whether a fraction is less than 1.
func isProper(numerator, rest string) bool {
	n, err := strconv.Atoi(numerator)
	d, err2 := strconv.Atoi(strings.TrimLeft(rest, "/⁄"))
	return err == nil && err2 == nil && n < d
}

// Title returns the title of a photo's text: of the first five lines with words, a line that is taller than most, or else the
// first line if it is its own paragraph. It is "" when there is no title.
func Title(lines []Line) string {
	full := slices.DeleteFunc(slices.Clone(lines), func(l Line) bool { return l.Text == "" })
	if len(full) == 0 {
		return ""
	}
	byHeight := slices.SortedFunc(slices.Values(full), func(a, b Line) int { return a.Height - b.Height })
	best := Line{Height: byHeight[len(full)/2].Height * 7 / 5} // letters with descenders are not enough
	for _, l := range full[:min(5, len(full))] {
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
type Converter struct {
	config Config
	most   time.Duration // of processor time
}

// NewConverter returns a converter that runs the program of libheif, or an error that wraps exec.ErrNotFound when the program is
// missing. It does not use the languages and the path of the configuration.
func NewConverter(config Config) (*Converter, error) {
	path, err := program.Find("heif-convert")
	if err != nil {
		return nil, fmt.Errorf("source: the program heif-convert, which reads HEIC, is missing: %w", err)
	}
	config.Path = path
	return &Converter{config: config, most: maxConverting}, nil
}

// JPEG returns the first image of a HEIC as a JPEG, upright, and the rest of MaxCPU. The program makes a JPEG of every image: one that
// was made before its time ended is taken. The errors are those of [Reader.Read].
func (c *Converter) JPEG(ctx context.Context, jobID string, heic []byte) (photo []byte, left time.Duration, err error) {
	command := program.Command{Args: []string{"-q", "85", "photo", "photo.jpg"}, MaxCPU: c.most, MaxFile: maxJPEG}
	err = c.config.inFolder(ctx, jobID, heic, command, func(root *os.Root, result *program.Result, failed error) (err error) {
		left = (MaxCPU - result.CPU).Truncate(time.Second)
		photo, err = root.ReadFile("photo.jpg")
		if errors.Is(err, fs.ErrNotExist) { // the program numbers the files of several images
			photo, err = root.ReadFile("photo-1.jpg")
		}
		if failed != nil && !(errors.Is(failed, program.ErrCPU) && bytes.HasSuffix(photo, []byte("\xff\xd9"))) { // its end
			return failed
		}
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("source: make a JPEG of a HEIC: %w", err)
	}
	turned(photo, heic)
	return photo, left, nil
}

// turned sets the EXIF orientation of a JPEG to 1 if the program has turned or mirrored the pixels as the HEIC declares: libheif 1.15
// copies the orientation all the same, and the photo would be turned twice. Versions before 1.14 do not turn a photo with an orientation.
// A JPEG that has to be turned by 90 degrees is then as wide as the HEIC declares.
func turned(photo, heic []byte) {
	value, order := orientationIn(photo)
	head := heic[:min(len(heic), maxHead)]
	turns := bytes.Contains(head, []byte("\x00\x00\x00\x09irot")) || bytes.Contains(head, []byte("\x00\x00\x00\x09imir"))
	if value == nil || !turns {
		return
	}
	width, height := SizeOfHEIC(heic)
	size, err := jpeg.DecodeConfig(bytes.NewReader(photo))
	if order.Uint16(value) > 4 && width != height && err == nil && size.Width == width {
		return
	}
	order.PutUint16(value, 1)
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
