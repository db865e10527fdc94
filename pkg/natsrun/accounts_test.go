package natsrun_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// site is a server with the deployed accounts. Each stream holds a message with the name of its account, each consumer
// waits for an acknowledgement, and each service answers a request with the request.
type site struct {
	*testing.T

	admin *nats.Conn
	srv   *natsrun.Server
	users *natstest.Users

	acks []string // the subjects that would acknowledge what consumers wait for
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
	"OPERATOR": {"$KV.locks.x"},
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

		for _, subject := range []string{name + ".v1.>", "$SRV.*"} {
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

// intruder is a user who tries what is not allowed.
type intruder struct {
	user, account string

	// carriers are the requests that the server, or a service, answers. The answer to the first is a body of the
	// intruder's choice, which the intruder publishes to store, if that is not "".
	carriers []carrier
	store    string

	// reads and writes are the streams of other accounts that it is there to read and to write.
	reads, writes string
}

type carrier struct{ subject, body string }

var intruders = []intruder{
	{user: "publisher", account: "PUBLISHER", store: "events.attack", reads: "NOTIFIER", writes: "EVENTS", carriers: []carrier{
		{"$JS.API.DIRECT.GET.EVENTS", `{"last_by_subj":"events.attack"}`},
		{"$JS.API.DIRECT.GET.EVENTS", `{"multi_last":["events.attack"]}`},
		{"$JS.API.STREAM.MSG.GET.EVENTS", `{"last_by_subj":"events.attack"}`},
		{"$JS.API.STREAM.INFO.EVENTS", ""},
		{"events.attack.again", "BODY"}, {"enricher.v1.x", "BODY"}, {"importer.v1.x", "BODY"}, {"notifier.v1.x", "BODY"},
	}},
	{user: "enricher", account: "ENRICHER", store: "$KV.enrich.attack", carriers: []carrier{
		{"$JS.API.DIRECT.GET.KV_enrich.$KV.enrich.attack", ""},
		{"$JS.API.DIRECT.GET.KV_enrich", `{"multi_last":["$KV.enrich.attack"]}`},
		{"$JS.API.STREAM.MSG.GET.KV_enrich", `{"last_by_subj":"$KV.enrich.attack"}`},
		{"$KV.enrich.attack.again", "BODY"},
	}},
	{user: "importer", account: "IMPORTER", store: "$KV.recipes.attack", carriers: []carrier{
		{"$JS.API.DIRECT.GET.KV_recipes.$KV.recipes.attack", ""},
		{"$JS.API.CONSUMER.CREATE.KV_recipes.attack.$KV.recipes.owner.>", `{"stream_name":"KV_recipes","config":{"name":"attack","deliver_subject":"TARGET","ack_policy":"none","filter_subject":"$KV.recipes.owner.>"}}`},
	}},
	{user: "notifier", account: "NOTIFIER", store: "$KV.inbox.attack", carriers: []carrier{
		{"$JS.API.DIRECT.GET.KV_inbox.$KV.inbox.attack", ""},
		{"$JS.API.CONSUMER.CREATE.KV_directory.attack", `{"stream_name":"KV_directory","config":{"name":"attack","deliver_subject":"TARGET","ack_policy":"none"}}`},
	}},
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
				case is != was && stream != by.writes:
					t.Errorf("%s changed %s:\n%s\n%s", by.user, what, was, is)
				}
			}

			for what := range s.others(by) {
				if _, there := before[what]; !there {
					t.Errorf("%s made %s", by.user, what)
				}
			}

			for _, m := range heard() {
				for account := range declared {
					if account != by.account && account != by.reads && bytes.Contains(m.Data, []byte("secret of "+account)) {
						t.Errorf("%s heard %s: %s", by.user, m.Subject, m.Data)
					}
				}
			}
		})
	}
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

		for !slices.ContainsFunc(list(&mu, &all), func(m *nats.Msg) bool { return m.Subject == inbox+".carried" }) {
			s.must(nc.Flush())
		}
	}
	return func() []*nats.Msg { return list(&mu, &all) }
}

func list(mu *sync.Mutex, all *[]*nats.Msg) []*nats.Msg {
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(*all)
}

func (s *site) must(err error) {
	s.Helper()

	if err != nil {
		s.Fatal(err)
	}
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
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: got %v, want ErrAuthorization", name, err)
		}

		nc.Close()
	}
}
