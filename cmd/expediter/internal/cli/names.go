package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/expediter-io/expediter/internal/channels"
	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// completeTime bounds the completion of a name, in which a shell stands still. Tests have more time, for busy machines.
var completeTime = 2 * time.Second

type lookup func(ctx context.Context, js jetstream.JetStream, flag func(string) string) ([]string, error)

// lookups complete arguments and flags, by their names.
var lookups = map[string]lookup{
	"BUCKET": bucketNames, "JOB-STREAM": streamNames, "LOCK": lockNames, "PREFIX": lockNames, "STREAM": streamNames, "WORKER": workerNames,
	"bucket": bucketNames, "job-stream": streamNames, "signature": signatures, "stream": streamNames, "worker": workerNames,
}

func streamNames(ctx context.Context, js jetstream.JetStream, _ func(string) string) (names []string, err error) {
	all := js.StreamNames(ctx)
	for name := range all.Name() {
		if !strings.HasPrefix(name, "KV_") && !strings.HasPrefix(name, "OBJ_") {
			names = append(names, name)
		}
	}
	return names, all.Err()
}

func bucketNames(ctx context.Context, js jetstream.JetStream, _ func(string) string) (names []string, err error) {
	all := js.KeyValueStoreNames(ctx)
	for name := range all.Name() {
		names = append(names, name)
	}
	return names, all.Error()
}

func lockNames(ctx context.Context, js jetstream.JetStream, flag func(string) string) (names []string, err error) {
	locks, err := kvlock.NewLocker(ctx, js, kvlock.LockerConfig{Bucket: flag("bucket"), OpTimeout: completeTime})
	if err != nil {
		return nil, err
	}
	defer locks.Close()
	for lock, err := range locks.List(ctx, "") {
		if err == nil {
			names = append(names, lock.Name)
		}
	}
	return names, nil
}

func workerNames(ctx context.Context, js jetstream.JetStream, _ func(string) string) (names []string, err error) {
	all, err := inspect.Workers(ctx, js)
	for _, w := range all {
		names = append(names, w.ID)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

func signatures(ctx context.Context, js jetstream.JetStream, flag func(string) string) (names []string, err error) {
	store, err := deadletter.Open(ctx, js, deadletter.Config{RequestTimeout: completeTime, Stream: flag("stream")})
	if err != nil {
		return nil, err
	}
	overview, err := store.Survey(ctx, deadletter.Filter{}, deadletter.SurveyOptions{})
	for _, g := range overview.Groups {
		names = append(names, g.Signature)
	}
	return names, err
}

// completeNames has the arguments and flags of a command completed with the names of things. Only paths are completed with files.
func (g *globals) completeNames(cmd *cobra.Command) {
	words := strings.Fields(cmd.Use)[1:]
	if cmd.ValidArgsFunction == nil && cmd.Name() != "lock" { // whose command line ends with another command
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(words) == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			name := argument(words[min(len(args), len(words)-1)])
			switch list := lookups[name]; {
			case list != nil:
				return g.completer(list)(cmd, args, begun)
			case slices.Contains([]string{"DIR", "FILE", "SOURCE"}, name):
				return nil, cobra.ShellCompDirectiveDefault
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			if _, done := cmd.GetFlagCompletionFunc(f.Name); done {
				return
			}
			switch list := lookups[f.Name]; {
			case list != nil:
				_ = cmd.RegisterFlagCompletionFunc(f.Name, g.completer(list)) // the flag exists
			case f.Name == "channel", f.Name == "channels":
				completeWith(cmd, f.Name, channels.Names()...)
			case f.Name == "account", f.Name == "accounts":
				completeWith(cmd, f.Name, strings.Fields(strings.ToUpper(strings.Join(contracts.Services(), " ")))...)
			}
		})
	}
}

// completer completes with names on the server, and with nothing when it does not answer in time.
func (g *globals) completer(list lookup) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		f := &natsFlags{globals: g, timeout: completeTime}
		flag := func(name string) string {
			if flag := cmd.Flag(name); flag != nil {
				return flag.Value.String()
			}
			return ""
		}
		f.account = flag("account")
		for variable, value := range variables(&f.NATSConfig) {
			*value = flag(strings.Replace(strings.ToLower(strings.TrimPrefix(variable, "NATS_")), "url", "server", 1))
		}
		ctx, cancel := context.WithTimeout(cmd.Root().Context(), completeTime)
		defer cancel()
		_ = f.with(ctx, "expediter completion", func(ctx context.Context, js jetstream.JetStream) (err error) {
			names, err = list(ctx, js, flag)
			return err
		}) // a shell has no place for the error
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
