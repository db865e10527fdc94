package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// A command that its user may not carry out says at once which permission is missing, however long it may wait for an answer.
func TestEveryUserIsToldWhatIsMissing(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen, c.Users = true, users.Public })
	nc, own := natstest.Connect(t, srv, users.As("admin"))
	for account, service := range map[string]string{"ENRICHER": "enricher", "IMPORTER": "importer", "NOTIFIER": "notifier"} {
		assets := contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30, Services: []string{service}})
		check.OK(t, check.Err(provision.Apply(t.Context(), natstest.InAccount(t, nc, account), assets, provision.Options{})))
	}
	lock := contracts.Assets(contracts.AssetOptions{Services: []string{contracts.ServiceLock}})
	check.OK(t, check.Err(provision.Apply(t.Context(), own, lock, provision.Options{})))
	for _, c := range []struct{ user, command, missing string }{ // "" for a command that works
		{"admin", "jobs list --account NOTIFIER --stream EVENTS", ""},
		{"console", "jobs list --account NOTIFIER --stream EVENTS", ""},
		{"console", "jobs streams --account IMPORTER", ""},
		{"console", "dead list --account IMPORTER", ""},
		{"console", "limits --account ENRICHER", ""},
		{"console", "audit", ""},
		{"console", "locks list", ""},
		{"console", "apply --account ENRICHER --services enricher --dry-run", ""},
		{"console", "apply --account ENRICHER --services enricher", "$JS.ENRICHER.API.STREAM.UPDATE."},
		{"console", "restored --account ENRICHER", "$JS.ENRICHER.API."},
		{"publisher", "jobs list --stream EVENTS", "$JS.API.STREAM.INFO.EVENTS"},
		{"publisher", "dead list", "$JS.API.STREAM.INFO.DEAD"},
		{"publisher", "audit", "$JS.API.STREAM.INFO.AUDIT"},
		{"publisher", "inbox carla", "$JS.API."},
		{"publisher", "locks list", "$JS.API.STREAM.INFO.KV_locks"},
		{"admin", "lock nightly -- true", ""},
		{"publisher", "lock nightly -- true", "$JS.API.STREAM.INFO.KV_locks"},
		{"importer", "lock nightly -- true", "_INBOX"},
		{"sys", "jobs list --stream EVENTS", "JetStream not enabled for account"},
		{"importer", "dead list", "_INBOX"},
		{"importer", "locks list", "_INBOX"},
	} {
		t.Run(c.user+" "+c.command, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			env := map[string]string{"NATS_URL": srv.URL(), "NATS_NKEY": users.SeedFile(t, c.user)}
			var out bytes.Buffer
			code := Run(ctx, Config{Getenv: func(name string) string { return env[name] }, Stderr: &out, Stdout: &out}, append([]string{"--timeout=1h"}, strings.Fields(c.command)...))
			lock := c.missing != "" && strings.HasPrefix(c.command, "lock ") && code == exitLockNotOpen
			check.That(t, ctx.Err() == nil && (c.missing == "" && code == ExitOK || c.missing != "" && (lock || code == ExitUnavailable) && strings.Contains(out.String(), c.missing)),
				"it ends with %d: %s", code, &out)
		})
	}
}

// A user who may read locks and not take them is told at once, and so is one for whom nothing answers to a read of the audit.
func TestWhatIsMissingIsToldInTheMiddle(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true },
		natstest.Restrict(server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$KV.locks.>"}}}))
	_, js := natstest.Connect(t, srv)
	assets := contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30, Services: []string{contracts.ServiceLock}})
	check.OK(t, check.Err(provision.Apply(t.Context(), js, assets, provision.Options{})))
	check.OK(t, audit.New(audit.Config{JetStream: js, Logger: slog.New(slog.DiscardHandler), Source: "cli"}).Do(t.Context(), "x", "y",
		func(context.Context) (int, error) { return 1, nil }))
	records := check.Must(js.Stream(t.Context(), contracts.StreamAudit))(t).CachedInfo().Config
	records.AllowDirect = false
	check.OK(t, check.Err(js.UpdateStream(t.Context(), records)))
	for command, want := range map[string]string{
		"lock nightly -- true": "the user may not publish to $KV.locks.", "lock nightly -w 0s -- true": "the user may not publish to $KV.locks.",
		"audit": "nothing answers to $JS.API.DIRECT.GET.AUDIT",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var out bytes.Buffer
		code := Run(ctx, Config{Getenv: func(string) string { return "" }, Stderr: &out, Stdout: &out},
			append([]string{"--timeout=1h", "--server", strings.Replace(srv.URL(), "//", "//restricted:x@", 1)}, strings.Fields(command)...))
		check.That(t, ctx.Err() == nil && (code == ExitUnavailable || code == exitLockNotOpen) && strings.Contains(out.String(), want),
			"%s ends with %d: %s", command, code, &out)
		cancel()
	}
}

// An administrator makes the streams of each account, replays dead letters of one, publishes an event and looks at inboxes.
func TestCommandsActOnAnAccount(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen, c.Users = true, users.Public })
	env := map[string]string{"NATS_URL": srv.URL(), "NATS_NKEY": users.SeedFile(t, "admin")}
	run := func(want int, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		got := Run(t.Context(), Config{
			Getenv: func(name string) string { return env[name] }, Stderr: &out, Stdin: strings.NewReader(eventOfAccount), Stdout: &out,
		}, args)
		check.Require(t, got == want, "expediter %v exits with %d, want %d:\n%s", args, got, want, &out)
		return out.String()
	}
	for account, service := range map[string]string{"ENRICHER": "enricher", "IMPORTER": "importer", "NOTIFIER": "notifier"} {
		run(0, "apply", "--account", account, "--services", service)
	}
	run(0, "apply", "--services", "lock")
	run(5, "apply", "--account", "ENRICHER") // which has no room for the others
	out := run(5, "apply", "--account", "ENRICHR", "--timeout", "100ms")
	check.Contains(t, out, "--account (or NATS_ACCOUNT)", "nothing answers to $JS.ENRICHR.API.STREAM.INFO.")
	nc, own := natstest.Connect(t, srv, users.As("admin"))
	enricher := natstest.InAccount(t, nc, "ENRICHER")
	check.OK(t, check.Err(worker.PublishDeadLetter(t.Context(), enricher, "dead", worker.DeadLetter{
		Attempts: 5, Consumer: "enricher", DeadAt: time.Now(), Error: "status 503", ID: "a", MaxAttempts: 5, Payload: []byte("{}"),
		Reason: worker.ReasonExhausted, Sequence: 1, Signature: "status #", Stream: contracts.StreamEnrichJobs, Subject: "jobs.enrich.wolt.a",
	})))
	check.Contains(t, run(3, "dead", "list"), "--account or NATS_ACCOUNT names")
	check.Contains(t, run(5, "inbox", "carla"), "--account or NATS_ACCOUNT names")
	check.Contains(t, run(0, "dead", "list", "--account", "ENRICHER"), "status 503")
	out = run(0, "dead", "list", "--account", "IMPORTER")
	check.That(t, !strings.Contains(out, "status 503"), "dead letters of another account:\n%s", out)
	env["NATS_ACCOUNT"] = "ENRICHER"
	run(0, "dead", "replay", "1", "--yes")
	jobs, err := enricher.Stream(t.Context(), contracts.StreamEnrichJobs)
	check.That(t, err == nil && jobs.CachedInfo().State.Msgs == 1, "the job is not queued again: %v", err)
	out = run(0, "dead", "list")
	check.That(t, !strings.Contains(out, "status 503"), "the dead letter stays:\n%s", out)
	run(0, "schedules", "ENRICH_JOBS")
	check.Contains(t, run(0, "jobs", "list", "--stream", "ENRICH_JOBS"), "jobs.enrich.wolt.a")
	run(0, "jobs", "cancel", "jobs.enrich.wolt.a", "--stream", "ENRICH_JOBS", "--yes")
	run(3, "jobs", "show", "jobs.enrich.wolt.a", "--stream", "ENRICH_JOBS")
	run(0, "jobs", "pause", "jobs.enrich.>", "--stream", "ENRICH_JOBS")
	run(0, "jobs", "resume", "jobs.enrich.>", "--stream", "ENRICH_JOBS")
	run(0, "emit", "--account", "NOTIFIER", "--via", "stream", "-")
	run(0, "inbox", "ada", "--account", "NOTIFIER")
	run(0, "forget", "ada", "--type", "GUEST", "--yes", "--account", "NOTIFIER")
	check.Equal(t, run(0, "export", "ada", "--account", "NOTIFIER"), "", "of a user who was erased")
	check.Contains(t, run(0, "audit"), "OPERATOR/", "forget")
	check.Contains(t, run(2, "inbox", "ada", "--account", "A.B"), "--account")
	check.ErrorIs(t, check.Err(own.Stream(t.Context(), "KV_"+contracts.BucketLocks)), nil)
	check.That(t, check.Err(own.Stream(t.Context(), contracts.StreamEvents)) != nil, "the events are in the operators' account as well")
}

const eventOfAccount = `{"event_id":"e1","event_type":"HELLO","aggregate_type":"GUEST","aggregate_id":"ada","user_id":"ada","payload":{"n":1}}`

// Every command that asks a service sends the caller's key as it stands in the file or the variable, the file first.
func TestKeyOfTheCaller(t *testing.T) {
	t.Parallel()
	const inFile, inVariable = "ek_of-the-file", "ek_of-the-variable"
	for name, c := range map[string]struct{ file, variable, want, refused string }{
		"none":                 {},
		"variable":             {variable: inVariable + "\n", want: inVariable},
		"file":                 {file: inFile + "\r\n", want: inFile},
		"file before variable": {file: inFile, variable: inVariable, want: inFile},
		"empty file":           {file: "\n", refused: "--key-file"},
		"two lines":            {file: inFile + "\n" + inFile, refused: "--key-file"},
		"long file":            {file: inFile + strings.Repeat(" ", maxKey), refused: "--key-file"},
		"longest key":          {file: strings.Repeat("k", maxKey), want: strings.Repeat("k", maxKey)},
		"variable with spaces": {variable: inVariable + " " + inVariable, refused: "EXPEDITER_KEY"},
		"variable not ASCII":   {variable: inVariable + "é", refused: "EXPEDITER_KEY"},
	} {
		path := ""
		if c.file != "" {
			path = filepath.Join(t.TempDir(), "key")
			check.OK(t, os.WriteFile(path, []byte(c.file), 0o600))
		}
		key, err := (&globals{config: Config{Getenv: func(string) string { return c.variable }}}).callerKey(path)
		check.Equal(t, key, c.want, name)
		if c.refused == "" {
			check.ErrorIs(t, err, nil, name)
		} else {
			check.ErrorContains(t, err, c.refused)
			check.That(t, !strings.Contains(err.Error(), "ek_"), "%s: the error has the key: %v", name, err)
		}
	}
	for _, args := range [][]string{{"import", "status", "job-1"}, {"enrich", "-"}} {
		got := make(chan string, 100)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			got <- r.Header.Get("Authorization")
			http.Error(w, "no", http.StatusForbidden)
		}))
		t.Cleanup(srv.Close)
		code := Run(t.Context(), Config{
			Getenv: func(name string) string { return map[string]string{"EXPEDITER_KEY": inVariable}[name] }, Stderr: io.Discard,
			Stdin: strings.NewReader(`{"placeId":"p1","name":"Kiosk"}`), Stdout: io.Discard,
		}, append(args, "--url", srv.URL))
		check.That(t, code != ExitOK && len(got) > 0, "exits with %d after %d requests", code, len(got))
		check.Equal(t, <-got, "Bearer "+inVariable)
	}
}

// The console takes tokens where the services' settings of OpenID Connect say so, by flag or variable. Mistakes in them are named.
func TestConsoleTakesTokens(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"want its https address":     {"--oidc-issuer", "http://id.example.com", "--oidc-audience", "x"},
		"goes with --oidc-audience":  {"--oidc-issuer", "https://id.example.com"},
		"--tls-cert goes with":       {"--tls-cert", "cert.pem"},
		"without --keys and --oidc-": {"--address", ":8010"},
	} {
		var out bytes.Buffer
		check.Equal(t, Run(t.Context(), Config{Stderr: &out, Stdout: &out}, append([]string{"console"}, args...)), ExitUsage, "code")
		check.Contains(t, out.String(), want)
	}
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	id := newIssuer(t)
	env := map[string]string{"CONSOLE_OIDC_ISSUER": id.URL, "CONSOLE_OIDC_AUDIENCE": "expediter", "NATS_URL": srv.URL()}
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	ended := make(chan int)
	go func() {
		ended <- Run(ctx, Config{Getenv: func(name string) string { return env[name] }, Stderr: writer, Stdout: writer},
			[]string{"console", "--address", "127.0.0.1:0"})
		writer.Close()
	}()
	line := make([]byte, 200)
	n := check.Must(reader.Read(line))(t)
	go io.Copy(io.Discard, reader) //nolint:errcheck // the log
	_, url, _ := strings.Cut(strings.TrimSpace(string(line[:n])), "Console: ")
	for path, want := range map[string]int{"": ExitUnavailable, "livez": ExitOK, "readyz": ExitOK} { // a page needs a token
		check.Equal(t, Run(t.Context(), Config{Stderr: io.Discard}, []string{"ready", url + path}), want, "code of ready /"+path)
	}
	r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
	answer := check.Must((&http.Transport{DisableKeepAlives: true}).RoundTrip(r))(t)
	check.OK(t, answer.Body.Close())
	check.Equal(t, answer.StatusCode, http.StatusUnauthorized, "status of a caller without a token")
	const viewer = "read all-users"
	for token, want := range map[string]int{
		id.token(t, "expediter", viewer): http.StatusSeeOther, id.token(t, "shop", viewer): http.StatusUnauthorized,
		id.token(t, "expediter", "read"): http.StatusForbidden, newIssuer(t).token(t, "expediter", viewer): http.StatusUnauthorized,
	} {
		r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, url+"sign-in", strings.NewReader("key="+token)))(t)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		status, cookies, _ := send(t, r)
		check.Require(t, status == want, "a token is answered %d, want %d: %s", status, want, token)
		if want != http.StatusSeeOther {
			continue
		}
		r = check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
		r.AddCookie(cookies[0])
		_, _, page := send(t, r)
		check.Contains(t, page, "Overview", "viewer", "ada", "Sign out")
	}
	cancel()
	<-ended
}

func send(t *testing.T, r *http.Request) (status int, cookies []*http.Cookie, page string) {
	t.Helper()
	answer := check.Must((&http.Transport{DisableKeepAlives: true}).RoundTrip(r))(t)
	defer answer.Body.Close()
	body := check.Must(io.ReadAll(answer.Body))(t)
	return answer.StatusCode, answer.Cookies(), string(body)
}

// issuer signs tokens of Ada's, and answers with its key.
type issuer struct {
	*httptest.Server

	signer jose.Signer
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	check.OK(t, err)
	key := jose.SigningKey{Algorithm: jose.EdDSA, Key: private}
	i := &issuer{signer: check.Must(jose.NewSigner(key, (&jose.SignerOptions{}).WithHeader("kid", "1")))(t)}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		check.OK(t, json.NewEncoder(w).Encode(map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "keys": []jose.JSONWebKey{{Key: public, KeyID: "1"}},
		}))
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) token(t *testing.T, audience, scope string) string {
	t.Helper()
	return check.Must(jwt.Signed(i.signer).Claims(map[string]any{
		"iss": i.URL, "aud": audience, "client_id": "app", "sub": "ada", "scope": scope, "exp": time.Now().Add(time.Hour).Unix(),
	}).Serialize())(t)
}
