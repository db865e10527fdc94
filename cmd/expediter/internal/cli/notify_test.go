package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// letters is a channel that fails for the user "gone", and never returns for the user "slow".
type letters struct{}

func (letters) Name() string { return "letters" }

func (letters) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	switch m.UserID {
	case "gone":
		return channel.Receipt{}, &channel.Error{Channel: "letters", Kind: channel.KindRejected, Cause: errors.New("moved\x1b[31m away")}
	case "slow":
		<-ctx.Done()
		return channel.Receipt{}, &channel.Error{Channel: "letters", Kind: channel.KindTimeout, Cause: ctx.Err()}
	}
	return channel.Receipt{ID: "letter-" + m.ID}, nil
}

const letterRules = `version: 1
events:
  HELLO:
    CUSTOMER: {scope: user, channels: [inapp], category: greetings}
  LETTER:
    CUSTOMER: {scope: user, channels: [letters]}
`

// startNotifier is `notifier`: it starts a NATS server and a notifier, until the script ends, and sets NATS_URL. Customers are
// notified of HELLO in their inboxes, and of LETTER by letters.
func startNotifier(ts *testscript.TestScript, _ bool, _ []string) {
	path := filepath.Join(ts.MkAbs("."), "served.yaml")
	ts.Check(os.WriteFile(path, []byte(letterRules), 0o600))
	p, err := pipeline.Start(context.Background(), pipeline.Config{
		Logger: slog.New(slog.DiscardHandler), Provider: nobody{}, Notifiers: []string{"-"},
		Notifier: notifier.Config{Rules: path, Channels: []notifier.Channel{{Channel: letters{}, Timeout: 500 * time.Millisecond}}},
	})
	ts.Check(err)
	ts.Defer(func() { ts.Check(p.Stop()) })
	ts.Setenv("NATS_URL", p.NATSURL())
}

// follows is `follows N FILE COMMAND...`: it starts a command that follows, and emits a file when it has written N-1 lines. When
// it has written one more, it interrupts it, which has to be no error, and takes the lines for the standard output.
func follows(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[2], args[3:]...)
	cmd.Env = append(os.Environ(), "NATS_URL="+ts.Getenv("NATS_URL"))
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	reader := bufio.NewReader(out)
	for i := 1; i <= n; i++ {
		if i == n {
			ts.Check(ts.Exec("expediter", "emit", args[1]))
		}
		line, err := reader.ReadString('\n')
		ts.Check(err)
		_, err = io.WriteString(ts.Stdout(), line)
		ts.Check(err)
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	ts.Check(cmd.Wait())
}
