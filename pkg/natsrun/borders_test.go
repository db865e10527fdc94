package natsrun_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Waits for an answer.
const (
	// brief is for one that may be missing because its import is.
	brief = 300 * time.Millisecond

	// long is for one that comes, also on a busy machine.
	long = time.Minute
)

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
		check.Is(t, flow(s), nil, user)
	}
}

// publish publishes events as source systems do.
func (s *site) publish() error {
	nc, js := s.as("publisher")
	if _, err := js.Publish(s.Context(), "events.order.y", []byte("y"), jetstream.WithMsgID("y")); err != nil {
		return fmt.Errorf("publish an event: %w", err)
	}
	stream, err := js.Stream(s.Context(), "EVENTS")
	if err != nil {
		return fmt.Errorf("look up the stream: %w", err)
	}
	if _, err := stream.GetMsg(s.Context(), 1); err != nil {
		return fmt.Errorf("read an event: %w", err)
	}
	return errors.Join(
		s.many(nc, "$JS.API.DIRECT.GET.EVENTS", `{"multi_last":["events.>"]}`, 2),
		s.answered(nc, "enricher.v1.x", "importer.v1.x", "notifier.v1.get", "notifier.v1.list", "notifier.v1.publish"),
		s.operates(nc),
	)
}

// operates returns an error when a user reaches a subject for operators.
func (s *site) operates(nc *nats.Conn) error {
	for _, subject := range []string{
		"notifier.v1.cancel", "notifier.v1.endpoints.enable", "notifier.v1.endpoints.list", "notifier.v1.replay",
		"worker.v1.info", "worker.v1.recent", "worker.v1.stacks", "worker.v1.drain.x", "worker.v1.resume.x",
	} {
		if _, err := nc.Request(subject, nil, s.wait); !errors.Is(err, nats.ErrNoResponders) {
			return fmt.Errorf("request %s: %w, want no responders", subject, err)
		}
	}
	return nil
}

// audit writes records as the notifier does, in another account.
func (s *site) audit() error {
	_, js := s.as("notifier")
	_, err := js.Publish(s.Context(), "audit.notifier.y", []byte("y"))
	return err
}

// watch reads and asks as the pages for operators do.
func (s *site) watch() error {
	nc, _ := s.as("console")
	errs := []error{s.answered(nc, "enricher.v1.place", "importer.v1.cancel", "importer.v1.get", "importer.v1.recipe", "importer.v1.retry",
		"notifier.v1.cancel", "notifier.v1.get", "notifier.v1.list", "notifier.v1.replay", "$SYS.REQ.SERVER.PING.HEALTHZ", "$SYS.REQ.SERVER.PING.JSZ")}
	for _, subject := range []string{"worker.v1.info", "worker.v1.recent.x", "worker.v1.stacks.x", "worker.v1.drain.x", "worker.v1.resume.x"} {
		errs = append(errs, s.many(nc, subject, "", len(declared)-1))
	}
	for account, work := range map[string][]string{
		"": {
			"$JS.API.DIRECT.GET.AUDIT", "$JS.API.DIRECT.GET.AUDIT_USERS", "$JS.API.DIRECT.GET.KV_locks", "$JS.API.STREAM.MSG.GET.KV_locks", "audit.console.y", "$KV.locks.y",
		},
		"ENRICHER": {"GET.ENRICH_JOBS", "GET.KV_jobs", "DIRECT.GET.KV_enrich", "$KV.jobs.cancelled.y", "STREAM.MSG.DELETE.ENRICH_JOBS", "jobs.enrich.y", "dead.ENRICH_JOBS.y"},
		"IMPORTER": {"GET.IMPORT_JOBS", "GET.KV_jobs", "$KV.jobs.cancelled.y", "GET.KV_import-steps", "STREAM.MSG.DELETE.IMPORT_JOBS", "jobs.import.y", "dead.IMPORT_JOBS.y"},
		"NOTIFIER": {"GET.EVENTS", "GET.KV_jobs", "GET.NOTIFICATIONS", "events.order.y", "notify.send.y", "dead.EVENTS.y", "dead.NOTIFICATIONS.y"},
	} {
		api := "$JS.API."
		if account != "" {
			api = "$JS." + account + ".API."
			errs = append(errs, s.answered(nc, api+"$SRV.PING."+strings.ToLower(account), api+"worker.v1.info"))
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
	msg, err := nc.Request(subject, []byte(`{"filter":"none","seq":1000000}`), s.wait)
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
		js, err := jetstream.NewWithAPIPrefix(nc, "$JS."+account+".API", jetstream.WithDefaultTimeout(s.wait))
		errs = append(errs, err, s.useAccount(js, work[0], work[1]), s.snapshot(account, work[0]),
			s.answered(nc, "$JS."+account+".API.$SRV.PING."+strings.ToLower(account), "$JS."+account+".API.worker.v1.info"))
		for _, subject := range work[2:] {
			subject = strings.TrimSuffix(subject, "y") + nuid.Next() // streams of jobs take one message of a subject
			if _, err := js.Publish(s.Context(), subject, nil); err != nil {
				errs = append(errs, fmt.Errorf("publish %s: %w", subject, err))
			}
		}
	}
	if _, err := changes.NextMsg(s.wait); err != nil {
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
	batch, err := consumer.Fetch(2, jetstream.FetchMaxWait(s.wait))
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
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(long)) // what crosses no border is answered, however slow the machine is
	s.must(err)
	deliver := nc.NewRespInbox()
	chunks, err := nc.SubscribeSync(deliver)
	if err != nil {
		return err
	}
	// A server waits for an acknowledgement for five seconds, also when it is stopped meanwhile, and then ends the snapshot.
	defer func() {
		for ended := err == nil; !ended; {
			part, none := chunks.NextMsg(6 * time.Second)
			ended = none != nil || len(part.Data) == 0
		}
		err = errors.Join(err, chunks.Unsubscribe())
	}()
	// The window holds one part: the second comes when the first is acknowledged.
	if _, err := nc.Request("$JS.API.STREAM.SNAPSHOT."+stream, []byte(`{"deliver_subject":"`+deliver+`","chunk_size":1024,"window_size":1024}`), s.wait); err != nil {
		return fmt.Errorf("snapshot of %s: %w", stream, err)
	}
	for n := 0; ; n++ {
		part, err := chunks.NextMsg(s.wait + 3*time.Second) // the server looks for subscriptions for two seconds
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
	answer, err := nc.Request("$JS.API.STREAM.RESTORE.DEAD", []byte(`{"config":{"name":"DEAD","max_bytes":1024},"state":{}}`), s.wait)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	_, subject, _ := strings.Cut(string(answer.Data), `"deliver_subject":"`)
	subject, _, _ = strings.Cut(subject, `"`)
	if answer, err = nc.Request(subject, nil, s.wait); err != nil || !strings.Contains(string(answer.Data), "restore failed") {
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
	msg, err := nc.Request("$SYS.REQ.ACCOUNT.PING.STATZ", nil, s.wait)
	if err != nil || !strings.Contains(string(msg.Data), `"NOTIFIER"`) {
		return fmt.Errorf("STATZ is about one account only: %w\n%s", err, msg.Data)
	}
	return nil
}

func (s *site) as(user string) (*nats.Conn, jetstream.JetStream) {
	nc, _ := natstest.Connect(s.T, s.srv, s.users.As(user), quietly())
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(s.wait))
	s.must(err)
	return nc, js
}

func (s *site) answered(nc *nats.Conn, subjects ...string) error {
	for _, subject := range subjects {
		if _, err := nc.Request(subject, nil, s.wait); err != nil {
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
		if _, err := sub.NextMsg(s.wait); err != nil {
			return fmt.Errorf("answer %d of %d of %s: %w", i+1, n, subject, err)
		}
	}
	return sub.Unsubscribe()
}
