package notifier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
)

// keyring makes keys: of a user, of an application for all people, and of an operator.
func keyring(t *testing.T) (file string, carla, app, operator []string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "keys.json")
	return file, addKey(t, file, access.Key{Name: "carla", User: "carla", Scopes: []access.Scope{access.People}}),
		addKey(t, file, access.Key{Name: "app", Scopes: []access.Scope{access.People}}),
		addKey(t, file, access.Key{Name: "olga", Scopes: []access.Scope{access.Operate, access.People}})
}

// addKey makes a key, and returns the header of its requests.
func addKey(t *testing.T, file string, key access.Key) (header []string) {
	t.Helper()
	return []string{"Authorization", "Bearer " + check.Must(access.Add(file, key))(t)}
}

// A user's key has few requests answered in an hour, whatever it alternates, by however many instances, and also when the user was
// deleted and the notifier restarted. It pushes no record of an operator out of the audit, and the user can still take addresses away.
func TestAUserFloodsNobody(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	keys, carla, app, operator := keyring(t)
	hooks := check.Must(webhook.New(webhook.Config{Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}))(t)
	t.Cleanup(hooks.Close)
	birds := &pigeon{}
	start := func() *web {
		return newWeb(t, p.start(birds, listening, func(c *Config) { c.Keys, c.Channels = keys, append(c.Channels, Channel{Channel: hooks}) }))
	}
	instances := []*web{start(), start()}
	flood := func(answered, n int, key []string, code, method, path, body string) {
		t.Helper()
		var got atomic.Int32
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				number := strings.NewReplacer("#", fmt.Sprint(i), "%", fmt.Sprint(i%3))
				resp := instances[i%len(instances)].request(t.Context(), method, "/v1/users/"+number.Replace(path), number.Replace(body), key...)
				text, err := io.ReadAll(resp.Body)
				check.OK(t, errors.Join(err, resp.Body.Close()))
				if resp.StatusCode < 300 {
					got.Add(1)
				} else {
					told := strings.Contains(string(text), `"code":"`+code+`"`) && resp.Header.Get("Retry-After") > "0"
					check.That(t, resp.StatusCode == http.StatusTooManyRequests && told, "%d %s %v", resp.StatusCode, text, resp.Header)
				}
			})
		}
		all.Wait()
		check.Equal(t, int(got.Load()), answered, "answers of "+method+" "+path)
	}
	const own, test = "CUSTOMER/carla", "/endpoints/pigeon/main/test"
	flood(1, 1, operator, "", "PUT", own, `{"addresses":{"pigeon":"hers","webhook":"https://example.com"}}`)
	flood(3, 3, carla, "", "PATCH", "T%/carla", `{"addresses":{"pigeon":"victim"}}`) // the key is for all types
	flood(17, 57, carla, "QUOTA_CHANGE", "PATCH", "T%/carla", `{"addresses":{"pigeon":"victim-#"}}`)
	flood(0, 1, carla, "QUOTA_CHANGE", "PATCH", "OTHER/carla", `{"mute":{"*":"2030-01-01T00:00:00Z"}}`)
	flood(0, 1, carla, "QUOTA_CHANGE", "PATCH", own, `{"endpoints":{"webhook":{"main":{"generation":9}}}}`) // a rotation by another way
	flood(5, 120, carla, "QUOTA_TEST", "POST", "T%/carla"+test, "")
	flood(20, 60, carla, "QUOTA_TEST", "POST", own+test, "") // vouched for by the operator
	flood(10, 30, carla, "QUOTA_ROTATE", "POST", own+"/endpoints/webhook/main/rotate", "")
	flood(10, 30, carla, "QUOTA_REPLAY", "POST", own+"/endpoints/webhook/main/replay", "")
	flood(3, 3, carla, "", "PATCH", "T%/carla", `{"addresses":{"pigeon":null},"mute":{"*":"2030-01-01T00:00:00Z"}}`)
	flood(1, 1, app, "", "DELETE", own, "")
	flood(1, 1, app, "", "PUT", own, `{"addresses":{"pigeon":"hers"}}`)
	instances = append(instances, start())
	flood(0, 9, carla, "QUOTA_TEST", "POST", own+test, "")
	flood(0, 9, app, "QUOTA_TEST", "POST", own+test, "")
	flood(120, 120, app, "", "PUT", "CUSTOMER/u#", `{"addresses":{"pigeon":"one"}}`)
	flood(20, 120, app, "QUOTA_TEST", "POST", "CUSTOMER/u#"+test, "")
	messages, _ := birds.counts()
	check.Equal(t, messages, 45, "messages")
	flood(1, 1, operator, "", "POST", own+test, "")

	records := check.Must(audit.List(t.Context(), p.js, audit.MaxList))(t)
	check.That(t, len(records) == 1 && records[0].Actor == "olga" && records[0].Action == "test", "%+v", records)
	refused := map[string]int{}
	records = check.Must(audit.ListUsers(t.Context(), p.js, audit.MaxList))(t)
	for _, r := range records {
		if r.Outcome == audit.Refused {
			refused[r.Actor+" "+r.Action] = max(refused[r.Actor+" "+r.Action], r.Count)
		}
	}
	check.Equal(t, refused, map[string]int{"app test": 10, "carla change": 10, "carla replay": 10, "carla rotate": 10, "carla test": 10})
	check.That(t, len(records) < 120, "%d records", len(records))

	p.bound("KV_deliveries", 1) // full: requests that cannot be counted are refused, and no others
	status, text := instances[0].call("POST", "/v1/users/CUSTOMER/u119"+test, "", app...)
	check.That(t, status == http.StatusInsufficientStorage && strings.Contains(text, "STORE_FULL"), "%d %s", status, text)
	flood(1, 1, carla, "", "GET", own, "")
	flood(1, 1, carla, "", "PATCH", own, `{"addresses":{"pigeon":null},"opt_out":{"*":["*"]}}`)
	after, _ := birds.counts()
	check.Equal(t, after, messages+1, "messages of a full store") // the operator's
}

// A user learns of a test message that failed, and of one that was sent, nothing in the words of the inner network. Operators and the
// log do.
func TestATestSaysNothingOfTheInnerNetwork(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	keys, carla, app, operator := keyring(t)
	var log bytes.Buffer
	const inner = "mx7.corp.internal:2525"
	var failure error
	birds := &pigeon{send: func(context.Context, channel.Message) (channel.Receipt, error) {
		return channel.Receipt{ID: "queued at " + inner}, failure
	}}
	w := newWeb(t, p.start(birds, listening, func(c *Config) {
		c.Keys, c.Logger = keys, slog.New(slog.NewTextHandler(&log, nil))
	}))
	const path = "/v1/users/CUSTOMER/carla"
	status, body := w.call(http.MethodPut, path, `{"addresses":{"pigeon":"x"}}`, operator...)
	check.That(t, status == http.StatusOK, "%d %s", status, body)
	for want, err := range map[string]error{
		"":                       nil,
		"pigeon: unavailable":    &channel.Error{Channel: "pigeon", Kind: channel.KindUnavailable, Cause: errors.New("dial tcp " + inner + ": connection refused")},
		"pigeon: rejected (554)": &channel.Error{Channel: inner, Kind: channel.KindRejected, Status: 554, Detail: inner + " says no"},
		"pigeon: unknown":        errors.New("lookup " + inner),
		"pigeon: bounced (550)":  fmt.Errorf("%s: %w", inner, &channel.Error{Kind: channel.KindBounced, Status: 550}),
	} {
		failure = err
		for i, key := range [][]string{carla, app, operator} {
			var sent TestSent
			_, body := w.call(http.MethodPost, path+"/endpoints/pigeon/main/test", "", key...)
			check.OK(t, json.Unmarshal([]byte(body), &sent))
			isOperator := i == 2
			check.That(t, strings.Contains(body, inner) == isOperator && (isOperator || sent.Problem == want), "%s, want %s", body, want)
		}
	}
	check.Contains(t, log.String(), "dial tcp "+inner, inner+" says no")
}

// Monitoring does not see which users follow their inboxes, whatever it asks for.
func TestMonitoringSeesNoUsers(t *testing.T) {
	t.Parallel()
	p, users := administered(t, "pigeon")
	w := newWeb(t, p.start(&pigeon{}, listening))
	p.directory(contracts.Recipient{RecipientType: "CUSTOMER", UserID: "carlotta"})
	_, end := w.listen("/v1/users/carlotta/inbox/events")
	defer end()
	nc, _ := natstest.Connect(t, p.srv, users.As("sys"))
	const all = `{"subscriptions":true,"subscriptions_detail":true,"auth":true,"accounts":true,"streams":true,"consumer":true,"config":true,"state":0,"subs":true}`
	answers := 0
	for _, kind := range []string{"", ".CONNZ", ".SUBSZ", ".ACCOUNTZ", ".JSZ", ".VARZ", ".HEALTHZ", ".STATSZ", ".ROUTEZ", ".GATEWAYZ", ".LEAFZ", ".IPQUEUESZ", ".RAFTZ"} {
		for _, subject := range []string{"$SYS.REQ.SERVER.PING" + kind, "$SYS.REQ.ACCOUNT.NOTIFIER" + kind, "$SYS.REQ.ACCOUNT.PING" + kind} {
			if msg, err := nc.RequestWithContext(t.Context(), subject, []byte(all)); err == nil {
				answers++
				check.That(t, !strings.Contains(string(msg.Data), "carlotta"), "%s: %s", subject, msg.Data)
			}
		}
	}
	check.That(t, answers > 0, "nothing was answered")
}

// A user with as many addresses of a channel as there may be sets the plain one, too, and has its secret replaced: what is noted of it
// is no further address. Beyond that there is none.
func TestMainIsBesideTheOtherAddresses(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	keys, carla, app, _ := keyring(t)
	hooks := check.Must(webhook.New(webhook.Config{Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}))(t)
	t.Cleanup(hooks.Close)
	w := newWeb(t, p.start(&pigeon{}, listening, func(c *Config) { c.Keys, c.Channels = keys, append(c.Channels, Channel{Channel: hooks}) }))
	const path = "/v1/users/CUSTOMER/carla"
	all := map[string]any{}
	for n := range 20 {
		all[fmt.Sprintf("e%d", n)] = map[string]string{"address": fmt.Sprintf("https://%d.example.com", n)}
	}
	body := check.Must(json.Marshal(map[string]any{"endpoints": map[string]any{"webhook": all}}))(t)
	for _, c := range []struct {
		method, path, body string
		key                []string
		status             int
		want               string
	}{
		{"PUT", path, string(body), app, 200, ""},
		{"PATCH", path, `{"addresses":{"webhook":"https://main.example.com"}}`, carla, 200, `"main":{"unverified":true}`},
		{"POST", path + "/endpoints/webhook/main/rotate", "", carla, 200, "secret"},
		{"PATCH", path, `{"addresses":{"webhook":"https://other.example.com"},"mute":{"*":"2030-01-01T00:00:00Z"}}`, carla, 200, ""},
		{"PATCH", path, `{"endpoints":{"webhook":{"more":{"address":"https://more.example.com"}}}}`, carla, 400, "has 21 addresses beside main, at most 20"},
		{"PATCH", path, `{"endpoints":{"webhook":{"e1":null,"more":{"address":"https://more.example.com"}}}}`, carla, 200, ""},
		{"GET", path, "", carla, 200, `"webhook":"https://other.example.com"`},
		{"POST", path + "/endpoints/webhook/main/test?template=PASSWORD_RESET", "", carla, 403, "the template TEST"},
	} {
		status, text := w.call(c.method, c.path, c.body, c.key...)
		check.That(t, status == c.status && strings.Contains(text, c.want), "%s %s %s is %d %s", c.method, c.path, c.body, status, text)
	}

	// What users do, however much and for however long, pushes out no record that an application deleted one.
	status, text := w.call(http.MethodDelete, path, "", app...)
	check.That(t, status < 300, "%d %s", status, text)
	record := []byte(`{"target":"` + strings.Repeat("x", 1200) + `"}`)
	for range 15_000 { // as a year of users with long ids leaves them
		check.OK(t, check.Err(p.js.PublishAsync("audit.notifier.users.test", record, jetstream.WithStallWait(patience))))
	}
	<-p.js.PublishAsyncComplete()
	stream := check.Must(p.js.Stream(t.Context(), contracts.StreamAuditUsers))(t)
	check.OK(t, check.Err(stream.GetLastMsgForSubject(t.Context(), "audit.notifier.users.forget")))
}
