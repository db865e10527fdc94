package notifier

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/notifier/channel/email"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush/webpushtest"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// answer is what a provider does with a call.
type answer string

const (
	accepted     answer = "accepted"
	unavailable  answer = "unavailable, with a time to come back"
	rateLimited  answer = "too many calls"
	failsBefore  answer = "an error, and the message is not taken"
	failsAfter   answer = "an error, and the message is taken"
	disconnected answer = "taken, and the connection breaks"
	hangs        answer = "no answer"
	rejected     answer = "rejected for good"
	gone         answer = "the address is gone"
)

// took reports whether the provider has the message afterwards.
func (a answer) took() bool { return a == accepted || a == failsAfter || a == disconnected }

// unclear reports whether the caller cannot know whether the provider has the message.
func (a answer) unclear(channel string) bool {
	return a == failsAfter || a == disconnected || a == hangs || a == failsBefore && channel != email.Name
}

// providers are a mail server, the servers of users, and a push service. They check the calls, and write their effects into the log.
type providers struct {
	*testing.T

	browser *webpushtest.Browser
	hooks   *webhook.Webhook // has the secrets
	http    *httptest.Server
	log     *crash.Log
	mail    string
	pushKey string
	public  string // of pushKey
	secret  string // of webhooks
	seed    uint64

	mu    sync.Mutex
	calls map[string][]answer // by key of the notification
	logs  map[string]*crash.Log
	wrong []string // calls that belong to no notification
}

func newProviders(t *testing.T, log *crash.Log, seed uint64) *providers {
	t.Helper()
	p := &providers{
		T: t, browser: check.Must(webpushtest.New())(t), calls: map[string][]answer{}, log: log, logs: map[string]*crash.Log{}, seed: seed,
		secret: "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
	}
	var err error
	p.pushKey, p.public, err = webpush.GenerateKey()
	check.OK(t, err)
	p.hooks = check.Must(webhook.New(webhook.Config{Secrets: []string{p.secret}}))(t)
	t.Cleanup(p.hooks.Close)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hook/{kind}/{user}/{address}", p.hook)
	mux.HandleFunc("POST /push/{kind}/{user}/{address}", p.push)
	p.http = httptest.NewUnstartedServer(mux)
	p.http.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	p.http.Start()
	t.Cleanup(p.http.Close)
	p.mail = mailServer(t, p.takeMail)
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, l := range p.logs {
			check.OK(t, l.Close())
		}
	})
	return p
}

// wrongf notes what is wrong with a call.
func (p *providers) wrongf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
}

// called notes a call by a process, and returns how to answer it.
func (p *providers) called(n contracts.Notification, id, process string) answer {
	if addresses(n.UserID, n.Channel) == nil {
		n.Address = ""
	}
	key, err := keys.Of(&n)
	if err != nil || deliveries.MessageID(key) != id {
		p.wrongf("%q has the id %q: %v", key, id, err)
		return rejected
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.answer(n.Channel, n.UserID, key, len(p.calls[key]))
	p.calls[key] = append(p.calls[key], a)
	if a.took() {
		if p.logs[process] == nil {
			p.logs[process] = check.Must(crash.OpenLog(p.log.Path(), process))(p)
		}
		check.OK(p, p.logs[process].Write(crash.Effect, id))
	}
	return a
}

// answer is the answer to the n-th call for a notification: mostly accepted, and always in the end.
func (p *providers) answer(channel, user, key string, n int) answer {
	if channel == webpush.Name && traitOf(user) == goneBrowser {
		return gone
	}
	dice := func(n int) uint64 {
		sum := fnv.New64a()
		sum.Write(binary.LittleEndian.AppendUint64(nil, p.seed))
		sum.Write(fmt.Append(nil, key, n))
		mixed := sum.Sum64()
		mixed ^= mixed >> 33
		mixed *= 0xff51afd7ed558ccd
		return (mixed >> 20) % 1000
	}
	if dice(-1) < 4 {
		return rejected
	}
	if n > 2 {
		return accepted
	}
	switch d := dice(n); {
	case d < 12:
		return unavailable
	case d < 20:
		return rateLimited
	case d < 26:
		return failsBefore
	case d < 32:
		return failsAfter
	case d < 38:
		return disconnected
	case d < 40 && n == 0:
		return hangs
	}
	return accepted
}

// hook is the server of a user, who checks the signature. The category is the process, see [named].
func (p *providers) hook(w http.ResponseWriter, r *http.Request) {
	n := notificationAt(r, webhook.Name)
	body, err := io.ReadAll(r.Body)
	if err != nil { // its caller died in the middle of it
		return
	}
	known := contracts.Endpoint{}
	if n.Address != contracts.MainEndpoint {
		known.Generation = generation
	}
	checker, err := standardwebhooks.NewWebhook(p.hooks.Secrets(n.RecipientType, n.UserID, n.Address, known)[0])
	if err == nil {
		err = checker.Verify(body, r.Header)
	}
	var got struct {
		Data struct {
			Category string                  `json:"category"`
			EventID  string                  `json:"event_id"`
			Kind     contracts.RecipientType `json:"recipient_type"`
			UserID   string                  `json:"user_id"`
		} `json:"data"`
	}
	if err == nil {
		err = json.Unmarshal(body, &got)
	}
	if err != nil || got.Data.Kind != n.RecipientType || got.Data.UserID != n.UserID {
		p.wrongf("webhook to %s: %s: %v", r.URL.Path, body, err)
		return
	}
	n.EventID = got.Data.EventID
	respond(w, r, p.called(n, r.Header.Get("Webhook-Id"), got.Data.Category))
}

// notificationAt is the notification that a request is about, as far as its path says.
func notificationAt(r *http.Request, channel string) contracts.Notification {
	return contracts.Notification{
		Address: r.PathValue("address"), Channel: channel, RecipientType: contracts.RecipientType(r.PathValue("kind")), UserID: r.PathValue("user"),
	}
}

// push is the push service, and the browser behind it. The text is the process.
func (p *providers) push(w http.ResponseWriter, r *http.Request) {
	n := notificationAt(r, webpush.Name)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var got struct {
		ID      string `json:"id"`
		Body    string `json:"body"`
		EventID string `json:"event_id"`
	}
	plain, err := p.browser.Open(body)
	if err == nil {
		err = json.Unmarshal(plain, &got)
	}
	if err != nil || r.Header.Get("Topic") == "" || !strings.HasSuffix(r.Header.Get("Authorization"), ", k="+p.public) {
		p.wrongf("push to %s: %v, %v", r.URL.Path, r.Header, err)
		return
	}
	n.EventID = got.EventID
	respond(w, r, p.called(n, got.ID, got.Body))
}

func respond(w http.ResponseWriter, r *http.Request, a answer) {
	switch a {
	case accepted:
		w.WriteHeader(http.StatusCreated)
	case unavailable:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	case rateLimited:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case failsBefore, failsAfter:
		w.WriteHeader(http.StatusInternalServerError)
	case disconnected:
		panic(http.ErrAbortHandler)
	case hangs:
		<-r.Context().Done()
	case rejected:
		w.WriteHeader(http.StatusUnprocessableEntity)
	case gone:
		w.WriteHeader(http.StatusGone)
	}
}

// takeMail takes a mail, whose subject is the event and whose text is the process.
func (p *providers) takeMail(conn net.Conn, to string, raw []byte) error {
	msg, err := mail.ReadMessage(strings.NewReader(string(raw)))
	if err != nil {
		p.wrongf("mail to %s: %q: %v", to, raw, err)
		return err
	}
	text := check.Must(io.ReadAll(msg.Body))(p)
	local, _, _ := strings.Cut(to, "@")
	user, kind, _ := strings.Cut(local, ".")
	id := strings.TrimSuffix(strings.TrimPrefix(msg.Header.Get("Message-Id"), "<"), "@example.com>")
	switch p.called(contracts.Notification{
		Channel: email.Name, EventID: msg.Header.Get("Subject"), RecipientType: contracts.RecipientType(kind), UserID: user,
	}, id, strings.TrimSpace(string(text))) {
	case accepted:
	case unavailable:
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "come back later"}
	case rateLimited:
		return &smtp.SMTPError{Code: 450, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "too many"}
	case failsBefore:
		return &smtp.SMTPError{Code: 421, EnhancedCode: smtp.EnhancedCode{4, 3, 2}, Message: "shutting down"}
	case failsAfter, disconnected:
		conn.Close()
	case hangs:
		io.Copy(io.Discard, conn) //nolint:errcheck // until its caller gives up
		conn.Close()
	case rejected, gone:
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "no"}
	}
	return nil
}

// mailServer starts a mail server that calls take for each mail, and returns its address.
func mailServer(t *testing.T, take func(conn net.Conn, to string, raw []byte) error) (address string) {
	t.Helper()
	listener := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	srv := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return &mailSession{conn: c.Conn(), take: take}, nil }))
	srv.Domain, srv.EnableSMTPUTF8, srv.ErrorLog = "localhost", true, slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	natstest.Background(t, func(context.Context) error {
		srv.Serve(listener) //nolint:errcheck // it is closed
		return nil
	})
	t.Cleanup(func() {
		listener.Close() // Serve may not have seen it yet
		srv.Close()
	})
	return listener.Addr().String()
}

type mailSession struct {
	conn net.Conn
	take func(conn net.Conn, to string, raw []byte) error
	to   string
}

func (*mailSession) Mail(string, *smtp.MailOptions) error { return nil }

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	return nil
}

func (*mailSession) Reset()        {}
func (*mailSession) Logout() error { return nil }

func (s *mailSession) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil { // its caller died in the middle of it
		return err
	}
	return s.take(s.conn, s.to, raw)
}
