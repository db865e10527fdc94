package contracts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func reserved(id string, mutate ...func(*contracts.Event)) contracts.Event {
	e := contracts.Event{
		EventID: id, EventType: "RESERVATION_REQUESTED", AggregateType: "RESTAURANT", Payload: json.RawMessage(`{"guests":4}`),
		Extra: map[string]json.RawMessage{"restaurant_id": json.RawMessage("5")},
	}
	for _, m := range mutate {
		m(&e)
	}
	return e
}

func publisher(t *testing.T, js jetstream.JetStream, cfg contracts.PublisherConfig) *contracts.Publisher {
	t.Helper()
	return check.Must(contracts.NewPublisher(js, cfg))(t)
}

// events are all that the stream has.
func events(t *testing.T, js jetstream.JetStream) []*jetstream.RawStreamMsg {
	t.Helper()
	stream := check.Must(js.Stream(t.Context(), contracts.StreamEvents))(t)
	var all []*jetstream.RawStreamMsg
	for n := range stream.CachedInfo().State.LastSeq {
		msg := check.Must(stream.GetMsg(t.Context(), n+1))(t)
		all = append(all, msg)
	}
	return all
}

func TestPublish(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	p := publisher(t, js, contracts.PublisherConfig{
		Source: "/reservations", Prepare: func(_ context.Context, msg *nats.Msg) { msg.Header.Set("traceparent", "00-1") },
	})
	for n, id := range []string{"evt-001", "אירוע 2", "a\nb"} {
		done, err := p.Publish(t.Context(), reserved(id))
		check.Require(t, err == nil && !done.Duplicate && done.Sequence == uint64(n+1), "%+v, %v", done, err)
	}
	for n, msg := range events(t, js) {
		check.That(t, msg.Subject == "events.RESTAURANT.RESERVATION_REQUESTED" && msg.Header.Get("traceparent") != "",
			"%s %v", msg.Subject, msg.Header)
		envelope, err := contracts.ParseCloudEvent(msg.Header, msg.Data)
		check.That(t, err == nil && (n != 0 || envelope.Source == "/reservations" && envelope.ID == "evt-001"),
			"%+v, %v", envelope, err)
		check.ErrorIs(t, check.Err(contracts.Decode[contracts.Event](envelope.Data)), nil)
	}
}

// The stream takes an event once, from however many goroutines and publishers, in whichever order its payload is written.
func TestPublishAgain(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	var first atomic.Int64
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			payload := []string{`{"a":1,"b":2}`, `{ "b": 2.0, "a": 1 }`}[n%2]
			done, err := publisher(t, js, contracts.PublisherConfig{Source: fmt.Sprintf("/%d", n)}).Publish(t.Context(), reserved("evt-001", func(e *contracts.Event) {
				e.Payload = json.RawMessage(payload)
			}))
			check.That(t, err == nil && done.Sequence == 1, "%+v, %v", done, err)
			if !done.Duplicate {
				first.Add(1)
			}
		})
	}
	all.Wait()
	n := first.Load()
	check.That(t, n == 1 && len(events(t, js)) == 1, "%d are the first, %d stored", n, len(events(t, js)))
}

// Another event under the same id is refused, and the first one stands, also in a stream that only its leader reads.
func TestPublishAnotherUnderTheSameID(t *testing.T) {
	t.Parallel()
	for _, direct := range []bool{true, false} {
		_, js := natstest.Connect(t, natstest.Server(t))
		check.OK(t, check.Err(js.CreateStream(t.Context(), jetstream.StreamConfig{
			Name: contracts.StreamEvents, Subjects: []string{contracts.EventsSubjects}, AllowDirect: direct,
		})))
		p := publisher(t, js, contracts.PublisherConfig{})
		check.OK(t, check.Err(p.Publish(t.Context(), reserved("evt-001"))))
		for name, change := range map[string]func(*contracts.Event){
			"payload": func(e *contracts.Event) { e.Payload = json.RawMessage(`{"guests":5}`) },
			"type":    func(e *contracts.Event) { e.EventType = "OTHER" }, // another subject
			"user":    func(e *contracts.Event) { e.UserID = "ada" },
		} {
			_, err := p.Publish(t.Context(), reserved("evt-001", change))
			failed, ok := errors.AsType[*contracts.PublishError](err)
			if !ok || !errors.Is(err, contracts.ErrEventMismatch) || failed.Unsure || failed.Attempts != 1 || !strings.Contains(err.Error(), "evt-001") {
				t.Errorf("%s: %v", name, err)
			}
		}
		all := events(t, js)
		check.That(t, len(all) == 1 && strings.Contains(string(all[0].Data), `{"guests":4}`), "%d stored", len(all))
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	of := func(payload string) string {
		return check.Must(reserved("evt-001", func(e *contracts.Event) { e.Payload = json.RawMessage(payload) }).Fingerprint())(t)
	}
	same := of(`{"a":4,"b":[9007199254740993]}`)
	check.That(t, of(`{ "b": [9007199254740993], "a": 4.0 }`) == same, "spellings of one payload differ")
	check.That(t, of(`{"a":4,"b":[9007199254740992]}`) != same, "a whole number was rounded")
	huge := of(`{"n":1e999999999}`)
	check.That(t, of(`{ "n": 1e999999999 }`) == huge && of(`{"n":1e999999998}`) != huge && of(`{"n":"\ud800"}`) != huge, "odd payloads")
	_, err := reserved("evt-001", func(e *contracts.Event) { e.Payload = json.RawMessage(`{"n":1e400,"a":1,"a":2}`) }).Fingerprint()
	check.ErrorIs(t, err, contracts.ErrInvalid)
	check.ErrorContains(t, err, "/payload/a")
}

// lossy loses the answers to the first publishes.
type lossy struct {
	jetstream.JetStream

	lose atomic.Int64
}

func (l *lossy) PublishMsg(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := l.JetStream.PublishMsg(ctx, msg, opts...)
	if err == nil && l.lose.Add(-1) >= 0 {
		return nil, context.DeadlineExceeded
	}
	return ack, err
}

// An answer that is lost is asked for again under the same id.
func TestPublishUntilAcknowledged(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	l := &lossy{JetStream: js}
	l.lose.Store(3)
	done, err := publisher(t, l, contracts.PublisherConfig{}).Publish(t.Context(), reserved("evt-001"))
	check.That(t, err == nil && done.Duplicate && done.Sequence == 1, "%+v, %v", done, err)
	check.Equal(t, len(events(t, js)), 1, "stored")

	// A refusal does not tell what became of the attempt before it.
	l.lose.Store(1)
	_, err = publisher(t, l, contracts.PublisherConfig{Prepare: func(ctx context.Context, _ *nats.Msg) {
		if l.lose.Load() == 0 {
			check.OK(t, js.DeleteStream(ctx, contracts.StreamEvents))
		}
	}}).Publish(t.Context(), reserved("evt-002"))
	failed, ok := errors.AsType[*contracts.PublishError](err)
	check.That(t, ok && failed.Attempts == 2 && failed.Unsure, "%+v", err)
}

// What no later try can change ends the first one. The error names the stream and the subject, and says what to do.
func TestPublishEndsAtTheFirstTry(t *testing.T) {
	config := jetstream.StreamConfig{Name: contracts.StreamEvents, Subjects: []string{contracts.EventsSubjects}}
	for name, test := range map[string]struct {
		change func(*jetstream.StreamConfig)
		want   error
		says   string
	}{
		"no stream":     {want: jetstream.ErrStreamNotFound, says: "create the stream"},
		"other subject": {change: func(c *jetstream.StreamConfig) { c.Subjects = []string{"events.HOTEL.*"} }, want: jetstream.ErrNoStreamResponse, says: `takes only ["events.HOTEL.*"]`},
		"sealed":        {change: func(c *jetstream.StreamConfig) { c.Sealed = true }, says: "is sealed"},
		"full":          {change: func(c *jetstream.StreamConfig) { c.Discard, c.MaxBytes = jetstream.DiscardNew, 1 }, says: "is full"},
		"full subject": {change: func(c *jetstream.StreamConfig) {
			c.Discard, c.MaxMsgsPerSubject, c.DiscardNewPerSubject = jetstream.DiscardNew, 1, true
		}, says: "per subject"},
		"small":         {change: func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 }, says: "message size exceeds"},
		"no JetStream":  {want: jetstream.ErrJetStreamNotEnabled, says: "no server has JetStream"},
		"header":        {change: func(*jetstream.StreamConfig) {}, want: nats.ErrBadHeaderMsg, says: "Prepare"},
		"not permitted": {change: func(*jetstream.StreamConfig) {}, want: nats.ErrPermissionViolation, says: "may not publish"},
	} {
		var permissions server.Permissions
		if name == "not permitted" {
			permissions.Publish = &server.SubjectPermission{Deny: []string{contracts.EventsSubjects}}
		}
		// Under fake time an end after a minute of tries takes no time.
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			_, js := natstest.Connect(t, srv)
			if changed := config; test.change != nil {
				test.change(&changed)
				check.OK(t, check.Err(js.CreateStream(t.Context(), config)))
				check.OK(t, check.Err(js.Publish(t.Context(), "events.RESTAURANT.=Kg", nil)))
				check.OK(t, check.Err(js.UpdateStream(t.Context(), changed)))
			}
			_, js = natstest.Connect(t, srv, natstest.Restricted())
			begun := time.Now()
			_, err := publisher(t, js, contracts.PublisherConfig{Prepare: func(_ context.Context, msg *nats.Msg) {
				if name == "header" {
					msg.Header["trace/id"] = []string{"1"}
				}
			}}).Publish(t.Context(), reserved("evt-001", func(e *contracts.Event) { e.EventType = "*" }))
			failed, ok := errors.AsType[*contracts.PublishError](err)
			check.That(t, ok && failed.Attempts == 1 && time.Since(begun) < 5*time.Second && (test.want == nil || errors.Is(err, test.want)),
				"after %s: %v", time.Since(begun), err)
			check.ErrorContains(t, err, test.says, "events.RESTAURANT.=Kg", contracts.StreamEvents)
		}, natstest.Restrict(permissions), func(c *natsrun.Config) {
			natsrun.ChangeOptions(c, func(o *server.Options) { o.JetStream = name != "no JetStream" })
		})
	}
}

// Every publish ends, and says whether the event may be in the stream.
func TestPublishEnds(t *testing.T) {
	// Under fake time the deadline passes only when every answer is there: an answer that was late would be an unsure end.
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		nc, js := natstest.Connect(t, srv)
		fails := func(name string, ctx context.Context, want error, unsure bool) {
			t.Helper()
			_, err := publisher(t, js, contracts.PublisherConfig{}).Publish(ctx, reserved("evt-001"))
			failed, ok := errors.AsType[*contracts.PublishError](err)
			check.That(t, ok && errors.Is(err, want) && failed.Unsure == unsure && failed.EventID == "evt-001" && failed.Attempts >= 1,
				"%s: %v", name, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		fails("the caller gave up", ended, context.Canceled, true)
		silent := check.Must(nc.Subscribe("events.>", func(*nats.Msg) {}))(t)
		fails("nobody answers", t.Context(), context.DeadlineExceeded, true)
		check.OK(t, silent.Unsubscribe())
		check.OK(t, check.Err(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"events.>"}})))
		var api *jetstream.APIError
		_, err := publisher(t, js, contracts.PublisherConfig{}).Publish(t.Context(), reserved("evt-001"))
		failed, ok := errors.AsType[*contracts.PublishError](err)
		check.That(t, ok && failed.Attempts == 1 && errors.As(err, &api), "another stream takes it: %v", err)
		nc.Close()
		_, err = publisher(t, js, contracts.PublisherConfig{}).Publish(t.Context(), reserved("evt-001"))
		failed, ok = errors.AsType[*contracts.PublishError](err)
		check.That(t, ok && failed.Attempts == 1 && errors.Is(err, nats.ErrConnectionClosed), "a closed connection: %v", err)
	})
}

func TestPublishRefusesWhatIsNoEvent(t *testing.T) {
	t.Parallel()
	_, js := applied(t)
	p := publisher(t, js, contracts.PublisherConfig{})
	for name, e := range map[string]contracts.Event{
		"nothing":      {},
		"long id":      reserved(strings.Repeat("x", contracts.MaxID+1)),
		"a name twice": reserved("a", func(e *contracts.Event) { e.Payload = json.RawMessage(`{"a":1,"a":2}`) }),
		"not UTF-8":    reserved("a", func(e *contracts.Event) { e.Payload = json.RawMessage("\"\xed\xa0\x80\"") }),
		"half a name":  reserved("a", func(e *contracts.Event) { e.Payload = json.RawMessage(`{"\ud800":1,"\ud801":2}`) }),
		"too large": reserved("a", func(e *contracts.Event) {
			e.Payload = json.RawMessage(`"` + strings.Repeat("x", contracts.MaxBody) + `"`)
		}),
	} {
		_, err := p.Publish(t.Context(), e)
		check.That(t, errors.Is(err, contracts.ErrInvalid) && errors.Is(err, contracts.ErrTooLarge) == (name == "too large"), "%s: %v", name, err)
	}
	check.Equal(t, len(events(t, js)), 0, "stored")
	_, err := contracts.NewPublisher(nil, contracts.PublisherConfig{Source: "not a\x00URI", Stream: "a.*", Timeout: time.Hour})
	check.ErrorContains(t, err, "js is nil", "Source", "Stream", "Timeout")
}

// The leader of three nodes is killed while events are published. Every publish succeeds, by trying again where it has to, and
// the stream has every event once.
func TestPublishThroughTheDeathOfALeader(t *testing.T) {
	t.Parallel()
	const publishers, before, after = 8, 10, 20
	c := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, c.URLs())
	assets := slices.DeleteFunc(contracts.Assets(contracts.AssetOptions{Replicas: 3, MaxBytes: 1 << 30}), func(c jetstream.StreamConfig) bool {
		return c.Name != contracts.StreamEvents
	})
	check.OK(t, check.Err(provision.Apply(t.Context(), js, assets, provision.Options{})))
	var all, begun sync.WaitGroup
	var published atomic.Int64
	killed := make(chan struct{})
	begun.Add(publishers)
	for n := range publishers {
		p := publisher(t, js, contracts.PublisherConfig{})
		all.Go(func() {
			left := after
			for i := 0; left > 0; i++ {
				if i == before {
					begun.Done()
				}
				id := fmt.Sprintf("evt-%d-%d", n, i)
				_, err := p.Publish(t.Context(), reserved(id, func(e *contracts.Event) { e.EventType = id }))
				check.That(t, err == nil, "%d of publisher %d: %v", i, n, err)
				published.Add(1)
				select {
				case <-killed:
					left--
				default:
				}
			}
		})
	}
	begun.Wait()
	leader, err := c.StreamLeader(t.Context(), contracts.StreamEvents)
	if err != nil {
		close(killed)
		t.Fatal(err)
	}
	err = leader.Kill()
	close(killed)
	all.Wait()
	check.OK(t, err)
	var info *jetstream.StreamInfo
	check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error {
		stream, err := js.Stream(ctx, contracts.StreamEvents)
		if err == nil {
			info, err = stream.Info(ctx)
		}
		return err
	}))
	// Each event has its subject.
	check.Equal(t, []int64{int64(info.State.NumSubjects), int64(info.State.Msgs)}, []int64{published.Load(), published.Load()}, "events, messages")
}

func fullEvent() contracts.CloudEvent {
	return contracts.CloudEvent{
		ID: "evt-001", Source: "/reservations/tel aviv", Type: "com.example.reservation.requested.v1",
		Subject: "מסעדה \"50%\" €", Time: time.Date(2026, 2, 3, 12, 0, 0, 123456789, time.UTC),
		DataContentType: "application/json", DataSchema: "https://example.com/schema.json",
		Extensions: map[string]string{"tenant": "a b", "traceparent": "00-x"}, Data: []byte(`{"a": 1}`),
	}
}

func TestCloudEventBinaryRoundTrip(t *testing.T) {
	t.Parallel()
	event := fullEvent()
	msg := check.Must(event.Msg("events.RESTAURANT.RESERVATION_REQUESTED"))(t)
	for name, want := range map[string]string{
		"ce-specversion": "1.0",
		"ce-time":        "2026-02-03T12:00:00.123456789Z",
		"ce-subject":     "%D7%9E%D7%A1%D7%A2%D7%93%D7%94%20%2250%25%22%20%E2%82%AC",
		"ce-source":      "/reservations/tel%20aviv",
		"ce-tenant":      "a%20b",
		"Nats-Msg-Id":    msg.Header.Get("Nats-Msg-Id"),
	} {
		got := msg.Header[name]
		check.That(t, slices.Equal(got, []string{want}), "%s: got %q, want %q", name, got, want)
	}
	got := check.Must(contracts.ParseCloudEvent(msg.Header, msg.Data))(t)
	check.Equal(t, got, event)
}

func TestCloudEventReadsLeniently(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ key, raw, want string }{
		"other case":           {"Ce-Subject", "x", "x"},
		"quoted":               {"ce-subject", `"a \"b\" \\ c"`, `a "b" \ c`},
		"lower-case digits":    {"ce-subject", "%e2%82%ac", "€"},
		"needlessly encoded":   {"ce-subject", "%41%42", "AB"},
		"decoded only once":    {"ce-subject", "%2541", "%41"},
		"white space trimmed":  {"ce-subject", " x\t", "x"},
		"single quote is text": {"ce-subject", `5'`, "5'"},
	} {
		header := nats.Header{"ce-id": {"1"}, "ce-source": {"/s"}, "ce-type": {"t"}, test.key: {test.raw}}
		event, err := contracts.ParseCloudEvent(header, nil)
		check.That(t, err == nil && event.Subject == test.want, "%s: got %q, %v, want %q", name, event.Subject, err, test.want)
	}
}

func TestCloudEventRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		header nats.Header
		path   string
	}{
		"overlong space":     {nats.Header{"ce-subject": {"%C0%A0"}}, "/subject"},
		"raw invalid":        {nats.Header{"ce-subject": {"\xff"}}, "/subject"},
		"open quote":         {nats.Header{"ce-subject": {`"abc`}}, "/subject"},
		"control character":  {nats.Header{"ce-subject": {"%0D%0Ax: y"}}, "/subject"},
		"twice":              {nats.Header{"ce-subject": {"a", "a"}}, "/subject"},
		"twice in two cases": {nats.Header{"ce-subject": {"a"}, "CE-Subject": {"b"}}, "/subject"},
		"version":            {nats.Header{"ce-specversion": {"0.3"}}, "/specversion"},
		"time":               {nats.Header{"ce-time": {"yesterday"}}, "/time"},
		"empty id":           {nats.Header{"ce-type": {""}}, "/type"},
		"attribute name":     {nats.Header{"ce-my_ext": {"x"}}, "/my_ext"},
		"schema":             {nats.Header{"ce-dataschema": {"relative"}}, "/dataschema"},
		"too long":           {nats.Header{"ce-subject": {strings.Repeat("x", 10_000)}}, "/subject"},
		"structured":         {nats.Header{"Content-Type": {"Application/CloudEvents+JSON; charset=utf-8"}}, ""},
	} {
		_, err := contracts.ParseCloudEvent(test.header, []byte(`{}`))
		check.That(t, failsAt(err, test.path), "%s: got %v, want a complaint about %q", name, err, test.path)
	}
}

func TestCloudEventReportsAllAtOnce(t *testing.T) {
	t.Parallel()
	header := nats.Header{"ce-subject": {"%C0%A0"}, "ce-time": {"yesterday"}, "ce-my_ext": {"x"}}
	_, err := contracts.ParseCloudEvent(header, nil)
	check.Equal(t, paths(err), []string{"/my_ext", "/subject", "/time"})
}

func TestPlainBodyIsAnEvent(t *testing.T) {
	t.Parallel()
	got := check.Must(contracts.ParseCloudEvent(nats.Header{"Content-Type": {"text/plain"}, "Nats-Msg-Id": {"claim-7"}}, []byte("x")))(t)
	check.Equal(t, got, contracts.CloudEvent{DataContentType: "text/plain", Data: []byte("x")})
}

func TestCloudEventHeaderRefuses(t *testing.T) {
	t.Parallel()
	_, err := contracts.CloudEvent{
		Source: "/s\r\nNats-Rollup: all", Type: "t", Extensions: map[string]string{"a-b": "x", "id": "y"},
	}.Header()
	for _, path := range []string{"/id", "/source", "/a-b"} {
		check.That(t, failsAt(err, path), "got %v, want a complaint about %s", err, path)
	}
}
