package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/charset"
)

// captionsFlags are the flags of the captions command.
type captionsFlags struct {
	encoding string
	format   string
}

const encodingUsage = "encoding of the text, such as windows-1251 (default: UTF-8 if the text is, else windows-1252)"

// checkEncoding returns an error for an unknown encoding.
func checkEncoding(name string) error {
	_, err := charset.Canonical(name)
	return refuse(err != nil, "--encoding: %w", err)
}

func newCaptions(g *globals) *cobra.Command {
	f := captionsFlags{}
	cmd := action("captions FILE", func(ctx context.Context, args []string) error { return g.captions(ctx, f, args[0]) })
	flags := cmd.Flags()
	flags.StringVar(&f.encoding, "encoding", "", encodingUsage)
	g.outputFlag(cmd, &f.format, "text", "segments", "json")
	return cmd
}

// captions runs the command, once its flags are read.
func (g *globals) captions(ctx context.Context, f captionsFlags, path string) error {
	if err := g.usage(checkEncoding(f.encoding)); err != nil {
		return err
	}
	source, err := g.openInput(ctx, path)
	if err != nil {
		return err
	}
	defer source.Close()
	name := inputName(path)
	// A file that is named like a caption file and has only text is a mistake, not a text.
	timed := slices.Contains([]string{".srt", ".vtt"}, strings.ToLower(filepath.Ext(path)))
	data, err := io.ReadAll(io.LimitReader(source, caption.DefaultMaxBytes+1))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	text, encoding, err := charset.Decode(data, f.encoding, "")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if encoding.Guessed {
		g.notef("%s: it is not UTF-8, and is read as %s (name another with --encoding)\n", name, encoding.Name)
	}
	track, err := caption.Parse(text, caption.Options{Timed: timed})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	transcript := track.Transcript()
	switch stdout := g.config.stdout(); f.format {
	case "segments":
		err = transcript.WriteSegments(stdout)
	case "text":
		err = transcript.WriteText(stdout)
	default:
		err = track.WriteJSON(stdout, transcript)
	}
	if err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return g.notice(name, track)
}

// notice reports the missing parts of a track: an error when a limit cut it, a line on the standard error when the file
// itself is at fault.
func (g *globals) notice(name string, track caption.Track) error {
	if track.Skipped > 0 {
		g.notef("%s: %d cues left out: their times cannot be read\n", name, track.Skipped)
	}
	lost := 0
	for _, cue := range track.Cues {
		lost += strings.Count(cue.Text, "\ufffd")
	}
	if lost > 0 {
		g.notef("%s: %d characters could not be read (name the encoding with --encoding)\n", name, lost)
	}
	if !track.Truncated {
		return nil
	}
	parts := make([]string, len(track.Cuts))
	for i, cut := range track.Cuts {
		parts[i] = cut.String()
	}
	return fmt.Errorf("%s: not all of it was read: %s", name, strings.Join(parts, "; "))
}
