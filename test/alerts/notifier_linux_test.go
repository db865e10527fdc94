package alerts

import (
	"context"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// post is the task of a mail server, at an address.
type post struct {
	Address string
	Refuses bool // all mails
}

// mailServer takes mails, and says where.
var mailServer = crash.Role[post]{Name: "mail server", Run: func(ctx context.Context, task post) error {
	l, err := net.Listen("tcp", task.Address)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr()) //nolint:forbidigo // to the test
	context.AfterFunc(ctx, func() { l.Close() })
	for {
		conn, err := l.Accept()
		if err != nil {
			return nil // it is told to end
		}
		go task.serve(textproto.NewConn(conn))
	}
}}

// serve takes mails on a connection, until its end.
func (task post) serve(c *textproto.Conn) {
	defer c.Close()
	answer := "220 localhost"
	for c.PrintfLine("%s", answer) == nil {
		line, err := c.ReadLine()
		if err != nil {
			return
		}
		answer = "250 OK"
		switch {
		case task.Refuses && strings.HasPrefix(line, "RCPT"):
			answer = "554 5.7.1 the domain of the sender is blocked"
		case line == "DATA":
			if c.PrintfLine("354 go on") != nil || check.Err(c.ReadDotBytes()) != nil {
				return
			}
		}
	}
}

const notifierRules = `version: 1
events:
  HOOK: {CUSTOMER: {channels: [webhook]}}
  MAIL: {CUSTOMER: {channels: [email], template: news}}
`

// notified is a notifier with a server and a mail server of its own.
type notified struct {
	*program

	events int
	mail   *crash.Process
	nats   *crash.Server
	toMail *crash.Network
	where  string // the mail server
}

// notifier starts a notifier.
func (s *site) notifier(folder string) *notified {
	s.Helper()
	n := &notified{mail: mailServer.Start(s, post{Address: "127.0.0.1:0"}), nats: crash.StartServer(s)}
	s.apply(n.nats.URL)
	n.where = n.mail.Line()
	n.toMail = crash.NewNetwork(s, n.where)
	n.program = s.start("notifier", "NATS_URL="+n.nats.URL, "NOTIFIER_LISTEN=ADDRESS",
		"NOTIFIER_EMAIL_SERVER="+n.toMail.URLs, "NOTIFIER_EMAIL_FROM=news@example.com", "NOTIFIER_EMAIL_SECURITY=plain",
		"NOTIFIER_RULES="+folder+"/rules.yaml", "NOTIFIER_TEMPLATES="+folder+"/templates", "NOTIFIER_ROOT_CAS="+folder+"/roots.pem",
		"NOTIFIER_USER_NETWORKS=127.0.0.0/8", "NOTIFIER_WEBHOOK_SECRETS=whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")
	return n
}

// event is one about which users are told at addresses.
func (n *notified) event(kind, address string, users int) string {
	n.events++
	recipients := make([]string, users)
	for i := range users {
		recipients[i] = fmt.Sprintf(`{"user_id":"u%d","recipient_type":"CUSTOMER","addresses":{%s}}`, i, fmt.Sprintf(address, i))
	}
	return fmt.Sprintf(`{"event_id":"e%d","event_type":%q,"aggregate_type":"RESTAURANT","recipients":[%s]}`,
		n.events, kind, strings.Join(recipients, ","))
}

// startMail starts the mail server again.
func (s *site) startMail(n *notified, refuses bool) {
	s.Helper()
	n.mail.Kill()
	n.mail = mailServer.Start(s, post{n.where, refuses})
	n.mail.Line()
}

// notifierFaults are those of mail servers, of the servers of users, and of rules.
func notifierFaults(s *site) {
	var broken atomic.Bool
	hooks := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	s.Cleanup(hooks.Close)
	folder := s.TempDir()
	write := func(name, text string) {
		s.Helper()
		check.OK(s, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700))
		check.OK(s, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	write("rules.yaml", notifierRules)
	write("templates/news/default.subject", "News")
	write("templates/news/default.txt", "There are news.")
	write("roots.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hooks.Certificate().Raw})))
	killed, frozen, cut := s.notifier(folder), s.notifier(folder), s.notifier(folder)
	s.watch(map[string][]*program{"notifier": {killed.program}, "frozen": {frozen.program}, "cut": {cut.program}})

	const mail = `"email":"u%d@example.com"`
	publish := func(n *notified, event string) { check.Same(s, "2xx", s.post(n.address+"/v1/events", event)/100, 2) }
	s.meanwhile = func() {
		publish(killed, killed.event("HOOK", `"webhook":"`+hooks.URL+`/u%d"`, 12))
		for _, n := range []*notified{killed, frozen, cut} {
			publish(n, n.event("MAIL", mail, 3))
		}
	}
	s.suffer(fault{"mail servers are killed, frozen and cut off, rules have a mistake, the servers of users fail", func() {
		broken.Store(true)
		killed.mail.Kill()
		frozen.mail.Pause()
		cut.toMail.Cut(crash.ToServer, crash.ToClient)
		write("rules.yaml", "version: 2\n")
	}, []string{"FarSideFails of notifier", "FarSideFails of frozen", "FarSideFails of cut", "RulesNotInForce", "EndpointsFail"}, func() {
		broken.Store(false)
		s.startMail(killed, false)
		frozen.mail.Continue()
		cut.toMail.Heal()
		write("rules.yaml", notifierRules)
	}})
	s.meanwhile = func() {
		publish(killed, killed.event("MAIL", mail, 3))
		go s.post(cut.address+"/v1/events", cut.event("MAIL", mail, 3)) // which takes 15 seconds
	}
	s.suffer(fault{"a mail server refuses all mails, and the NATS server of another notifier is killed", func() {
		s.startMail(killed, true)
		cut.nats.Kill()
	}, []string{"RowsFail of notifier", "NATSUnreachable of cut", "RequestsFail of cut"}, func() {
		refused := fmt.Sprint("e", killed.events-10)
		s.startMail(killed, false)
		check.Says(s, s.expediter("notifications", "replay", "--server", killed.nats.URL, "--event", refused), "3 rows")
		check.OK(s, cut.nats.Start(s.Context()))
		s.meanwhile = func() {}
	}})
}
