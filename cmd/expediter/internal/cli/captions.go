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

const encodingUsage = "encoding of the text, such as windows-1251 (default: UTF-8 if the text is, else a guess)"

func checkEncoding(name string) error {
	_, err := charset.Canonical(name)
	return refuse(err != nil, "--encoding: %w", err)
}

func newCaptions(g *globals) *cobra.Command {
	var encoding, format string
	cmd := action("captions FILE", func(ctx context.Context, args []string) error {
		if err := g.usage(checkEncoding(encoding)); err != nil {
			return err
		}
		return g.captions(ctx, encoding, format, args[0])
	})
	cmd.Flags().StringVar(&encoding, "encoding", "", encodingUsage)
	g.outputFlag(cmd, &format, "text", "json", jsonLines)
	return cmd
}

func (g *globals) captions(ctx context.Context, encoding, format, path string) error {
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
	text, found, err := charset.Decode(data, encoding, "")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if found.Guessed {
		g.notef("%s: it is not UTF-8, and is read as %s (name another with --encoding)\n", name, found.Name)
	}
	track, err := caption.Parse(text, caption.Options{Lenient: true, Timed: timed})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if transcript := track.Transcript(); asJSON(format) {
		out := g.rows(format, "")
		for _, s := range transcript.Segments {
			out.Add(segment{float64(s.Start.Milliseconds()) / 1000, float64(s.Dur.Milliseconds()) / 1000, s.Text})
		}
		err = out.Close(nil)
	} else {
		err = transcript.WriteText(g.config.Stdout)
	}
	if err != nil {
		return fmt.Errorf("writing the output: %w", err)
	}
	return g.notice(name, track)
}

// segment is a part of a transcript, with its times in seconds.
type segment struct {
	Start float64 `json:"start"`
	Dur   float64 `json:"dur"`
	Text  string  `json:"text"`
}

// notice reports the missing parts of a track: an error when a limit cut it, a line on the standard error when the file
// itself is at fault.
func (g *globals) notice(name string, track caption.Track) error {
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
	return fmt.Errorf("%s: not all of it was read: %s", name, strings.Trim(fmt.Sprint(track.Cuts), "[]"))
}
