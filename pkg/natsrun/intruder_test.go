package natsrun_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
