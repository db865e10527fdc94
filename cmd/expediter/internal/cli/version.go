package cli

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", cmd.Root().Name(), version())
			return err //nolint:wrapcheck // the standard output is gone
		},
	}
}

// version is the version that the go command stamped into the binary, and the commit when there is no released version.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	text := info.Main.Version
	if text == "" {
		text = "(devel)"
	}
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; text == "(devel)" && revision != "" {
		text += " " + revision[:min(len(revision), 12)]
		if settings["vcs.modified"] == "true" {
			text += "+changes"
		}
	}
	return text + " " + info.GoVersion
}
