package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answerOf is an answer of a remote service, with headers.
type answerOf struct {
	status int
	body   string
	header []string
}

// far stands for Google, Apple and Slack. It checks calls as they would.
type far struct {
	*testing.T

	rsa   *rsa.PrivateKey
	ecdsa *ecdsa.PrivateKey
	srv   *httptest.Server

	mu     sync.Mutex // guards the fields below
	next   answerOf
	body   string
	tokens int
}

func encoded(t *testing.T, key any) []byte {
	t.Helper()
	der := check.Must(x509.MarshalPKCS8PrivateKey(key))(t)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// newFar starts the remote services, and an adapter that calls them.
func newFar(t *testing.T, logged io.Writer) (*far, *httptest.Server) {
	t.Helper()
	f := &far{T: t}
	var err error
	f.rsa, err = rsa.GenerateKey(rand.Reader, 2048)
	check.OK(t, err)
	f.ecdsa, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.OK(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", f.token)
	mux.HandleFunc("POST /v1/projects/cucina/messages:send", f.fcm)
	mux.HandleFunc("POST /3/device/{token}", f.apns)
	mux.HandleFunc("POST /services/T0/B0/sesame", f.answer)
	f.srv = httptest.NewUnstartedServer(mux)
	f.srv.EnableHTTP2 = true
	f.srv.StartTLS()
	t.Cleanup(f.srv.Close)
	folder := t.TempDir()
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "cucina", "private_key_id": "k1", "private_key": string(encoded(t, f.rsa)),
		"client_email": "push@cucina.example", "token_uri": f.srv.URL + "/token",
	})
	check.OK(t, err)
	check.OK(t, os.WriteFile(filepath.Join(folder, "fcm.json"), account, 0o600))
	check.OK(t, os.WriteFile(filepath.Join(folder, "apns.p8"), encoded(t, f.ecdsa), 0o600))
	mux, err = routes(t.Context(), environment{
		"ADAPTER_TOKEN": "sesame-adapter", "FCM_CREDENTIALS": filepath.Join(folder, "fcm.json"), "FCM_URL": f.srv.URL,
		"APNS_KEY": filepath.Join(folder, "apns.p8"), "APNS_KEY_ID": "KEYID12345", "APNS_TEAM_ID": "TEAM123456", "APNS_TOPIC": "example.cucina",
		"APNS_URL": f.srv.URL, "SLACK_PREFIX": f.srv.URL + "/services/",
	}.get, &adapter{client: f.srv.Client(), logger: slog.New(slog.NewTextHandler(logged, nil))})
	check.OK(t, err)
	served := httptest.NewServer(mux)
	t.Cleanup(served.Close)
	return f, served
}

type environment map[string]string

func (e environment) get(name string) string { return e[name] }

// claims checks the signature of a token, and returns its claims and the id of its key.
func claims(t *testing.T, token string, algorithm jose.SignatureAlgorithm, key any) (all map[string]any, id string) {
	t.Helper()
	parsed := check.Must(jwt.ParseSigned(token, []jose.SignatureAlgorithm{algorithm}))(t)
	check.OK(t, parsed.Claims(key, &all))
	return all, parsed.Headers[0].KeyID
}

func (f *far) token(w http.ResponseWriter, r *http.Request) {
	check.Equal(f.T, r.PostFormValue("grant_type"), "urn:ietf:params:oauth:grant-type:jwt-bearer", "grant")
	all, _ := claims(f.T, r.PostFormValue("assertion"), jose.RS256, &f.rsa.PublicKey)
	check.Equal(f.T, []any{all["iss"], all["scope"], all["aud"]},
		[]any{"push@cucina.example", "https://www.googleapis.com/auth/firebase.messaging", f.srv.URL + "/token"})
	w.Header().Set("Content-Type", "application/json")
	w.Write([]byte(`{"access_token":"sesame-ya29","expires_in":3599,"token_type":"Bearer"}`))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens++
}

func (f *far) fcm(w http.ResponseWriter, r *http.Request) {
	check.Equal(f.T, r.Header.Get("Authorization"), "Bearer sesame-ya29", "authorization")
	f.answer(w, r)
}

func (f *far) apns(w http.ResponseWriter, r *http.Request) {
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "bearer ")
	check.That(f.T, found && r.ProtoMajor == 2, "%s %s", r.Proto, r.Header)
	all, id := claims(f.T, token, jose.ES256, &f.ecdsa.PublicKey)
	check.Equal(f.T, []any{id, all["iss"]}, []any{"KEYID12345", "TEAM123456"})
	check.Equal(f.T,
		[]string{r.Header.Get("Apns-Topic"), r.Header.Get("Apns-Push-Type"), r.Header.Get("Apns-Collapse-Id"), r.PathValue("token")},
		[]string{"example.cucina", "alert", "ntf_1", "sesame-device"})
	f.answer(w, r)
}

func (f *far) answer(w http.ResponseWriter, r *http.Request) {
	body := check.Must(io.ReadAll(r.Body))(f.T)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.body = string(body)
	for i := 0; i+1 < len(f.next.header); i += 2 {
		w.Header().Set(f.next.header[i], f.next.header[i+1])
	}
	w.WriteHeader(f.next.status)
	w.Write([]byte(f.next.body))
}

// Each remote service gets calls in the form that it documents, and the notifier gets their answers in the form of its
// gateway.
func TestRemoteServices(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	f, served := newFar(t, &logged)
	device, hook := "sesame-device", f.srv.URL+"/services/T0/B0/sesame"
	fcmError := func(status int, code, detail string) answerOf {
		return answerOf{status: status, body: `{"error":{"code":1,"message":"m","status":"` + code + `","details":[{"@type":"type.googleapis.com/google.rpc.BadRequest"},` +
			`{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"` + detail + `"}]}}`}
	}
	fcmBody := `{"message":{"data":{"message_id":"ntf_1","n":"5","url":"https://x.example"},"notification":{"body":"a \u003cb\u003e","title":"t"},"token":"sesame-device"}}`
	apnsBody := `{"aps":{"alert":{"body":"a \u003cb\u003e","title":"t"}},"data":{"n":5},"url":"https://x.example"}`
	slackBody := `{"text":"*t*\na \u0026lt;b\u0026gt;\nhttps://x.example"}`
	gone := func(to string) string { return `{"gone":"` + to + `"}` }
	for _, test := range []struct {
		route, to, sent string
		far             answerOf
		status          int
		body            string
	}{
		{"fcm", device, fcmBody, answerOf{status: 200, body: `{"name":"projects/cucina/messages/1"}`}, 200, `{"id":"projects/cucina/messages/1"}`},
		{"fcm", device, fcmBody, fcmError(404, "NOT_FOUND", "UNREGISTERED"), 410, gone(device)},
		{"fcm", device, fcmBody, fcmError(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT"), 422, "INVALID_ARGUMENT"},
		{"fcm", device, fcmBody, fcmError(404, "NOT_FOUND", ""), 422, "NOT_FOUND"},
		{"fcm", device, fcmBody, fcmError(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED"), 429, "QUOTA_EXCEEDED"},
		{"fcm", device, fcmBody, fcmError(403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH"), 403, "SENDER_ID_MISMATCH"},
		{"fcm", device, fcmBody, answerOf{status: 503, body: "<html>", header: []string{"Retry-After", "30"}}, 503, "error"},
		{"fcm", device, fcmBody, fcmError(500, "INTERNAL", "INTERNAL"), 502, "INTERNAL"},
		{"apns", device, apnsBody, answerOf{status: 200, header: []string{"apns-id", "EC1BF194"}}, 200, `{"id":"EC1BF194"}`},
		{"apns", device, apnsBody, answerOf{status: 410, body: `{"reason":"Unregistered","timestamp":1454948015990}`}, 410, gone(device)},
		{"apns", device, apnsBody, answerOf{status: 400, body: `{"reason":"BadDeviceToken"}`}, 410, gone(device)},
		{"apns", device, apnsBody, answerOf{status: 403, body: `{"reason":"ExpiredProviderToken"}`}, 403, "ExpiredProviderToken"},
		{"apns", device, apnsBody, answerOf{status: 429, body: `{"reason":"TooManyRequests"}`}, 429, "TooManyRequests"},
		{"slack", hook, slackBody, answerOf{status: 200, body: "ok"}, 200, `{"id":"ntf_1"}`},
		{"slack", hook, slackBody, answerOf{status: 404, body: "no_service"}, 410, gone(hook)},
		{"slack", hook, slackBody, answerOf{status: 400, body: "invalid_payload"}, 422, "invalid_payload"},
		{"slack", hook, slackBody, answerOf{status: 429, body: "rate_limited", header: []string{"Retry-After", "30"}}, 429, "rate_limited"},
	} {
		f.mu.Lock()
		f.next, f.body = test.far, ""
		f.mu.Unlock()
		message := `{"to":"` + test.to + `","title":"t","text":"a <b>","url":"https://x.example","data":{"n":5},"id":"ntf_1"}`
		status, body, header := call(t, served, test.route, message, "sesame-adapter")
		if status != test.status || !strings.Contains(body, test.body) || f.body != test.sent || len(test.far.header) > 1 && test.far.header[0] == "Retry-After" &&
			header.Get("Retry-After") != "30" {
			t.Errorf("%s, %d %s: %d %s %v, and it got %s", test.route, test.far.status, test.far.body, status, body, header, f.body)
		}
	}
	check.Equal(t, f.tokens, 1, "access tokens")
	check.That(t, !strings.Contains(logged.String(), "sesame") && strings.Contains(logged.String(), `channel=fcm id=ntf_1 error="503 "`),
		"%s", logged.String())
}

// Without the token, or for an address that is none of Slack, nothing is called.
func TestWhatIsNotSent(t *testing.T) {
	t.Parallel()
	f, served := newFar(t, io.Discard)
	for _, test := range []struct {
		route, body, token string
		want               int
	}{
		{"slack", `{"to":"` + f.srv.URL + `/services/T0/B0/sesame","id":"ntf_1"}`, "", 401},
		{"slack", `{"to":"http://127.0.0.1/","id":"ntf_1"}`, "sesame-adapter", 422},
		{"fcm", `{"id":"ntf_1"}`, "sesame-adapter", 422},
		{"apns", `[]`, "sesame-adapter", 422},
		{"pigeon", `{}`, "sesame-adapter", 404},
	} {
		status, _, _ := call(t, served, test.route, test.body, test.token)
		check.Equal(t, status, test.want, test.route+test.body)
	}
	check.Equal(t, f.body, "", "remote services got")
	f.srv.CloseClientConnections()
	f.srv.Close()
	status, body, _ := call(t, served, "slack", `{"to":"`+f.srv.URL+`/services/x","id":"ntf_1"}`, "sesame-adapter")
	check.That(t, status == http.StatusBadGateway && !strings.Contains(body, "services"), "%d %s", status, body)
}

func TestConfigurationIsChecked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sesame")
	check.OK(t, os.WriteFile(file, []byte("sesame-secret"), 0o600))
	_, err := routes(t.Context(), environment{"FCM_CREDENTIALS": file, "APNS_KEY": file}.get, &adapter{})
	check.ErrorContains(t, err, "ADAPTER_TOKEN", "FCM_CREDENTIALS", "APNS_KEY")
	check.That(t, !strings.Contains(err.Error(), "sesame-secret"), "%v", err)
}

func call(t *testing.T, served *httptest.Server, route, body, token string) (status int, said string, header http.Header) {
	t.Helper()
	request := check.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, served.URL+"/"+route, strings.NewReader(body)))(t)
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := served.Client().Do(request)
	check.OK(t, err)
	defer response.Body.Close()
	data := check.Must(io.ReadAll(response.Body))(t)
	return response.StatusCode, strings.TrimSpace(string(data)), response.Header
}
