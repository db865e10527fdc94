package natsrun_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	deploy "github.com/expediter-io/expediter/deploy/nats"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// site is a server with the deployed accounts. Each stream holds a message with the name of its account, each consumer
// waits for an acknowledgement, and each service answers a request with the request.
type site struct {
	*testing.T

	admin *nats.Conn
	srv   *natsrun.Server
	users *natstest.Users
	wait  time.Duration // for an answer

	acks []string // the subjects that would acknowledge the deliveries of consumers
}

// consumers are the durable ones of the services, by stream.
var consumers = map[string]string{
	"ENRICH_JOBS": "enricher", "EVENTS": "notifier", "IMPORT_JOBS": "importer", "NOTIFICATIONS": "notifier-send-email",
}

// samples are subjects of the streams of each account.
var samples = map[string][]string{
	"ENRICHER": {"$KV.enrich.x", "$KV.jobs.limits.x", "$KV.requests.x", "dead.ENRICH_JOBS.x", "jobs.enrich.x"},
	"IMPORTER": {
		"$KV.import-jobs.x", "$KV.import-steps.x", "$KV.jobs.excused.IMPORT_JOBS.x", "$KV.recipes.x", "$O.import-steps.M.x",
		"dead.IMPORT_JOBS.x", "jobs.import.x",
	},
	"NOTIFIER": {
		"$KV.deliveries.x", "$KV.directory.x.x", "$KV.inbox.x", "$KV.jobs.excused.EVENTS.x", "dead.EVENTS.x", "events.order.x",
		"notify.plan.x", "notify.send.x",
	},
	"OPERATOR": {"$KV.locks.x", "audit.cli.x", "audit.notifier.x"},
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, users: natstest.NewUsers(t), wait: long}
	s.srv = natstest.Server(t, func(c *natsrun.Config) { c.Users = s.users.Public })
	s.admin, _ = natstest.Connect(t, s.srv, s.users.As("admin"))
	s.fill()
	s.answer()
	return s
}

// store has the admin store a message that holds the name of its account.
func (s *site) store(js jetstream.JetStream, account, subject string) {
	s.Helper()
	target := subject
	if account != "OPERATOR" && strings.HasPrefix(subject, "$KV.") {
		target = "$JS." + account + ".API." + subject
	}
	if strings.HasPrefix(subject, "$O.") { // which no operator writes
		return
	}
	_, err := js.Publish(s.Context(), target, []byte("secret of "+account))
	s.must(err)
}

// fill makes everything that is declared, with a message in each stream and one that each consumer has taken.
func (s *site) fill() {
	s.Helper()
	createAssets(s.T, s.admin, 1)
	for account, subjects := range samples {
		js := accountOf(s.T, s.admin, account)
		for _, subject := range subjects {
			s.store(js, account, subject)
		}
		for stream, durable := range consumers {
			if !slices.Contains(declared[account], "streams/"+stream) {
				continue
			}
			consumer, err := js.CreateConsumer(s.Context(), stream, jetstream.ConsumerConfig{Durable: durable, AckPolicy: jetstream.AckExplicitPolicy})
			s.must(err)
			msg, err := consumer.Next()
			s.must(err)
			s.acks = append(s.acks, msg.Reply())
		}
	}
}

// answer answers each request to a service, as the user of that service, with the request.
func (s *site) answer() {
	s.Helper()
	for _, name := range []string{"enricher", "importer", "notifier"} {
		nc, _ := natstest.Connect(s.T, s.srv, s.users.As(name))
		for _, subject := range []string{name + ".v1.>", "worker.v1.>", "$SRV.>"} {
			_, err := nc.Subscribe(subject, func(m *nats.Msg) { s.must(m.Respond(m.Data)) })
			s.must(err)
		}
		s.must(nc.Flush())
	}
}

// state is everything about the streams of one account that another one could change.
func (s *site) state(account string) map[string]string {
	s.Helper()
	all := make(map[string]string)
	js := accountOf(s.T, s.admin, account)
	list := js.ListStreams(s.Context())
	for info := range list.Info() {
		all[info.Config.Name] = describe(info.Config, info.State.Msgs, info.State.FirstSeq, info.State.LastSeq, info.State.NumDeleted)
		stream, err := js.Stream(s.Context(), info.Config.Name)
		s.must(err)
		consumers := stream.ListConsumers(s.Context())
		for c := range consumers.Info() {
			all[info.Config.Name+" "+c.Name] = describe(c.Config, c.NumAckPending, c.AckFloor.Stream)
		}
		s.must(consumers.Err())
	}
	s.must(list.Err())
	return all
}

func describe(all ...any) string {
	text, err := json.Marshal(all)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// idle waits until the server has carried out every request to JetStream.
func (s *site) idle() {
	s.Helper()
	nc, _ := natstest.Connect(s.T, s.srv, s.users.As("sys"))
	for {
		msg, err := nc.Request("$SYS.REQ.SERVER.PING.JSZ", nil, time.Minute)
		s.must(err)
		if !bytes.Contains(msg.Data, []byte(`"inflight"`)) {
			return
		}
	}
}

func (s *site) must(err error) {
	s.Helper()
	check.OK(s, err)
}

// quietly keeps expected refusals from standard error.
func quietly() nats.Option { return nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}) }

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen, c.Users = true, users.Public })
	for name, opts := range map[string][]nats.Option{
		"no user":   nil,
		"wrong key": {natstest.NewUsers(t).As("admin")},
		"password":  {nats.UserInfo("admin", users.Public["admin"])},
	} {
		nc, err := nats.Connect(srv.URL(), opts...)
		check.Is(t, err, nats.ErrAuthorization, name)
		nc.Close()
	}
}

// Neither 1,100 connections that say no user, nor a source system with as many as it gets, keep others out.
func TestConnectionsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen, c.Users = true, users.Public })
	for range 1100 {
		silent := check.Must(net.Dial("tcp", strings.TrimPrefix(srv.URL(), "nats://")))(t)
		t.Cleanup(func() { silent.Close() })
	}
	connect := func(user string) error {
		nc, err := nats.Connect(srv.URL(), users.As(user), nats.NoReconnect(), nats.Timeout(long), quietly())
		if err == nil {
			t.Cleanup(nc.Close)
		}
		return err
	}
	most := 0
	for ; ; most++ {
		if err := connect("publisher"); err != nil {
			check.Is(t, err, nats.ErrMaxAccountConnectionsExceeded)
			break
		}
	}
	check.Same(t, "a source system has connections", most, 512)
	for _, user := range []string{"admin", "backup_notifier", "console", "enricher", "importer", "notifier", "sys"} {
		check.OK(t, connect(user))
	}
}

// crossing is a line of accounts.conf that lets something cross a border.
var crossing = regexp.MustCompile(`^\s*\{ (service|stream): .*\}(\s+#.*)?$`)

// Without any one of the exports and imports some flow fails, or the server does not start. All lines are removed in turn
// with NATSRUN_ALL_LINES=1, and a sample of them without.
func TestNoExportOrImportIsInVain(t *testing.T) {
	t.Parallel()
	text := check.Must(deploy.Text("accounts.conf"))(t)
	lines := strings.SplitAfter(text, "\n")
	var all []int
	for i, line := range lines {
		if crossing.MatchString(strings.TrimSuffix(line, "\n")) {
			all = append(all, i)
		}
	}
	check.Require(t, len(all) >= 50, "%d lines cross borders: does the expression still fit?", len(all))
	if os.Getenv("NATSRUN_ALL_LINES") == "" {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:10]
	}
	v := vain{dir: t.TempDir(), users: natstest.NewUsers(t), wait: long}
	check.OK(t, v.try(t, lines, (*site).fill))
	check.OK(t, v.try(t, lines)) // so that a failure below is for want of a line
	v.wait = brief
	for _, i := range all {
		check.That(t, v.try(t, slices.Concat(lines[:i], lines[i+1:])) != nil,
			"everything works without line %d of accounts.conf: %s", i+1, strings.TrimSpace(lines[i]))
	}
}

// vain starts one server after the other on the same store.
type vain struct {
	dir   string
	users *natstest.Users
	wait  time.Duration
}

// try starts a server with the lines as its accounts, prepares it, and runs all flows.
func (v vain) try(t *testing.T, lines []string, prepare ...func(*site)) error {
	t.Helper()
	text := check.Must(deploy.Text("single.conf"))(t)
	for name, key := range v.users.Public {
		text += fmt.Sprintf("NATS_NKEY_%s: %q\n", strings.ToUpper(name), key)
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	check.OK(t, os.WriteFile(file, []byte(text+strings.Join(lines, "")), 0o600))
	srv, err := natsrun.Start(natsrun.Config{ConfigFile: file, Dir: v.dir})
	if err != nil {
		return err // an import without its export
	}
	defer srv.Stop()
	s := &site{T: t, srv: srv, users: v.users, wait: v.wait}
	s.admin, _ = natstest.Connect(t, srv, v.users.As("admin"))
	for _, p := range prepare {
		p(s)
	}
	s.answer()
	for _, flow := range flows {
		if err := flow(s); err != nil {
			return err
		}
	}
	return nil
}
