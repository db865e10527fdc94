package recipient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

func source(t *testing.T, answer http.HandlerFunc) *recipient.HTTP {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	h := check.Must(recipient.NewHTTP(recipient.HTTPConfig{URL: server.URL, Token: "secret"}))(t)
	t.Cleanup(h.Close)
	return h
}

var asked = recipient.Query{
	Event: contracts.Event{EventID: "e", EventType: "X", AggregateType: "RESTAURANT", AggregateID: "5"},
	Scope: rules.ScopeAggregate, Type: contracts.RecipientCustomer,
}

func TestHTTPReadsPageByPage(t *testing.T) {
	t.Parallel()
	var requests []map[string]string
	h := source(t, func(w http.ResponseWriter, r *http.Request) {
		var ask map[string]string
		err := json.NewDecoder(r.Body).Decode(&ask)
		check.That(t, err == nil && r.Header.Get("Authorization") == "Bearer secret", "%v %v", err, r.Header)
		requests = append(requests, ask)
		n := len(requests)
		next := ""
		if n < 3 {
			next = fmt.Sprintf(`,"next":"p%d"`, n)
		}
		_, _ = w.Write(fmt.Appendf(nil, `{"recipients":[{"user_id":"u%d","recipient_type":"CUSTOMER"},{"user_id":"v%d","recipient_type":"CUSTOMER","locale":5,"time_zone":"Mars"}]%s}`, n, n, next))
	})
	got, err := ids(h.Resolve(t.Context(), asked))
	want := []string{"CUSTOMER/u1", "CUSTOMER/u2", "CUSTOMER/u3", "CUSTOMER/v1", "CUSTOMER/v2", "CUSTOMER/v3"}
	diff := cmp.Diff(want, got)
	check.That(t, err == nil && diff == "", "%v\n%s", err, diff)
	first := map[string]string{
		"event_id": "e", "event_type": "X", "aggregate_type": "RESTAURANT", "aggregate_id": "5", "recipient_type": "CUSTOMER", "scope": "aggregate",
	}
	diff = cmp.Diff(first, requests[0])
	check.That(t, diff == "" && requests[2]["cursor"] == "p2", "%s, third page asked for as %v", diff, requests[2])
}

// An answer that is not whole is an error, which says whether asking again can help.
func TestHTTPTakesNothingForTheEnd(t *testing.T) {
	t.Parallel()
	const page = `{"recipients":[{"user_id":"u","recipient_type":"CUSTOMER"}]`
	for name, test := range map[string]struct {
		status    int
		body      string
		permanent bool
	}{
		"cut off":                 {200, page, false},
		"empty":                   {200, "", false},
		"another kind":            {200, `{"recipients":[{"user_id":"u","recipient_type":"ADMIN"}]}`, true},
		"an opt-out that is none": {200, `{"recipients":[{"user_id":"u","recipient_type":"CUSTOMER","opt_out":{"news":"email"}}]}`, true},
		"no user":                 {200, `{"recipients":[{"recipient_type":"CUSTOMER"}]}`, true},
		"the same page again":     {200, page + `,"next":"p"}`, true},
		"too large":               {200, page + strings.Repeat(" ", 4<<20) + "}", true},
		"away":                    {503, "", false},
		"too many":                {429, "", false},
		"not found":               {404, page + "}", true},
		"moved":                   {302, page + "}", true},
		"accepted, not answer":    {202, page + "}", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := source(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
			})
			_, err := ids(h.Resolve(t.Context(), asked))
			e, ok := errors.AsType[*recipient.Error](err)
			check.Require(t, ok && e.Permanent == test.permanent, "%v", err)
			check.That(t, test.status == http.StatusOK || e.RetryAfter == 7*time.Second, "retry after %s", e.RetryAfter)
			check.That(t, !strings.Contains(err.Error(), "secret"), "the token is in %v", err)
		})
	}
}

// The URL may have a user, a password and a token: the service gets them, and no error has them.
func TestHTTPKeepsItsSecrets(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"a status": "", "no JSON": "{", "another type": `{"recipients":[{"user_id":"u","recipient_type":"ADMIN"}]}`, "no end": `{"next":"a"}`,
		"too much": strings.Repeat(" ", 5<<20),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		check.That(t, ok && user == "hunter2svc" && password == "hunter2" && r.URL.Query().Get("key") == "hunter2", "%s %v", r.URL, r.Header)
		answer := answers[r.URL.Path[1:]]
		if answer == "" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = w.Write([]byte(answer))
	}))
	defer server.Close()
	bases := map[string]string{"no connection": "127.0.0.1:1"}
	for name := range answers {
		bases[name] = strings.TrimPrefix(server.URL, "http://")
	}
	for name, base := range bases {
		h, err := recipient.NewHTTP(recipient.HTTPConfig{URL: "http://hunter2svc:hunter2@" + base + "/" + url.PathEscape(name) + "?key=hunter2"})
		check.OK(t, err)
		_, err = ids(h.Resolve(t.Context(), asked))
		check.That(t, err != nil && !strings.Contains(err.Error(), "hunter2") && strings.Contains(err.Error(), base), "%s: %v", name, err)
		h.Close()
	}
}

func TestHTTPNeedsAURL(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "/x", "ftp://x.example", "http://"} {
		check.Failsf(t, check.Err(recipient.NewHTTP(recipient.HTTPConfig{URL: bad})), "%q was accepted", bad)
	}
}

// errUnknown is the error for a recipient that the directory does not have.
var errUnknown = errors.New("nothing is known of the recipient")

// getting returns why a recipient cannot be read.
func getting(ctx context.Context, d *recipient.Directory, kind contracts.RecipientType, user string) error {
	_, found, err := d.Get(ctx, kind, user)
	if err == nil && !found {
		err = errUnknown
	}
	return err
}

// A recipient whose data was erased is in no list, and a click on an old link changes nothing. An address, or another record,
// makes the recipient known again. Nothing but the id is stored meanwhile, for 40 days.
func TestForget(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d, js := open(t)
	kv := check.Must(js.KeyValue(ctx, contracts.BucketDirectory))(t)
	ada := contracts.Recipient{RecipientType: "ADMIN", UserID: "ada", Addresses: map[string]string{"email": "ada@example.org"}}
	check.OK(t, d.Put(ctx, ada))
	check.OK(t, d.Put(ctx, contracts.Recipient{RecipientType: "CUSTOMER", UserID: "ada"}))
	check.OK(t, d.Put(ctx, contracts.Recipient{RecipientType: "ADMIN", UserID: "root"}))
	for _, want := range []bool{true, false} { // again, as after an interruption
		known := check.Must(d.Forget(ctx, "ADMIN", "ada"))(t)
		check.Equal(t, want, known)
	}
	isForgotten := func() {
		t.Helper()
		check.Is(t, getting(ctx, d, "ADMIN", "ada"), recipient.ErrForgotten)
	}
	isForgotten()
	all := check.Must(ids(d.Resolve(ctx, recipient.Query{Scope: rules.ScopeAll, Type: "ADMIN"})))(t)
	check.Equal(t, []string{"ADMIN/root"}, all)
	for _, key := range []string{"ADMIN.ada", "addresses.ADMIN.ada", "preferences.ADMIN.ada"} {
		check.Is(t, check.Err(kv.Get(ctx, key)), jetstream.ErrKeyNotFound)
	}
	stream := check.Must(js.Stream(ctx, "KV_"+contracts.BucketDirectory))(t)
	mark := check.Must(stream.GetLastMsgForSubject(ctx, "$KV.directory.ADMIN.ada"))(t)
	check.Equal(t, "", string(mark.Data))
	check.Equal(t, "3456000s", mark.Header.Get(jetstream.MsgTTLHeader)) // 40 days

	check.OK(t, d.OptOut(ctx, "ADMIN", "ada", "news", "email"))
	check.OK(t, check.Err(d.Drop(ctx, "ADMIN", "ada", "email", "ada@example.org")))
	check.OK(t, d.SetAddress(ctx, "ADMIN", "ada", "email", ""))
	isForgotten()

	check.OK(t, d.SetAddress(ctx, "ADMIN", "ada", "webpush", "here"))
	r, found, err := d.Get(ctx, "ADMIN", "ada")
	check.OK(t, err)
	check.That(t, found && len(r.Addresses) == 1 && r.Addresses["webpush"] == "here", "with a new address: %+v", r)
	check.OK(t, check.Err(d.Forget(ctx, "ADMIN", "ada")))
	isForgotten()
	check.OK(t, d.Put(ctx, ada))
	check.OK(t, getting(ctx, d, "ADMIN", "ada"))
	check.OK(t, getting(ctx, d, "CUSTOMER", "ada"))
}

// An address that is written between the read and the write of the removal is removed as well.
func TestForgetRemovesWhatComesBetween(t *testing.T) {
	t.Parallel()
	srv, other := serve(t)
	ctx := t.Context()
	check.OK(t, other.SetAddress(ctx, "ADMIN", "root", "email", "root@example.org"))
	d, proxy := through(t, srv)
	between := sync.OnceFunc(func() {
		check.Is(t, other.SetAddress(context.WithoutCancel(ctx), "ADMIN", "root", "sms", "34"), nil)
	})
	proxy.Filter(func(f natstest.Frame) natstest.Verdict {
		if f.FromClient && f.Subject == "$KV.directory.ADMIN.root" {
			between()
		}
		return natstest.Relay
	})
	known := check.Must(d.Forget(ctx, "ADMIN", "root"))(t)
	check.Equal(t, true, known)
	proxy.Filter(nil)
	check.Is(t, getting(ctx, other, "ADMIN", "root"), recipient.ErrForgotten)
}
