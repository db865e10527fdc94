package inbox

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server speaks as much of the protocol as an Inbox needs, and answers requests only when it is told to.
type server struct {
	conn     net.Conn
	inbox    chan string // the id of the subscription
	requests chan string // the subjects that replies go to
	ended    chan struct{}
}

// InProcessConn implements nats.InProcessConnProvider, once.
func (s *server) InProcessConn() (net.Conn, error) {
	if s.conn != nil {
		return nil, io.ErrClosedPipe
	}
	client, conn := net.Pipe()
	s.conn = conn
	go s.serve()
	return client, nil
}

func (s *server) serve() {
	defer close(s.ended)
	defer s.conn.Close()
	s.writef("INFO {\"server_id\":\"S\",\"headers\":true,\"max_payload\":1048576,\"proto\":1}\r\n")
	r := bufio.NewReader(s.conn)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		switch words := strings.Fields(line); words[0] {
		case "PING":
			s.writef("PONG\r\n")
		case "SUB":
			s.inbox <- words[2]
		case "HPUB", "PUB":
			size, _ := strconv.Atoi(words[len(words)-1]) //nolint:errcheck // the client's
			if _, err := io.CopyN(io.Discard, r, int64(size)+2); err != nil {
				return
			}
			s.requests <- words[2]
		}
	}
}

func (s *server) writef(format string, args ...any) {
	_, _ = fmt.Fprintf(s.conn, format, args...) //nolint:errcheck // the client may be gone
}

// reply sends data to the subscription id under subject.
func (s *server) reply(id, subject, data string) {
	s.writef("MSG %s %s %d\r\n%s\r\n", subject, id, len(data), data)
}

// noResponders sends what a server says when nobody listens.
func (s *server) noResponders(id, subject string) {
	const header = "NATS/1.0 503\r\n\r\n"
	s.writef("HMSG %s %s %d %d\r\n%s\r\n", subject, id, len(header), len(header), header)
}

// open returns an Inbox on a server, and the id of its subscription.
func open(t *testing.T, opts ...nats.Option) (i *Inbox, s *server, id string) {
	t.Helper()
	s = &server{inbox: make(chan string, 1), requests: make(chan string, 100), ended: make(chan struct{})}
	nc, err := nats.Connect("", append(opts, nats.InProcessServer(s), nats.MaxReconnects(1000))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		<-s.ended
	})
	if i, err = New(nc); err != nil {
		t.Fatal(err)
	}
	return i, s, <-s.inbox
}
