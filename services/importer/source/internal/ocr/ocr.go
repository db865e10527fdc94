// Package ocr reads the text of a photo by the program tesseract.
package ocr

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/services/importer/source/internal/program"
)

// maxText is far above what a photo can hold.
const maxText = 1 << 20

// Config sets up a [Reader]. All fields are required.
type Config struct {
	// Folders is where the program works.
	Folders *program.Folders
	// Languages are those to look for, as the program names them: eng+deu.
	Languages string
	// Log gets what is no error of a photo.
	Log *slog.Logger
	// Path is the program.
	Path string
	// Timeout bounds its work on one photo.
	Timeout time.Duration
}

// Reader runs the program.
type Reader struct{ config Config }

var languages = regexp.MustCompile(`^[A-Za-z][A-Za-z_/]{0,30}(\+[A-Za-z][A-Za-z_/]{0,30})*$`)

// New returns a reader, or an error that wraps exec.ErrNotFound when the program is missing. It runs the program for its languages.
func New(ctx context.Context, config Config) (*Reader, error) {
	if !languages.MatchString(config.Languages) || strings.Contains(config.Languages, "..") {
		return nil, fmt.Errorf("source: Config.Photo.Languages is %q: want names such as eng or eng+deu", config.Languages)
	}
	path, err := exec.LookPath(config.Path)
	if err != nil {
		return nil, fmt.Errorf("source: the program %s, which reads photos, is missing: install tesseract: %w", config.Path, err)
	}
	if config.Path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("source: the path of tesseract: %w", err)
	}
	r := &Reader{config: config}
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// maxMemory bounds what the program takes, in bytes.
const maxMemory = 344 << 20

// Memory is how much reading a photo takes, here and in the program.
func Memory(pixels int) int64 { return 64<<20 + 22*int64(pixels) }

// Read returns the lines of an image, upright and level. The error is program.ErrTimeout or program.ErrOutput, the cause of ctx, or
// says what the program says.
func (r *Reader) Read(ctx context.Context, jobID string, image []byte) (lines []Line, err error) {
	page, err := upright(image)
	if err != nil {
		return nil, err
	}
	out, err := r.run(ctx, jobID, page, "photo", "stdout", "-l", r.config.Languages, "tsv")
	if err != nil {
		return nil, err
	}
	return readTable(out), nil
}

// check reports whether the program has all languages.
func (r *Reader) check(ctx context.Context) error {
	out, err := r.run(ctx, "languages", nil, "--list-langs")
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

// run runs the program in a folder with a photo, and returns what it prints.
func (r *Reader) run(ctx context.Context, jobID string, photo []byte, args ...string) (text string, err error) {
	env := []string{"OMP_THREAD_LIMIT=1"}
	if data := os.Getenv("TESSDATA_PREFIX"); data != "" {
		env = append(env, "TESSDATA_PREFIX="+data)
	}
	err = r.config.inFolder(ctx, jobID, photo, program.Command{Args: args, Env: env, MaxFile: maxText}, func(_ *os.Root, out []byte) error {
		text = strings.ToValidUTF8(string(out), "\ufffd")
		return nil
	})
	return text, err
}

// inFolder runs a program in a folder with a photo, and hands over the folder and what the program has printed.
func (c *Config) inFolder(
	ctx context.Context, jobID string, photo []byte, cmd program.Command, done func(root *os.Root, out []byte) error,
) error {
	folder, err := c.Folders.New(jobID)
	if err != nil {
		return err
	}
	defer func() {
		if err := folder.Remove(); err != nil {
			c.Log.ErrorContext(ctx, "cannot remove a temporary folder", "folder", folder.Path, "error", err)
		}
	}()
	root, err := os.OpenRoot(folder.Path)
	if err != nil {
		return fmt.Errorf("source: open a temporary folder: %w", err)
	}
	defer root.Close() //nolint:errcheck // it is only looked into
	if err := root.WriteFile("photo", photo, 0o600); err != nil {
		return fmt.Errorf("source: write the photo: %w", err)
	}
	cmd.Path, cmd.Dir, cmd.Timeout, cmd.MaxStdout, cmd.MaxMemory = c.Path, folder.Path, c.Timeout, maxText, maxMemory
	cmd.Env = append(cmd.Env, "HOME="+folder.Path, "LANG=C.UTF-8", "PATH="+cmp.Or(os.Getenv("PATH"), "/usr/local/bin:/usr/bin:/bin"),
		"TMPDIR="+folder.Path)
	result, err := program.Run(ctx, cmd)
	switch {
	case err != nil:
		return err
	case result.ExitCode != 0:
		return fmt.Errorf("%s says: %s", filepath.Base(c.Path), strings.ToValidUTF8(string(result.Stderr[:min(len(result.Stderr), 500)]), "?"))
	default:
		return done(root, result.Stdout)
	}
}
