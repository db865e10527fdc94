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
	"time"

	"github.com/emersion/go-smtp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel/email"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush/webpushtest"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// manner is how a provider deals with a call.
type manner string

const (
	takes    manner = "takes it, and says so"
	busy     manner = "is busy, and says for how long"
	limits   manner = "gets too many calls"
	breaks   manner = "breaks before it takes it"
	tookBad  manner = "takes it, and says that it broke"
	tookMute manner = "takes it, and hangs up"
	hangs    manner = "says nothing"
	refuses  manner = "refuses it for good"
	gone     manner = "has nobody at the address any more"
)

// took reports whether the provider has the message afterwards.
func (m manner) took() bool { return m == takes || m == tookBad || m == tookMute }

// dark reports whether its caller cannot know whether the provider has the message.
func (m manner) dark(channel string) bool {
	return m == tookBad || m == tookMute || m == hangs || m == breaks && channel != email.Name
}

// call is one message that a provider got.
type call struct {
	at  time.Time
	how manner
	id  string // Message-ID, webhook-id, or the id in the push that the browser decrypts
}

// far is the other end: a mail server, the servers of users, and a push service. It checks and counts the calls.
type far struct {
	*testing.T

	browser *webpushtest.Browser
	hooks   *webhook.Webhook // knows the secrets
	http    *httptest.Server
	mail    string
	pushKey string
	public  string                            // of pushKey
	read    func(to string, raw []byte) error // takes the place of all checks of mail; nil is none
	secret  string                            // of webhooks
	seed    uint64

	mu      sync.Mutex
	calls   map[string][]call // by key of the notification
	foreign []string          // calls that belong to no notification
	total   int
	when    []milestone
}

// milestone is something to do when the providers have been called so often.
type milestone struct {
	calls int
	pass  chan<- struct{}
}

func newFar(t *testing.T, seed uint64) *far {
	t.Helper()
	f := &far{T: t, calls: map[string][]call{}, secret: "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", seed: seed}
	var err error
	f.browser, err = webpushtest.New()
	check.OK(t, err)
	f.pushKey, f.public, err = webpush.GenerateKey()
	check.OK(t, err)
	f.hooks = check.Must(webhook.New(webhook.Config{Secrets: []string{f.secret}}))(t)
	t.Cleanup(f.hooks.Close)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hook/{kind}/{user}/{address}", f.hook)
	mux.HandleFunc("POST /push/{kind}/{user}/{address}", f.push)
	f.http = httptest.NewUnstartedServer(mux)
	f.http.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	f.http.Start()
	t.Cleanup(f.http.Close)
	listener := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	f.mail = listener.Addr().String()
	srv := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return &session{far: f, conn: c}, nil }))
	srv.Domain, srv.EnableSMTPUTF8, srv.ErrorLog = "localhost", true, f.http.Config.ErrorLog
	natstest.Background(t, func(context.Context) error {
		srv.Serve(listener) //nolint:errcheck // it is closed
		return nil
	})
	t.Cleanup(func() {
		listener.Close() // Serve may not have seen it yet
		srv.Close()
	})
	return f
}

// at has pass sent to when the providers have been called so often.
func (f *far) at(calls int, pass chan<- struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.when = append(f.when, milestone{calls, pass})
}

// strangerf notes what is wrong with a call.
func (f *far) strangerf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.foreign = append(f.foreign, fmt.Sprintf(format, args...))
}

// called notes a call, and says how it is dealt with.
func (f *far) called(row contracts.Notification, id string) manner {
	if addresses(row.UserID, row.Channel) == nil {
		row.Address = ""
	}
	key, err := keys.Of(&row)
	if err != nil || deliveries.MessageID(key) != id {
		f.strangerf("%q has the id %q: %v", key, id, err)
		return refuses
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	how := f.manner(row.Channel, row.UserID, key, len(f.calls[key]))
	f.calls[key] = append(f.calls[key], call{at: time.Now(), how: how, id: id})
	f.total++
	for len(f.when) > 0 && f.total >= f.when[0].calls {
		close(f.when[0].pass)
		f.when = f.when[1:]
	}
	return how
}

// manner is how the n-th call for a notification is dealt with: mostly well, and always well in the end.
func (f *far) manner(channel, user, key string, n int) manner {
	if channel == webpush.Name && temper(user) == goneBrowser {
		return gone
	}
	dice := func(n int) uint64 {
		sum := fnv.New64a()
		sum.Write(binary.LittleEndian.AppendUint64(nil, f.seed))
		sum.Write(fmt.Append(nil, key, n))
		mixed := sum.Sum64()
		mixed ^= mixed >> 33
		mixed *= 0xff51afd7ed558ccd
		return (mixed >> 20) % 1000
	}
	if dice(-1) < 4 {
		return refuses
	}
	if n > 2 {
		return takes
	}
	switch d := dice(n); {
	case d < 12:
		return busy
	case d < 20:
		return limits
	case d < 26:
		return breaks
	case d < 32:
		return tookBad
	case d < 38:
		return tookMute
	case d < 40 && n == 0:
		return hangs
	}
	return takes
}

// hook is the server of a user, who checks the signature.
func (f *far) hook(w http.ResponseWriter, r *http.Request) {
	row := rowAt(r, webhook.Name)
	body, err := io.ReadAll(r.Body)
	if err != nil { // its caller died in the middle of it
		return
	}
	known := contracts.Endpoint{}
	if row.Address != contracts.MainEndpoint {
		known.Generation = generation
	}
	checker, err := standardwebhooks.NewWebhook(f.hooks.Secrets(row.RecipientType, row.UserID, row.Address, known)[0])
	if err == nil {
		err = checker.Verify(body, r.Header)
	}
	var got struct {
		Data struct {
			EventID string                  `json:"event_id"`
			Kind    contracts.RecipientType `json:"recipient_type"`
			UserID  string                  `json:"user_id"`
		} `json:"data"`
	}
	if err == nil {
		err = json.Unmarshal(body, &got)
	}
	if err != nil || got.Data.Kind != row.RecipientType || got.Data.UserID != row.UserID {
		f.strangerf("webhook to %s: %s: %v", r.URL.Path, body, err)
		return
	}
	row.EventID = got.Data.EventID
	f.answer(w, r, f.called(row, r.Header.Get("Webhook-Id")))
}

// rowAt is the notification that a request is about, as far as its path says.
func rowAt(r *http.Request, channel string) contracts.Notification {
	return contracts.Notification{
		Address: r.PathValue("address"), Channel: channel, RecipientType: contracts.RecipientType(r.PathValue("kind")), UserID: r.PathValue("user"),
	}
}

// push is the push service, and the browser behind it.
func (f *far) push(w http.ResponseWriter, r *http.Request) {
	row := rowAt(r, webpush.Name)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var got struct {
		ID      string `json:"id"`
		EventID string `json:"event_id"`
	}
	plain, err := f.browser.Open(body)
	if err == nil {
		err = json.Unmarshal(plain, &got)
	}
	if err != nil || r.Header.Get("Topic") == "" || !strings.HasSuffix(r.Header.Get("Authorization"), ", k="+f.public) {
		f.strangerf("push to %s: %v, %v", r.URL.Path, r.Header, err)
		return
	}
	row.EventID = got.EventID
	f.answer(w, r, f.called(row, got.ID))
}

// answer answers a request.
func (f *far) answer(w http.ResponseWriter, r *http.Request, how manner) {
	switch how {
	case takes:
		w.WriteHeader(http.StatusCreated)
	case busy:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	case limits:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case breaks, tookBad:
		w.WriteHeader(http.StatusInternalServerError)
	case tookMute:
		panic(http.ErrAbortHandler)
	case hangs:
		<-r.Context().Done()
	case refuses:
		w.WriteHeader(http.StatusUnprocessableEntity)
	case gone:
		w.WriteHeader(http.StatusGone)
	}
}

// session is one of a client of the mail server.
type session struct {
	*far

	conn *smtp.Conn
	to   string
}

func (*session) Mail(string, *smtp.MailOptions) error { return nil }

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	return nil
}

func (*session) Reset()        {}
func (*session) Logout() error { return nil }

// Data takes a mail, whose subject is the event.
func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil { // its caller died in the middle of it
		return err
	}
	if s.read != nil {
		return s.read(s.to, raw)
	}
	msg, err := mail.ReadMessage(strings.NewReader(string(raw)))
	if err != nil {
		s.strangerf("mail to %s: %q: %v", s.to, raw, err)
		return err
	}
	local, _, _ := strings.Cut(s.to, "@")
	user, kind, _ := strings.Cut(local, ".")
	id := strings.TrimSuffix(strings.TrimPrefix(msg.Header.Get("Message-Id"), "<"), "@example.com>")
	how := s.called(contracts.Notification{
		Channel: email.Name, EventID: msg.Header.Get("Subject"), RecipientType: contracts.RecipientType(kind), UserID: user,
	}, id)
	switch how {
	case takes:
	case busy:
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "come back later"}
	case limits:
		return &smtp.SMTPError{Code: 450, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "too many"}
	case breaks, tookBad:
		if how == breaks {
			return &smtp.SMTPError{Code: 421, EnhancedCode: smtp.EnhancedCode{4, 3, 2}, Message: "shutting down"}
		}
		s.conn.Conn().Close()
	case tookMute:
		s.conn.Conn().Close()
	case hangs:
		io.Copy(io.Discard, s.conn.Conn()) //nolint:errcheck // until its caller has had enough
		s.conn.Conn().Close()
	case refuses, gone:
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 6, 0}, Message: "no"}
	}
	return nil
}
