package cli

import (
	_ "embed" // the help
	"strings"

	"github.com/spf13/cobra"
)

//go:embed help.md
var helpText string

// text has what the help shows of a command.
type text struct{ short, long, example string }

// manual returns the texts of all commands, by their paths.
func manual() map[string]text {
	texts := map[string]text{}
	for _, section := range strings.Split(helpText, "\n## ")[1:] {
		path, rest, _ := strings.Cut(section, "\n\n")
		rest, example, _ := strings.Cut(rest, "\n```sh")
		example, _, _ = strings.Cut(example, "\n```")
		short, long, _ := strings.Cut(strings.TrimSpace(rest), "\n\n")
		texts[path] = text{short, long, strings.TrimPrefix(strings.ReplaceAll(example, "\n", "\n  "), "\n")}
	}
	return texts
}

// complete completes a command and its subcommands: it takes their texts from the manual, a mistake in the arguments becomes a UsageError,
// a command takes the arguments of its usage line, and a command without a function shows its help. It panics for a command without texts.
func complete(cmd *cobra.Command, texts map[string]text) {
	path := cmd.CommandPath()
	of, ok := texts[path]
	if !ok {
		panic("cli: help.md has no section " + path)
	}
	delete(texts, path)
	cmd.Short, cmd.Long, cmd.Example = of.short, of.long, of.example
	check := cmd.Args
	if check == nil {
		check = argsOf(cmd.Use)
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error { return usage(check(cmd, args)) }
	if cmd.RunE == nil {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, below := range cmd.Commands() {
		complete(below, texts)
	}
}

// argsOf returns the check of the arguments in a usage line, such as "quiet USER [FROM TO]". Those in brackets may be left out, and "..."
// allows any number.
func argsOf(use string) cobra.PositionalArgs {
	least, most, optional := 0, 0, false
	for _, word := range strings.Fields(use)[1:] {
		optional = optional || strings.HasPrefix(word, "[")
		most++
		if !optional {
			least++
		}
		optional = optional && !strings.HasSuffix(word, "]")
		if strings.HasSuffix(strings.TrimSuffix(word, "]"), "...") {
			return cobra.MinimumNArgs(least)
		}
	}
	if most == 0 {
		return cobra.NoArgs
	}
	return cobra.RangeArgs(least, most)
}
