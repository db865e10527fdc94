package notifier

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// asked is a request and its answer: a status, and texts of the body.
type asked struct {
	method, path, body, ifMatch string
	status                      int
	says                        []string
}

// ask makes requests one after the other. "ETAG" in an If-Match is the ETag of the answer before that has one.
func (w *web) ask(requests ...asked) {
	w.Helper()
	etag := ""
	for i, r := range requests {
		var header []string
		switch r.ifMatch {
		case "":
		case "none":
			header = []string{"If-None-Match", "*"}
		default:
			header = []string{"If-Match", strings.ReplaceAll(r.ifMatch, "ETAG", etag)}
		}
		resp := w.request(w.Context(), r.method, r.path, r.body, header...)
		data := new(strings.Builder)
		check.OK(w, errors.Join(resp.Write(data), resp.Body.Close()))
		if tag := resp.Header.Get("ETag"); tag != "" {
			etag = tag
		}
		ok := resp.StatusCode == r.status
		for _, text := range r.says {
			ok = ok && strings.Contains(data.String(), text)
		}
		check.That(w, ok,
			"request %d, %s %s %s: want %d and %q, got %s", i, r.method, r.path, r.body, r.status, r.says, data)
	}
}

func TestUsersOverHTTP(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	w := newWeb(t, p.start(&pigeon{}, listening))
	const carla, dora, members = "/v1/users/CUSTOMER/carla", "/v1/users/CUSTOMER/dora", "/v1/memberships/CUSTOMER/carla"
	large := func(n int) string { return `{"x":"` + strings.Repeat("y", n) + `"}` }
	w.ask(
		asked{"GET", carla, "", "", 404, []string{"there is no such user"}},
		asked{"DELETE", carla, "", "", 404, nil},
		asked{"PUT", carla, `{"locale":"he-IL","vip":12345678901234567890,"nick":null}`, "none", 200, []string{
			`{"locale":"he-IL","recipient_type":"CUSTOMER","user_id":"carla","vip":12345678901234567890}`,
		}},
		asked{"PUT", carla, `{}`, "none", 412, []string{"USER_CHANGED"}},
		asked{"PATCH", carla, `{"time_zone":"Asia/Jerusalem","vip":null}`, "ETAG", 200, []string{`{"locale":"he-IL","recipient_type":"CUSTOMER","time_zone"`}},
		asked{"PATCH", carla, `{"time_zone":"Asia/Jerusalem"}`, "ETAG", 200, nil},
		asked{"PATCH", carla, `{"time_zone":"UTC"}`, `"1"`, 412, nil},
		asked{"PATCH", carla, `{"time_zone":"UTC"}`, `W/"x"`, 412, nil},
		asked{"PATCH", carla, `{"time_zone":"UTC"}`, "*", 200, nil},
		asked{"PUT", carla, `{"locale":"fr","addresses":{"email":"c@example.com","sms":"12"}}`, "ETAG", 200, nil},
		asked{"PATCH", carla, `{"addresses":{"sms":null,"webhook":"https://example.com"}}`, "ETAG", 200, []string{
			`{"addresses":{"email":"c@example.com","webhook":"https://example.com"},"locale":"fr","recipient`,
		}},
		asked{"PATCH", carla, `{"opt_out":{"reservations":["pigeon"]},"quiet_hours":{"from":"22:00","to":"07:00"}}`, "", 200, nil},
		asked{"PATCH", carla, `{"opt_out":{"reservations":["Pigeon","fax"],"News":["*"]}}`, "", 400, []string{
			`/opt_out/News","problem":"names no category: want reservations, *`, `/opt_out/reservations","problem":"names no channel: want inapp, pigeon, *`,
		}},
		asked{"PATCH", carla, `{"mute":{"Reservations":"2030-12-01T08:00:00Z","*":"2030-12-01T08:00:00Z"}}`, "", 400, []string{"/mute/Reservations"}},
		asked{"PUT", carla, `{"digest":{"deals":"4h"},"opt_out":{"reservations":["pigeon"]}}`, "", 400, []string{"/digest/deals"}},
		asked{"PATCH", carla, `{"opt_out":{"reservations":null}}`, "", 403, []string{"OPT_OUT_KEPT", `that of \"reservations\" on \"pigeon\"`}},
		asked{"PATCH", carla, `{"quiet_hours":{"to":"08:00"}}`, "ETAG", 200, []string{`{"from":"22:00","to":"08:00"}`, `{"reservations":["pigeon"]}`}},
		asked{"PATCH", carla, `{"mute":{"a b":"never"},"digest":{"news":"7m"}}`, "", 400, []string{"/mute/a b", "/digest/news", "such as 30m"}},

		asked{"PATCH", members, `{"add":[{"type":"RESTAURANT","id":"5"},{"type":"CITY","id":"a.b/*"}]}`, "", 200, []string{
			`{"memberships":[{"type":"CITY","id":"a.b/*"},{"type":"RESTAURANT","id":"5"}]}`,
		}},
		asked{"PATCH", members, `{"add":[{"type":"CITY","id":"2"}],"remove":[{"type":"CITY","id":"a.b/*"}]}`, "", 200, []string{
			`[{"type":"CITY","id":"2"},{"type":"RESTAURANT","id":"5"}]`,
		}},
		asked{"PATCH", members, `{"add":[{"type":"a.b","id":""}]}`, "", 400, []string{"/add/0"}},
		asked{"GET", members, "", "", 200, []string{`{"memberships":[{"type":"CITY","id":"2"},{"type":"RESTAURANT","id":"5"}]}`}},

		asked{"GET", carla, "", "", 200, nil},
		asked{"DELETE", carla, "", `"1"`, 412, nil},
		asked{"DELETE", carla, "", "ETAG", 204, nil},
		asked{"PUT", carla, `{}`, "ETAG", 412, nil},
		asked{"PUT", carla, `{}`, "*", 412, nil},
		asked{"GET", carla, "", "", 404, nil},
		asked{"GET", members, "", "", 200, []string{`{"memberships":[]}`}},
		asked{"PUT", carla, `{}`, "none", 200, []string{`{"recipient_type":"CUSTOMER","user_id":"carla"}`}},

		// Every mistake is named, and nothing is stored.
		asked{"PUT", dora, `{"locale":7,"user_id":"eve","memberships":[]}`, "", 400, []string{"/locale", "/user_id", "/memberships"}},
		asked{"PUT", dora, large(recipient.MaxDocument), "", 413, nil},
		asked{"PUT", dora, large(1 << 20), "", 413, nil},
		asked{"GET", dora, "", "", 404, nil},
		asked{"PUT", dora, large(60 << 10), "", 200, nil},
		asked{"PUT", "/v1/users/A%2EB/dora", `{}`, "", 400, []string{"/recipient_type"}},
		asked{"PUT", "/v1/users/CUSTOMER/" + strings.Repeat("x", contracts.MaxID+1), `{}`, "", 400, []string{"/user_id"}},
		asked{"GET", "/v1/users?limit=1001", "", "", 400, nil},
		asked{"GET", "/v1/users?cursor=%2E", "", "", 400, nil},
	)
	status, body := w.call("POST", "/v1/users", strings.Repeat("{}\n", 5001))
	check.That(t, status == 400, "%d %s", status, body)
	page := get[api.UserPage](w, "/v1/users")
	check.That(t, len(page.Users) == 2, "%s", page.Users)
}

// An id is never a path, a wildcard, or another user's.
func TestIDsOfUsers(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	w := newWeb(t, p.start(&pigeon{}, listening))
	ids := []string{"a.b", "a/b", "*", ">", "a b", "דנה", "..", ".", "inbox", "-", "%2F", "$KV", "a\tb", strings.Repeat("x", contracts.MaxID)}
	for _, id := range ids {
		query := "/CUSTOMER/-?user=" + url.QueryEscape(id)
		w.ask(
			asked{"PUT", "/v1/users" + query, fmt.Sprintf(`{"addresses":{"email":"%x"}}`, id), "none", 200, nil},
			asked{"PATCH", "/v1/memberships" + query, `{"add":[{"type":"RESTAURANT","id":"5"}]}`, "", 200, nil},
		)
	}
	d := p.directory()
	for _, id := range ids {
		r, found, err := d.Get(t.Context(), "CUSTOMER", id)
		check.That(t, err == nil && found && r.Addresses["email"] == fmt.Sprintf("%x", id), "%q: %+v %v %v", id, r, found, err)
		if strings.Trim(id, ".") != "" && id != "inbox" {
			w.ask(asked{"GET", "/v1/users/CUSTOMER/" + url.PathEscape(id), "", "", 200, nil})
		}
	}
	w.ask(asked{"DELETE", "/v1/users/CUSTOMER/%2A", "", "", 204, nil}, asked{"DELETE", "/v1/users/CUSTOMER/%3E", "", "", 204, nil})
	known := map[string]bool{}
	for path := "/v1/users?type=CUSTOMER&limit=5"; path != ""; {
		page := get[api.UserPage](w, path)
		for _, line := range page.Users {
			var r contracts.Recipient
			check.OK(t, json.Unmarshal(line, &r))
			known[r.UserID] = true
		}
		if path = ""; page.Next != "" {
			path = "/v1/users?type=CUSTOMER&limit=5&cursor=" + page.Next
		}
	}
	check.Equal(t, len(known), len(ids)-2, "users are left")
}

// A key of a user reaches that user, and takes the user's own opt-outs back.
func TestKeysOfUsers(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(contracts.Recipient{RecipientType: "CUSTOMER", UserID: "ada", OptOut: map[string][]string{"news": {"email"}}})
	keys := filepath.Join(t.TempDir(), "keys.json")
	key := addKey(t, keys, access.Key{Name: "ada", User: "ada", RecipientType: "CUSTOMER", Scopes: []access.Scope{access.People}})
	w := newWeb(t, p.start(&pigeon{}, listening, func(c *Config) { c.Keys = keys }))
	for _, test := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "CUSTOMER/ada", "", 200},
		{"PATCH", "CUSTOMER/ada", `{"vip":true}`, 400},
		{"PUT", "CUSTOMER/ada", `{}`, 403},
		{"DELETE", "CUSTOMER/ada", "", 403},
		{"PATCH", "../memberships/CUSTOMER/ada", `{"add":[{"type":"RESTAURANT","id":"7"}]}`, 403},
		{"GET", "../memberships/CUSTOMER/ada", "", 200},
		{"PATCH", "CUSTOMER/ada", `{"addresses":{"email":"a@example.com"}}`, 200},
		{"GET", "", "", 403},
		{"GET", "CUSTOMER/bob", "", 403},
		{"PATCH", "CUSTOMER/ada?user=bob", `{"addresses":{"email":"a@example.com"}}`, 403},
		{"GET", "ADMIN/ada", "", 403},
		{"PATCH", "CUSTOMER/ada", `{"opt_out":{"news":null}}`, 200},
	} {
		status, body := w.call(test.method, strings.TrimSuffix("/v1/users/"+test.path, "/"), test.body, key...)
		check.That(t, status == test.status, "%s %s: %d %s", test.method, test.path, status, body)
	}
	r, _, err := p.directory().Get(t.Context(), "CUSTOMER", "ada")
	check.That(t, err == nil && len(r.OptOut) == 0 && r.Addresses["email"] == "a@example.com", "%+v %v", r, err)
}

// Users that are imported over HTTP are exported alike over NATS.
func TestImportAndExportOfUsers(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	w := newWeb(t, p.start(&pigeon{}, listening))
	lines := strings.Join([]string{
		`{"recipient_type":"CUSTOMER","user_id":"a","locale":"he","addresses":{"email":"a@example.com"},"opt_out":{"news":["sms"]},"memberships":[{"type":"CITY","id":"1"}]}`,
		`{"recipient_type":"CUSTOMER","user_id":"b","locale":7,"time_zone":"Mars","memberships":[{"type":"","id":""}]}`,
		``,
		`{"recipient_type":"CUSTOMER","user_id":"a","locale":"fr","vip":true}`,
		`no JSON`,
		`{"recipient_type":"ADMIN","user_id":"z","opt_out":{"*":["*"]},"unlisted":true}`,
		`{"recipient_type":"CUSTOMER","user_id":"c","locale":"en","memberships":[{"type":"CITY","id":"1"}]}`,
	}, "\n")
	status, body := w.call("POST", "/v1/users", lines)
	check.Equal(t, status, 200, "status")
	check.Contains(t, body, `{"line":1,"recipient_type":"CUSTOMER","user_id":"a","status":"stored"}`, `"line":2`, `"/locale"`, `"/time_zone"`,
		`/memberships/0`, `{"line":4,`, `{"line":5,"status":"invalid"`, `{"line":6,`)
	check.That(t, !strings.Contains(body, `"line":3`), "a blank line has a result: %s", body)
	many := `{"recipient_type":"ADMIN","user_id":"y","addresses":{"a b":"","c d":"","e f":"","g h":"","i j":"",` +
		`"k l":"","m n":"","o p":"","q r":"","s t":"","u v":""}}` + "\n"
	_, body = w.call("POST", "/v1/users", strings.Repeat(many, 200))
	check.Equal(t, strings.Count(body, `"path"`), 1000, "mistakes are named")
	check.Equal(t, strings.Count(body, `"status":"invalid"`), 200, "lines are invalid")
	again := check.Must(p.nc.RequestWithContext(t.Context(), "notifier.v1.users.import", []byte(strings.Split(lines, "\n")[3])))(t)
	check.Equal(t, string(again.Data), `{"line":1,"recipient_type":"CUSTOMER","user_id":"a","status":"unchanged"}`+"\n", "again")
	msg := check.Must(p.nc.RequestWithContext(t.Context(), "notifier.v1.users.list", []byte(`{}`)))(t)
	var page api.UserPage
	check.OK(t, json.Unmarshal(msg.Data, &page))
	slices.SortFunc(page.Users, func(a, b json.RawMessage) int { return bytes.Compare(a, b) })
	check.Equal(t, page.Users, []json.RawMessage{
		json.RawMessage(`{"addresses":{"email":"a@example.com"},"locale":"fr","opt_out":{"news":["sms"]},"recipient_type":"CUSTOMER","user_id":"a","vip":true}`),
		json.RawMessage(`{"locale":"en","recipient_type":"CUSTOMER","user_id":"c"}`),
		json.RawMessage(`{"memberships":[{"type":"CITY","id":"1"}],"recipient_type":"CUSTOMER","unlisted":true,"user_id":"a"}`),
		json.RawMessage(`{"memberships":[{"type":"CITY","id":"1"}],"recipient_type":"CUSTOMER","unlisted":true,"user_id":"c"}`),
		json.RawMessage(`{"opt_out":{"*":["*"]},"recipient_type":"ADMIN","unlisted":true,"user_id":"z"}`),
	})
	w.ask(asked{"GET", "/v1/users/ADMIN/z", "", "", 200, []string{`{"*":["*"]}`}})
	for _, test := range [][3]string{
		{"get", `{"recipient_type":"CUSTOMER","user_id":"a"}`, `"email":"a@example.com"`},
		{"put", `{"recipient_type":"CUSTOMER","user_id":"a","merge":true,"body":{"locale":"en"}}`, `"locale":"en"`},
		{"members", `{"recipient_type":"CUSTOMER","user_id":"a","remove":[{"type":"CITY","id":"1"}]}`, `{"memberships":[]}`},
		{"put", `{"recipient_type":"CUSTOMER","user_id":"a","if_match":"7","body":{}}`, "USER_CHANGED"},
		{"delete", `{"recipient_type":"CUSTOMER","user_id":"a"}`, "{}"},
		{"get", `{"recipient_type":"CUSTOMER","user_id":"a"}`, ""},
	} {
		msg, err := p.nc.RequestWithContext(t.Context(), "notifier.v1.users."+test[0], []byte(test[1]))
		if err != nil || !strings.Contains(string(msg.Data), test[2]) || test[2] == "" && msg.Header.Get("Nats-Service-Error-Code") != "404" {
			t.Errorf("%s %s: %s %v %v", test[0], test[1], msg.Data, msg.Header, err)
		}
	}
}
