package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// An import that cannot go on says how to resume it, and then leaves out the lines that are stored.
func TestAnImportIsResumed(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	nc, _ := natstest.Connect(t, srv)
	var mu sync.Mutex // guards the next two
	stored, full := map[string]int{}, 1500
	answer := func(msg *nats.Msg) { // a notifier whose store is full after 1,500 users
		mu.Lock()
		defer mu.Unlock()
		var results strings.Builder
		for i, line := range strings.Split(strings.TrimSpace(string(msg.Data)), "\n") {
			status := "stored"
			if len(stored) >= full && stored[line] == 0 {
				status = "failed"
			} else {
				stored[line]++
			}
			fmt.Fprintf(&results, `{"line":%d,"status":%q,"detail":"a store is full"}`+"\n", i+1, status)
		}
		check.OK(t, msg.Respond([]byte(results.String())))
	}
	check.OK(t, check.Err(nc.Subscribe("notifier.v1.users.import", answer)))
	check.OK(t, nc.Flush())
	path := filepath.Join(t.TempDir(), "users.csv")
	text := bytes.NewBufferString("user_id,plan\n")
	for i := range 2500 {
		fmt.Fprintf(text, "u%d,gold\n", i)
	}
	check.OK(t, os.WriteFile(path, text.Bytes(), 0o600))
	_, said := runOn(t, srv, ExitUnavailable, "users", "import", path, "--type", "CUSTOMER")
	check.Contains(t, said, "1000 users stored", "a store is full", "resume with --skip 1000")
	mu.Lock()
	full = 1 << 20
	mu.Unlock()
	_, said = runOn(t, srv, ExitOK, "users", "import", path, "--type", "CUSTOMER", "--skip", "1000")
	check.Contains(t, said, "1500 users stored")
	mu.Lock()
	defer mu.Unlock()
	check.Equal(t, len(stored), 2500, "users are stored")
}

// pager is a channel that fails for the user "gone", and never returns for the user "slow".
type pager struct{}

func (pager) Name() string { return "pager" }

func (pager) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	switch m.UserID {
	case "gone":
		return channel.Receipt{}, &channel.Error{Channel: "pager", Kind: channel.KindRejected, Cause: errors.New("moved\x1b[31m away")}
	case "slow":
		<-ctx.Done()
		return channel.Receipt{}, &channel.Error{Channel: "pager", Kind: channel.KindTimeout, Cause: ctx.Err()}
	}
	return channel.Receipt{ID: "receipt-" + m.ID}, nil
}

const alarmRules = `version: 1
categories: {news: News}
events:
  HELLO:
    CUSTOMER: {scope: user, channels: [inapp], category: greetings}
  ALARM:
    CUSTOMER: {scope: user, channels: [pager]}
`

// startNotifier is `notifier`: it starts a NATS server and a notifier, until the script ends, and sets NATS_URL. Customers are
// notified of HELLO in their inboxes, and of ALARM by pager.
func startNotifier(ts *testscript.TestScript, _ bool, _ []string) {
	path := filepath.Join(ts.MkAbs("."), "served.yaml")
	ts.Check(os.WriteFile(path, []byte(alarmRules), 0o600))
	p, err := pipeline.Start(context.Background(), pipeline.Config{
		Logger: slog.New(slog.DiscardHandler), Provider: nobody{}, Notifiers: []string{"-"},
		Notifier: notifier.Config{Rules: path, Channels: []notifier.Channel{{Channel: pager{}, Timeout: 500 * time.Millisecond}}},
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

// previews runs the command for previews, which has to end with a code, and returns what it says.
func previews(t *testing.T, want int, args ...string) (said string) {
	t.Helper()
	var stderr bytes.Buffer
	check.Equal(t, Run(t.Context(), Config{Stderr: &stderr}, append([]string{"templates", "preview"}, args...)), want, "exit code of", args)
	return stderr.String()
}

const examples, exampleData = "../../../../examples/templates", "../../../../examples/templates.json"

func TestTemplatesPreview(t *testing.T) {
	t.Parallel()
	folder, deep := t.TempDir(), filepath.Join(t.TempDir(), "deep.json")
	check.OK(t, os.WriteFile(deep, []byte(`{"a":`+strings.Repeat("[", 1<<20)), 0o600))
	page := filepath.Join(folder, "index.html")
	check.Contains(t, previews(t, 0, examples, "--data", exampleData, "--out", folder), page+" shows all texts.")
	read := func() string { return string(check.Must(os.ReadFile(page))(t)) }
	check.Contains(t, read(), `srcdoc="&lt;!doctype`, `dir=&#34;rtl&#34;`, "ל־4 סועדים", "1,250.50", "www.\u200bevil.\u200bexample",
		"<strong dir=\"auto\">A table for 4 guests, 2026-01-16 18:30 UTC</strong>", "token=sample", "digest (built in)",
		"leads to https://cucina.example/reservations/r-17")
	var all map[string]json.RawMessage // of which one is enough for one template
	check.OK(t, json.Unmarshal(check.Must(os.ReadFile(exampleData))(t), &all))
	one := filepath.Join(t.TempDir(), "one.json")
	check.OK(t, os.WriteFile(one, check.Must(json.Marshal(map[string]any{"reservations.digest": all["reservations.digest"], "nobody": 1}))(t), 0o600))
	said := previews(t, 1, examples, "--data", one, "--out", folder)
	check.Contains(t, said+read(), "nobody", "RESERVATION_REQUESTED/default.subject:1:", "2 requests for tables")
	check.Contains(t, previews(t, 1, examples, "--out", folder), "RESERVATION_REQUESTED he sms: ", "error: 9 texts: cannot be made")
	for data, want := range map[string]string{"/dev/zero": "has more than", deep: "exceeded max depth"} {
		check.Contains(t, previews(t, 1, examples, "--data", data, "--out", folder), want)
	}
	said = previews(t, 1, examples, "--data", exampleData, "--out", "/tmp")
	check.Contains(t, said, "/tmp: another user may change what is in it")
	said = previews(t, 1, "testdata", "--out", folder)
	check.Contains(t, said, "testdata/script/", "mistakes: a notifier would not take this into force")
}

func TestTemplatesSend(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	nc, _ := natstest.Connect(t, srv)
	asked := make(chan string, 2)
	answers := make(chan string, 2)
	answers <- `{"id":"test_1","provider_id":"x"}`
	answers <- `{"id":"test_2","problem":"email: bounced (550)"}`
	check.OK(t, check.Err(nc.Subscribe("notifier.v1.templates.test", func(msg *nats.Msg) {
		asked <- string(msg.Data)
		check.OK(t, msg.Respond([]byte(<-answers)))
	})))
	check.OK(t, nc.Flush())
	args := []string{"templates", "send", "reservations.digest", "--to", "a@example.com", "--locale", "he", "--data", exampleData}
	_, said := runOn(t, srv, ExitOK, args...)
	check.Contains(t, said, "test_1 is sent.")
	check.Contains(t, <-asked, `"channel":"email","locale":"he","payload":{"count":`, `"template":"reservations.digest","to":"a@example.com"`)
	_, said = runOn(t, srv, ExitFailure, args...)
	check.Contains(t, said, "email: bounced (550): the test message was not sent")
	_, said = runOn(t, srv, ExitUsage, "templates", "send", "x")
	check.Contains(t, said, "--to is required")
}
