package cli

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// commands returns all commands, those with subcommands included.
func commands(of *cobra.Command) (all []*cobra.Command) {
	all = append(all, of)
	for _, below := range of.Commands() {
		all = append(all, commands(below)...)
	}
	return all
}

// A command names the argument that is missing, empty or too many.
func TestArgumentsAreNamed(t *testing.T) {
	t.Parallel()
	for _, cmd := range commands(newRoot(Config{}.withDefaults())) {
		words, args := strings.Fields(cmd.Use)[1:], []string{}
		if cmd.Name() == "lock" {
			continue // in its script
		}
		for _, word := range words {
			if word[0] != '[' {
				err := cmd.ValidateArgs(args)
				check.That(t, err != nil && strings.HasPrefix(err.Error(), argument(word)+" is missing: ") && strings.Contains(err.Error(), "such as"),
					"%s %q: %v", cmd.CommandPath(), args, err)
			}
			check.That(t, cmd.ValidateArgs(append(args, "")) != nil, "%s takes an empty %s", cmd.CommandPath(), word)
			args = append(args, map[bool]string{true: "1", false: "x"}[argument(word) == "JOB"])
		}
		err := cmd.ValidateArgs(append(args, "surplus"))
		named := err != nil && strings.Contains(err.Error(), `"surplus"`)
		check.That(t, named || strings.HasSuffix(strings.TrimSuffix(cmd.Use, "]"), "..."), "%s %q surplus: %v", cmd.CommandPath(), args, err)
	}
}

// Without a server, every command that asks one ends with the same code; one that names a thing as none can be named, with that of a wrong
// command line. Every command that prints data has the same formats.
func TestCommandsAreAlike(t *testing.T) {
	t.Parallel()
	given := map[string]string{"JOB": "1", "NUMBER": "1", "JSON": "{}", "TYPE:ID": "RESTAURANT:5", "FILE": "commands_test.go", "EVENT": "e"}
	flags := map[string]string{"bucket": "locks", "channel": "inapp", "stream": "JOBS", "to": "a@example.com", "type": "CUSTOMER", "yes": "true"}
	for _, cmd := range commands(newRoot(Config{}.withDefaults())) {
		if output := cmd.LocalFlags().Lookup("output"); output != nil && cmd.Name() != "captions" {
			check.That(t, strings.Contains(output.Usage, "table") && strings.Contains(output.Usage, "json, jsonl") || output.DefValue == jsonLines,
				"%s has %s", cmd.CommandPath(), output.Usage)
		}
		own := []string{"console", "relay", "up", "doctor", "lock", "emit"}
		if cmd.Flag("server") == nil || slices.Contains(own, cmd.Name()) || cmd.HasSubCommands() && cmd.Name() != "notifications" {
			continue // asks no server, serves, or has its own codes
		}
		args := strings.Fields(cmd.CommandPath())[1:]
		for _, word := range strings.Fields(cmd.Use)[1:] {
			if value := given[argument(word)]; value != "" || word[0] != '[' {
				args = append(args, cmp.Or(value, "x"))
			}
		}
		for name, value := range flags {
			if cmd.Flag(name) != nil && !(name == "type" && cmd.Flag("user") != nil) {
				args = append(args, "--"+name+"="+value)
			}
		}
		var stderr strings.Builder
		cfg := Config{Getenv: func(string) string { return "" }, Stderr: &stderr, Stdout: io.Discard}
		got := Run(t.Context(), cfg, append(args, "--server=nats://127.0.0.1:1"))
		check.That(t, got == ExitUnavailable, "%q ends with %d: %s", args, got, &stderr)
		if cmd.Flag("stream") != nil && cmd.Name() != "stranded" {
			got = Run(t.Context(), cfg, append(args, "--server=nats://127.0.0.1:1", "--stream=a b"))
			check.That(t, got == ExitUsage, "%q with --stream 'a b' ends with %d", args, got)
		}
	}
}
