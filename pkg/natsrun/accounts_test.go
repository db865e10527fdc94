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
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
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

// snapshot has the user of an account's backups begin a backup of a stream and a restore, as the nats CLI does.
func (s *site) snapshot(account, stream string) error {
	nc, _ := s.as("backup_" + strings.ToLower(account))
	deliver := nc.NewRespInbox()
	chunks, err := nc.SubscribeSync(deliver)
	if err != nil {
		return err
	}
	if _, err := nc.Request("$JS.API.STREAM.SNAPSHOT."+stream, []byte(`{"deliver_subject":"`+deliver+`","chunk_size":1024}`), patience); err != nil {
		return fmt.Errorf("snapshot of %s: %w", stream, err)
	}
	for data := []byte("none yet"); len(data) > 0; { // the server waits for acknowledgements
		part, err := chunks.NextMsg(patience)
		if err != nil {
			return fmt.Errorf("part of %s: %w", stream, err)
		}
		if data = part.Data; part.Reply != "" {
			s.must(part.Respond(nil))
		}
	}
	return s.reached(nc, "$JS.API.STREAM.RESTORE.NONE")
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
	if testing.Short() {
		t.Skip("1,100 connections: not with -short")
	}
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

// intruder is a user that tries forbidden requests.
type intruder struct {
	user, account string

	// carriers are the requests that the server, or a service, answers. The answer to the first is a body of the
	// intruder's choice, which the intruder publishes to store, if that is not "".
	carriers []carrier
	store    string

	// reads is the account of others that it is there to read, or "*". writes are the streams of other accounts that it is there
	// to add to, and takes those whose messages it may also replace or remove.
	reads         string
	writes, takes []string
}

type carrier struct{ subject, body string }

var intruders = []intruder{
	{user: "publisher", account: "PUBLISHER", store: "events.attack", reads: "NOTIFIER", writes: []string{"EVENTS"}, carriers: []carrier{
		{"$JS.API.DIRECT.GET.EVENTS", `{"last_by_subj":"events.attack"}`},
		{"$JS.API.DIRECT.GET.EVENTS", `{"multi_last":["events.attack"]}`},
		{"events.attack.again", "BODY"},
		{"enricher.v1.x", "BODY"},
		{"importer.v1.x", "BODY"},
		{"notifier.v1.publish", "BODY"},
	}},
	{
		user: "console", account: "CONSOLE", reads: "*", store: "jobs.enrich.attack", // its own test says what it does not read
		writes: []string{"AUDIT", "EVENTS", "NOTIFICATIONS"}, takes: []string{"DEAD", "ENRICH_JOBS", "IMPORT_JOBS", "KV_jobs", "KV_locks"},
		carriers: []carrier{
			{"$JS.ENRICHER.API.DIRECT.GET.ENRICH_JOBS", `{"last_by_subj":"jobs.enrich.attack"}`},
			{"$JS.ENRICHER.API.DIRECT.GET.ENRICH_JOBS", `{"multi_last":["jobs.enrich.attack"]}`},
			{"$JS.ENRICHER.API.STREAM.MSG.GET.ENRICH_JOBS", `{"last_by_subj":"jobs.enrich.attack"}`},
			{"$JS.ENRICHER.API.STREAM.LIST", ""},
			{"$JS.API.DIRECT.GET.AUDIT", `{"next_by_subj":">"}`},
			{"audit.console.operators", "BODY"},
			{"$JS.ENRICHER.API.worker.v1.info", "BODY"},
			{"notifier.v1.list", "BODY"},
		},
	},
	{user: "enricher", account: "ENRICHER", store: "$KV.enrich.attack", carriers: []carrier{
		{"$JS.API.DIRECT.GET.KV_enrich", `{"multi_last":["$KV.enrich.attack"]}`},
		{"$JS.API.STREAM.MSG.GET.KV_enrich", `{"last_by_subj":"$KV.enrich.attack"}`},
		{"$KV.enrich.attack.again", "BODY"},
	}},
	{user: "importer", account: "IMPORTER", store: "$KV.import-steps.attack", carriers: []carrier{
		{"$JS.API.DIRECT.GET.KV_import-steps", `{"multi_last":["$KV.import-steps.attack"]}`},
		{"$JS.API.DIRECT.GET.KV_recipes", `{"multi_last":["$KV.recipes.attack"]}`},
	}},
	{user: "notifier", account: "NOTIFIER", store: "$KV.inbox.attack", writes: []string{"AUDIT", "AUDIT_USERS"}, carriers: []carrier{
		{"$JS.API.DIRECT.GET.KV_inbox.$KV.inbox.attack", ""},
		{"audit.notifier.operators", "BODY"},
		{"$JS.API.CONSUMER.LIST.EVENTS", ""},
		{"$JS.API.INFO", ""},
		{"$JS.API.CONSUMER.CREATE.KV_directory.attack", `{"stream_name":"KV_directory","config":{"name":"attack","deliver_subject":"TARGET","ack_policy":"none"}}`},
	}},
	{user: "backup_enricher", account: "ENRICHER", carriers: []carrier{{"$JS.API.STREAM.LIST", ""}}},
	{user: "backup_importer", account: "IMPORTER", carriers: []carrier{{"$JS.API.STREAM.LIST", ""}}},
	{user: "backup_notifier", account: "NOTIFIER", writes: []string{"AUDIT", "AUDIT_USERS"}, carriers: []carrier{{"$JS.API.STREAM.LIST", ""}}},
	{user: "sys", account: "MONITOR", carriers: []carrier{
		{"$SYS.REQ.SERVER.PING.JSZ", ""}, {"$SYS.REQ.SERVER.PING", ""}, {"$SYS.REQ.ACCOUNT.PING.STATZ", ""},
	}},
}

// targets are the subjects on which a message would change another account's streams, with the bodies that they take.
func (s *site) targets() map[string]string {
	found := map[string]string{
		"$JS.API.ACCOUNT.PURGE.NOTIFIER": "", "$JS.API.SERVER.REMOVE": `{"peer":"test"}`, "$JS.API.META.LEADER.STEPDOWN": "",
		"$SYS.REQ.SERVER.PING.KICK": `{"cid":1}`, "$SYS.REQ.CLAIMS.UPDATE": "x", "$SYS.REQ.USER.INFO": "",
	}
	for account, subjects := range samples {
		for _, subject := range subjects {
			found[subject] = "x"
			found["$JS."+account+".API."+subject] = "x"
		}
		for _, name := range declared[account] {
			stream := streamName(name)
			for _, api := range []string{"$JS.API.", "$JS." + account + ".API."} {
				maps := map[string]string{
					"STREAM.PURGE.": "{}", "STREAM.DELETE.": "", "STREAM.MSG.DELETE.": `{"seq":1}`,
					"STREAM.UPDATE.":   `{"name":"` + stream + `","subjects":["stolen"],"max_bytes":1024}`,
					"CONSUMER.CREATE.": `{"stream_name":"` + stream + `","config":{"deliver_subject":"_INBOX_USER.leak","ack_policy":"none","deliver_policy":"all"}}`,
				}
				for method, body := range maps {
					found[api+method+stream] = body
				}
				for durable := range consumers {
					found[api+"CONSUMER.DELETE."+durable+"."+consumers[durable]] = ""
				}
				found[api+"STREAM.CREATE.MIRROR_"+stream] = `{"name":"MIRROR_` + stream + `","max_bytes":65536,"mirror":{"name":"` + stream + `"}}`
				found[api+"STREAM.CREATE.SOURCE_"+stream] = `{"name":"SOURCE_` + stream + `","max_bytes":65536,"sources":[{"name":"` + stream +
					`","external":{"api":"$JS.` + account + `.API","deliver":"_INBOX_USER.leak"}}]}`
			}
		}
	}
	for _, ack := range s.acks {
		found[ack] = "+TERM"
	}
	return found
}

func streamName(declaration string) string {
	kind, name, _ := strings.Cut(declaration, "/")
	return map[string]string{"streams": "", "buckets": "KV_", "objects": "OBJ_"}[kind] + name
}

// headers are those with which a message does more than to be stored.
var headers = []nats.Header{
	nil,
	{"Nats-Rollup": {"all"}},
	{"Nats-Rollup": {"sub"}},
	{"Nats-TTL": {"1s"}},
	{"Nats-Schedule": {"@every 1s"}, "Nats-Schedule-Target": {"$KV.enrich.x"}},
	{"Nats-Expected-Last-Sequence": {"0"}, "Nats-Expected-Stream": {"EVENTS"}},
	{"Nats-Trace-Dest": {"$KV.enrich.x"}},
	{"Nats-Request-Info": {`{"acc":"NOTIFIER","svc":"NOTIFIER"}`}},
	{"Nats-Batch-Id": {"b"}, "Nats-Batch-Sequence": {"1"}, "Nats-Batch-Commit": {"1"}},
	{"Nats-Incr": {"1"}},
	{"Nats-Marker-Reason": {"Purge"}, "KV-Operation": {"PURGE"}},
}

// No user changes or reads the streams of another account: not with a publish, not with an answer that is sent to a
// subject of the user's choice, not with a consumer, a mirror, a source or a header.
func TestNoUserReachesAnotherAccount(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("every user against every other: not with -short")
	}
	for _, by := range intruders {
		t.Run(by.user, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			before := s.others(by)
			heard := s.attack(by)
			s.idle()
			for what, was := range before {
				account, stream, _ := strings.Cut(what, "/")
				is, there := s.state(account)[stream]
				switch {
				case !there:
					t.Errorf("%s removed %s", by.user, what)
				case slices.Contains(by.writes, stream) && grew(s.T, was, is):
				case slices.Contains(by.takes, strings.Fields(stream)[0]) && configOf(s.T, was) == configOf(s.T, is):
				case is != was:
					t.Errorf("%s changed %s:\n%s\n%s", by.user, what, was, is)
				}
			}
			for what := range s.others(by) {
				_, there := before[what]
				check.That(t, there, "%s made %s", by.user, what)
			}
			for _, m := range heard() {
				for account := range declared {
					check.That(t, account == by.account || account == by.reads || by.reads == "*" || !bytes.Contains(m.Data, []byte("secret of "+account)),
						"%s heard %s: %s", by.user, m.Subject, m.Data)
				}
			}
		})
	}
}

// configOf is the configuration of a stream or consumer, without its state.
func configOf(t *testing.T, state string) string {
	t.Helper()
	var all []json.RawMessage
	check.OK(t, json.Unmarshal([]byte(state), &all))
	return string(all[0])
}

// The user console reads the data of its pages and no more, and has no permission to change a stream or make a consumer.
func TestConsoleReachesOnlyWhatItsPagesNeed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	nc, _ := s.as("console")
	shown := []string{"AUDIT", "AUDIT_USERS", "DEAD", "ENRICH_JOBS", "EVENTS", "IMPORT_JOBS", "KV_jobs", "KV_locks", "NOTIFICATIONS"}
	for account, names := range declared {
		api := "$JS." + account + ".API."
		if account == "OPERATOR" {
			api = "$JS.API."
		}
		for _, name := range names {
			stream := streamName(name)
			methods := []string{
				"STREAM.CREATE.NEW", "STREAM.UPDATE." + stream, "STREAM.DELETE." + stream, "STREAM.SNAPSHOT." + stream, "STREAM.RESTORE." + stream,
				"STREAM.LEADER.STEPDOWN." + stream, "STREAM.PEER.REMOVE." + stream, "CONSUMER.CREATE." + stream, "CONSUMER.CREATE." + stream + ".x",
				"CONSUMER.DURABLE.CREATE." + stream + ".x", "CONSUMER.DELETE." + stream + ".x", "CONSUMER.MSG.NEXT." + stream + ".x",
				"CONSUMER.PAUSE." + stream + ".x", "CONSUMER.RESET." + stream + ".x",
			}
			if !slices.Contains(shown, stream) {
				methods = append(methods, "DIRECT.GET."+stream, "DIRECT.GET."+stream+".x", "STREAM.MSG.GET."+stream, "STREAM.PURGE."+stream, "STREAM.MSG.DELETE."+stream)
			}
			methods = slices.DeleteFunc(methods, func(m string) bool { return m == "STREAM.MSG.GET.KV_import-steps" })
			if stream == "DEAD" {
				methods = append(methods, "STREAM.PURGE.DEAD")
			}
			if slices.Contains([]string{"AUDIT", "AUDIT_USERS", "EVENTS", "KV_jobs", "KV_locks", "NOTIFICATIONS"}, stream) {
				methods = append(methods, "STREAM.PURGE."+stream, "STREAM.MSG.DELETE."+stream)
			}
			for _, method := range methods {
				if msg, err := nc.Request(api+method, []byte("{}"), patience); err == nil && !bytes.Contains(msg.Data, []byte("not enabled for account")) {
					t.Errorf("%s answers: %s", api+method, msg.Data)
				}
			}
		}
	}
	for _, subject := range []string{
		"notifier.v1.notify", "notifier.v1.publish", "notifier.v1.endpoints.list", "notifier.v1.users.get", "enricher.v1.enrich", "importer.v1.submit",
		"$SRV.PING", "$SYS.REQ.SERVER.PING", "worker.v1.info", "worker.v1.recent.x", "audit.cli.operators", "audit.notifier.operators",
		"$JS.NOTIFIER.API.$KV.directory.x.x", "$JS.NOTIFIER.API.$KV.inbox.x", "$JS.ENRICHER.API.$KV.enrich.x", "$JS.ENRICHER.API.$KV.jobs.limits.x",
	} {
		check.ErrorIs(t, check.Err(nc.Request(subject, nil, patience)), nats.ErrNoResponders, subject)
	}
}

// grew reports whether a stream has all that it had before, and perhaps more.
func grew(t *testing.T, was, is string) bool {
	t.Helper()
	var before, now []any
	check.OK(t, errors.Join(json.Unmarshal([]byte(was), &before), json.Unmarshal([]byte(is), &now)))
	// Only the number of messages and the last sequence may differ, see site.state.
	before[1], before[3] = now[1], now[3]
	return reflect.DeepEqual(before, now)
}

// others is the state of all accounts but the intruder's own.
func (s *site) others(by intruder) map[string]string {
	all := make(map[string]string)
	for account := range declared {
		if account == by.account {
			continue
		}
		for stream, is := range s.state(account) {
			all[account+"/"+stream] = is
		}
	}
	return all
}

// attack tries everything as one user. The function that it returns tells what that user has heard.
func (s *site) attack(by intruder) (heard func() []*nats.Msg) {
	var (
		mu  sync.Mutex
		all []*nats.Msg
	)
	hear := func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, m)
	}
	inbox := "_INBOX_" + by.user
	connect := func() *nats.Conn {
		nc, _ := natstest.Connect(s.T, s.srv, s.users.As(by.user), quietly())
		return nc
	}
	nc := connect()
	for _, subject := range []string{inbox + ".>", ">", "$KV.>", "rp.>", "_INBOX_admin.>", "_R_.>", "$SYS.>", "$JS.EVENT.>", "events.>", "jobs.>", "$JS.ACK.>"} {
		_, err := nc.Subscribe(subject, hear)
		s.must(err)
	}
	for subject, body := range s.targets() {
		body = strings.ReplaceAll(body, "_INBOX_USER", inbox)
		sender := connect()
		for _, header := range headers {
			s.must(sender.PublishMsg(&nats.Msg{Subject: subject, Reply: inbox + ".answer", Header: header, Data: []byte(body)}))
		}
		if by.store != "" {
			s.must(sender.Publish(by.store, []byte(body)))
		}
		for _, c := range by.carriers {
			data := strings.NewReplacer("BODY", body, "TARGET", subject).Replace(c.body)
			s.must(sender.PublishMsg(&nats.Msg{Subject: c.subject, Reply: subject, Data: []byte(data)}))
		}
		if err := sender.Flush(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			s.Fatalf("%s: %v", subject, err)
		}
		sender.Close()
	}
	s.must(nc.Flush())
	if by.store != "" { // the carriers do carry
		s.must(nc.Publish(by.store, []byte("carried")))
		s.must(nc.PublishRequest(by.carriers[0].subject, inbox+".carried", []byte(by.carriers[0].body)))
		giveUp := time.Now().Add(time.Minute)
		for !slices.ContainsFunc(list(&mu, &all), func(m *nats.Msg) bool { return m.Subject == inbox+".carried" }) {
			s.must(nc.Flush())
			if time.Now().After(giveUp) {
				s.Fatalf("%s may not ask %s: nothing was tried", by.user, by.carriers[0].subject)
			}
		}
	}
	return func() []*nats.Msg { return list(&mu, &all) }
}

func list(mu *sync.Mutex, all *[]*nats.Msg) []*nats.Msg {
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(*all)
}

// Nobody who adds records to the audit pushes out those of another: not with many, with large ones, nor under other subjects.
func TestNoWriterOfTheAuditPushesOutAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	own := accountOf(t, s.admin, "OPERATOR")
	stream := check.Must(own.Stream(t.Context(), "AUDIT"))(t)
	cfg := stream.CachedInfo().Config
	most := cfg.MaxMsgsPerSubject / 100
	cfg.MaxMsgsPerSubject, cfg.MaxBytes = most, cfg.MaxBytes/100
	stream = check.Must(own.UpdateStream(t.Context(), cfg))(t)
	for _, user := range []string{"console", "notifier"} {
		nc, js := s.as(user)
		for range 2 * most {
			check.OK(t, check.Err(js.Publish(t.Context(), "audit."+user+".operators", make([]byte, cfg.MaxMsgSize-100))))
		}
		for _, other := range []string{"audit." + user + ".x", "audit." + user + ".x.operators", "audit.cli.operators"} {
			check.OK(t,
				errors.Join(nc.Publish(other, []byte("x")), nc.Publish("audit."+user+".operators", make([]byte, cfg.MaxMsgSize+1)), nc.Flush()))
		}
	}
	info := check.Must(stream.Info(t.Context()))(t)
	check.Equal(t, int(info.State.Msgs), 1+2*int(most), "records")
	check.OK(t, check.Err(stream.GetLastMsgForSubject(t.Context(), "audit.cli.operators")))
}
