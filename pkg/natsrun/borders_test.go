package natsrun_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
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
	"github.com/nats-io/nuid"

	deploy "github.com/expediter-io/expediter/deploy/nats"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// patience bounds the wait for an answer. It is far longer than any takes on a busy machine.
const patience = time.Minute

// flows are the users' requests beyond the borders of their accounts.
var flows = map[string]func(*site) error{
	"admin":     (*site).administer,
	"console":   (*site).watch,
	"notifier":  (*site).audit,
	"publisher": (*site).publish,
	"sys":       (*site).monitor,
}

func TestUsersReachWhatIsImported(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for user, flow := range flows {
		check.ErrorIs(t, flow(s), nil, user)
	}
}

// site is a server with the deployed accounts. Each stream holds a message with the name of its account, each consumer
// waits for an acknowledgement, and each service answers a request with the request.
type site struct {
	*testing.T

	admin *nats.Conn
	srv   *natsrun.Server
	users *natstest.Users

	acks []string // the subjects that would acknowledge the deliveries of consumers
}

// publish publishes events as source systems do.
func (s *site) publish() error {
	nc, js := s.as("publisher")
	if _, err := js.Publish(s.Context(), "events.order.y", []byte("y"), jetstream.WithMsgID("y")); err != nil {
		return fmt.Errorf("publish an event: %w", err)
	}
	return errors.Join(
		s.reached(nc, "$JS.API.DIRECT.GET.EVENTS"),
		s.answered(nc, "enricher.v1.x", "importer.v1.x", "notifier.v1.get", "notifier.v1.list", "notifier.v1.publish"),
		s.operates(nc),
		s.reached(nc, "$JS.API.INFO"), // so that a command knows that the servers answer
		s.denied(nc, "$SYS.REQ.USER.INFO", "$SYS.REQ.ACCOUNT.PING.CONNZ", "events./routed.X"),
	)
}

// denied returns an error unless the server denies publishing to the subjects.
func (s *site) denied(nc *nats.Conn, subjects ...string) error {
	for _, subject := range subjects {
		s.must(errors.Join(nc.Publish(subject, nil), nc.Flush()))
		if err := nc.LastError(); !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), `"`+subject+`"`) {
			return fmt.Errorf("publish to %s: %w, want a violation of permissions", subject, err)
		}
	}
	return nil
}

// operates returns an error when a user reaches a subject for operators.
func (s *site) operates(nc *nats.Conn) error {
	for _, subject := range []string{
		"notifier.v1.cancel", "notifier.v1.endpoints.enable", "notifier.v1.endpoints.list", "notifier.v1.replay",
		"worker.v1.info", "worker.v1.recent", "worker.v1.stacks", "worker.v1.drain.x", "worker.v1.resume.x",
		"$JS.API.CONSUMER.INFO.EVENTS.notifier", "$JS.API.STREAM.INFO.EVENTS", "$JS.API.STREAM.MSG.GET.EVENTS", "$JS.API.STREAM.NAMES",
	} {
		if _, err := nc.Request(subject, nil, patience); !errors.Is(err, nats.ErrNoResponders) {
			return fmt.Errorf("request %s: %w, want no responders", subject, err)
		}
	}
	return nil
}

// audit writes records as the notifier does, in another account.
func (s *site) audit() error {
	_, js := s.as("notifier")
	_, err := js.Publish(s.Context(), "audit.notifier.operators", []byte("y"))
	return err
}

// watch reads and asks as the pages for operators do.
func (s *site) watch() error {
	nc, _ := s.as("console")
	errs := []error{s.answered(nc, "enricher.v1.place", "importer.v1.cancel", "importer.v1.get", "importer.v1.recipe", "importer.v1.retry",
		"notifier.v1.cancel", "notifier.v1.get", "notifier.v1.list", "notifier.v1.replay", "$SYS.REQ.SERVER.PING.HEALTHZ", "$SYS.REQ.SERVER.PING.JSZ")}
	for account, work := range map[string][]string{
		"": {
			"$JS.API.DIRECT.GET.AUDIT", "$JS.API.DIRECT.GET.AUDIT_USERS", "$JS.API.DIRECT.GET.KV_locks", "$JS.API.STREAM.MSG.GET.KV_locks", "audit.console.operators", "$KV.locks.y",
		},
		"ENRICHER": {"GET.ENRICH_JOBS", "GET.KV_jobs", "$KV.jobs.cancelled.y", "STREAM.MSG.DELETE.ENRICH_JOBS", "jobs.enrich.y", "dead.ENRICH_JOBS.y"},
		"IMPORTER": {"GET.IMPORT_JOBS", "GET.KV_jobs", "$KV.jobs.cancelled.y", "STREAM.MSG.GET.KV_import-steps", "STREAM.MSG.DELETE.IMPORT_JOBS", "jobs.import.y", "dead.IMPORT_JOBS.y"},
		"NOTIFIER": {"GET.EVENTS", "GET.KV_jobs", "GET.NOTIFICATIONS", "events.order.y", "notify.send.y", "dead.EVENTS.y", "dead.NOTIFICATIONS.y"},
	} {
		api := "$JS.API."
		if account != "" {
			api = "$JS." + account + ".API."
			errs = append(errs, s.answered(nc, api+"$SRV.PING."+strings.ToLower(account), api+"worker.v1.info", api+"worker.v1.recent.x",
				api+"worker.v1.stacks.x", api+"worker.v1.drain.x", api+"worker.v1.resume.x"))
			work = append(work, "CONSUMER.INFO.DEAD.X", "CONSUMER.LIST.DEAD", "GET.DEAD", "STREAM.MSG.DELETE.DEAD", "$KV.jobs.paused.y")
		}
		work = append(work, "INFO", "STREAM.NAMES", "STREAM.LIST")
		for _, name := range declared[cmp.Or(account, "OPERATOR")] {
			work = append(work, "STREAM.INFO."+streamName(name))
		}
		for _, what := range work {
			switch {
			case strings.HasPrefix(what, "GET."):
				errs = append(errs, s.reached(nc, api+"DIRECT."+what), s.reached(nc, api+"STREAM.MSG."+what))
			case what == strings.ToUpper(what) && !strings.HasPrefix(what, "$JS") || account != "" && strings.HasPrefix(what, "$KV") || strings.HasPrefix(what, "STREAM") || strings.HasPrefix(what, "DIRECT"):
				errs = append(errs, s.reached(nc, api+what))
			default:
				errs = append(errs, s.reached(nc, what))
			}
		}
	}
	return errors.Join(errs...)
}

// reached returns an error unless a request reaches JetStream in the account to which it leads.
func (s *site) reached(nc *nats.Conn, subject string) error {
	msg, err := nc.Request(subject, []byte(`{"filter":"none","seq":1000000}`), patience)
	if err == nil && strings.Contains(string(msg.Data), "not enabled for account") {
		err = errors.New(string(msg.Data))
	}
	if err != nil {
		return fmt.Errorf("request %s: %w", subject, err)
	}
	return nil
}

// administer acts as operators and the deployment do in the account of each service.
func (s *site) administer() error {
	nc, own := s.as("admin")
	changes, err := nc.SubscribeSync("rp.inbox.>")
	if err != nil {
		return err
	}
	errs := []error{s.answered(nc, "enricher.v1.x", "importer.v1.x", "notifier.v1.x", "$SYS.REQ.SERVER.PING.HEALTHZ"), s.useAccount(own, "KV_locks", "locks")}
	for account, work := range map[string][]string{
		"ENRICHER": {"KV_enrich", "enrich", "jobs.enrich.y", "dead.ENRICH_JOBS.y"},
		"IMPORTER": {"KV_recipes", "recipes", "jobs.import.y", "dead.IMPORT_JOBS.y"},
		"NOTIFIER": {"KV_inbox", "inbox", "events.y", "notify.send.y", "dead.EVENTS.y", "dead.NOTIFICATIONS.y"},
	} {
		js, err := jetstream.NewWithAPIPrefix(nc, "$JS."+account+".API", jetstream.WithDefaultTimeout(patience))
		errs = append(errs, err, s.useAccount(js, work[0], work[1]), s.snapshot(account, work[0]),
			s.answered(nc, "$JS."+account+".API.$SRV.PING."+strings.ToLower(account), "$JS."+account+".API.worker.v1.x"))
		for _, subject := range work[2:] {
			subject = strings.TrimSuffix(subject, "y") + nuid.Next() // streams of jobs take one message of a subject
			if _, err := js.Publish(s.Context(), subject, nil); err != nil {
				errs = append(errs, fmt.Errorf("publish %s: %w", subject, err))
			}
		}
	}
	if _, err := changes.NextMsg(patience); err != nil {
		errs = append(errs, fmt.Errorf("follow an inbox: %w", err))
	}
	return errors.Join(append(errs, s.many(nc, "$SRV.PING", "", len(declared)-1), s.many(nc, "worker.v1.info", "", len(declared)-1))...)
}

// useAccount uses a bucket, and the streams of its account.
func (s *site) useAccount(js jetstream.JetStream, stream, bucket string) error {
	kv, err := js.KeyValue(s.Context(), bucket)
	if err != nil {
		return fmt.Errorf("bind %s: %w", bucket, err)
	}
	large := make([]byte, 4096) // for a backup in parts
	for i := range large {
		large[i] = byte(rand.Uint32())
	}
	if _, err := kv.Put(s.Context(), "y", large); err != nil {
		return fmt.Errorf("put into %s: %w", bucket, err)
	}
	if _, err := kv.Get(s.Context(), "y"); err != nil {
		return fmt.Errorf("get from %s: %w", bucket, err)
	}
	if _, err := js.AccountInfo(s.Context()); err != nil {
		return fmt.Errorf("account of %s: %w", bucket, err)
	}
	consumer, err := js.CreateConsumer(s.Context(), stream, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		return fmt.Errorf("list %s: %w", bucket, err)
	}
	batch, err := consumer.Fetch(2, jetstream.FetchMaxWait(patience))
	if err != nil {
		return fmt.Errorf("list %s: %w", bucket, err)
	}
	n := 0
	for range batch.Messages() {
		n++
	}
	if n != 2 {
		return fmt.Errorf("list %s: %d keys, %w", bucket, n, batch.Error())
	}
	return nil
}

// snapshot backs up and restores a stream, as the nats CLI does for the user of an account's backups.
func (s *site) snapshot(account, stream string) (err error) {
	nc, _ := s.as("backup_" + strings.ToLower(account))
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience)) // what crosses no border is answered, however slow the machine is
	s.must(err)
	deliver := nc.NewRespInbox()
	chunks, err := nc.SubscribeSync(deliver)
	if err != nil {
		return err
	}
	// A server waits for an acknowledgement for five seconds, also when it is stopped in the meantime, and then ends the snapshot.
	defer func() {
		for ended := err == nil; !ended; {
			part, none := chunks.NextMsg(6 * time.Second)
			ended = none != nil || len(part.Data) == 0
		}
		err = errors.Join(err, chunks.Unsubscribe())
	}()
	// The window holds one part: the second comes when the first is acknowledged.
	if _, err := nc.Request("$JS.API.STREAM.SNAPSHOT."+stream, []byte(`{"deliver_subject":"`+deliver+`","chunk_size":1024,"window_size":1024}`), patience); err != nil {
		return fmt.Errorf("snapshot of %s: %w", stream, err)
	}
	for n := 0; ; n++ {
		part, err := chunks.NextMsg(patience + 3*time.Second) // the server looks for subscriptions for two seconds
		if err != nil {
			return fmt.Errorf("part %d of %s: %w", n, stream, err)
		}
		if len(part.Data) == 0 {
			if n < 2 {
				return fmt.Errorf("%s has %d parts: too few to need an acknowledgement", stream, n)
			}
			break
		}
		if part.Reply != "" {
			if err := part.Respond(nil); err != nil {
				return err
			}
		}
	}
	// A restore that ends before its first part makes no stream.
	dead, err := js.Stream(s.Context(), "DEAD")
	if err != nil {
		return fmt.Errorf("look up the dead letters: %w", err)
	}
	s.must(js.DeleteStream(s.Context(), "DEAD"))
	defer func() {
		_, err := js.CreateStream(s.Context(), dead.CachedInfo().Config)
		s.must(err)
	}()
	answer, err := nc.Request("$JS.API.STREAM.RESTORE.DEAD", []byte(`{"config":{"name":"DEAD","max_bytes":1024},"state":{}}`), patience)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	_, subject, _ := strings.Cut(string(answer.Data), `"deliver_subject":"`)
	subject, _, _ = strings.Cut(subject, `"`)
	if answer, err = nc.Request(subject, nil, patience); err != nil || !strings.Contains(string(answer.Data), "restore failed") {
		return fmt.Errorf("end a restore on %q: %w: %v", subject, err, answer)
	}
	return nil
}

// monitor asks as monitoring does.
func (s *site) monitor() error {
	nc, _ := s.as("sys")
	err := s.answered(nc, "$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.HEALTHZ",
		"$SYS.REQ.SERVER.PING.JSZ", "$SYS.REQ.SERVER.PING.VARZ", "$SYS.REQ.ACCOUNT.PING.STATZ")
	if err != nil {
		return err
	}
	// Each account may see its own counts without an import. Monitoring sees those of all.
	msg, err := nc.Request("$SYS.REQ.ACCOUNT.PING.STATZ", nil, patience)
	if err == nil && !strings.Contains(string(msg.Data), `"NOTIFIER"`) {
		err = fmt.Errorf("STATZ is about one account only:\n%s", msg.Data)
	}
	return err
}

func (s *site) as(user string) (*nats.Conn, jetstream.JetStream) {
	nc, _ := natstest.Connect(s.T, s.srv, s.users.As(user), quietly())
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	s.must(err)
	return nc, js
}

func (s *site) answered(nc *nats.Conn, subjects ...string) error {
	for _, subject := range subjects {
		if _, err := nc.Request(subject, nil, patience); err != nil {
			return fmt.Errorf("ask %s: %w", subject, err)
		}
	}
	return nil
}

// many asks for several answers.
func (s *site) many(nc *nats.Conn, subject, body string, n int) error {
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	if err := nc.PublishRequest(subject, inbox, []byte(body)); err != nil {
		return err
	}
	for i := range n {
		if _, err := sub.NextMsg(patience); err != nil {
			return fmt.Errorf("answer %d of %d of %s: %w", i+1, n, subject, err)
		}
	}
	return sub.Unsubscribe()
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
	"OPERATOR": {"$KV.locks.x", "audit.cli.operators", "audit.notifier.operators"},
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, users: natstest.NewUsers(t)}
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
		check.ErrorIs(t, err, nats.ErrAuthorization, name)
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
		nc, err := nats.Connect(srv.URL(), users.As(user), nats.NoReconnect(), nats.Timeout(patience), quietly())
		if err == nil {
			t.Cleanup(nc.Close)
		}
		return err
	}
	most := 0
	for ; ; most++ {
		if err := connect("publisher"); err != nil {
			check.ErrorIs(t, err, nats.ErrMaxAccountConnectionsExceeded)
			break
		}
	}
	check.Equal(t, most, 512, "a source system has connections")
	for _, user := range []string{"admin", "backup_notifier", "console", "enricher", "importer", "notifier", "sys"} {
		check.OK(t, connect(user))
	}
}

// crossing is a line of accounts.conf that lets something cross a border.
var crossing = regexp.MustCompile(`^\s*\{ (service|stream): .*\}(\s+#.*)?$`)

// Without any one of the exports and imports some flow fails, or the server does not start. All lines are removed in turn
// with NATSRUN_ALL_LINES=1, and a sample of them without.
func TestNoExportOrImportIsInVain(t *testing.T) {
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
	users, dir := natstest.NewUsers(t), t.TempDir()
	check.OK(t, reach(t, users, dir, lines, (*site).fill))
	for _, i := range all {
		check.That(t, reach(t, users, dir, slices.Concat(lines[:i], lines[i+1:])) != nil,
			"everything works without line %d of accounts.conf: %s", i+1, strings.TrimSpace(lines[i]))
	}
}

// reach starts a server with the lines as its accounts on a store, prepares it, and runs all flows. Under fake time no answer is too late.
func reach(t *testing.T, users *natstest.Users, dir string, lines []string, prepare ...func(*site)) (failed error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	text := check.Must(deploy.Text("single.conf"))(t)
	for name, key := range users.Public {
		text += fmt.Sprintf("NATS_NKEY_%s: %q\n", strings.ToUpper(name), key)
	}
	check.OK(t, os.WriteFile(file, []byte(text+strings.Join(lines, "")), 0o600))
	srv, err := natsrun.Start(natsrun.Config{ConfigFile: file, Memory: true})
	if err != nil {
		return err // an import without its export
	}
	srv.Stop()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		s := &site{T: t, srv: srv, users: users}
		s.admin, _ = natstest.Connect(t, srv, users.As("admin"))
		for _, p := range prepare {
			p(s)
		}
		s.answer()
		for _, flow := range flows {
			if failed = flow(s); failed != nil {
				return
			}
		}
	}, func(c *natsrun.Config) { c.ConfigFile, c.Dir = file, dir })
	return failed
}
