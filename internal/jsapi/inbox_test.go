package jsapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

const patience = time.Minute

// request sends one and returns its answer.
func request(ctx context.Context, i *Inbox, within time.Duration) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		m := nats.NewMsg("subject")
		m.Header.Set("Key", "value")
		reply, err := i.Request(ctx, m, within)
		done <- answer{reply, err}
	}()
	return done
}

// pass lets time pass in a bubble, with all that happens in it.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // costs no real time in a bubble
	synctest.Wait()
}

// underWay is how many calls there are.
func (i *Inbox) underWay() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.calls)
}

// Each gets its own reply, in whatever order they come.
func TestRepliesFindTheirCallers(t *testing.T) {
	t.Parallel()
	i, s, id := open(t, nats.CustomInboxPrefix("_MINE"))
	const n = 50
	var calls []<-chan answer
	var subjects []string
	for range n {
		calls = append(calls, request(t.Context(), i, patience))
		subjects = append(subjects, <-s.requests)
	}
	for k := n - 1; k >= 0; k-- {
		s.reply(id, subjects[k], strconv.Itoa(k))
	}
	for k, done := range calls {
		a := <-done
		check.That(t, a.err == nil && string(a.msg.Data) == strconv.Itoa(k), "call %d got %+v", k, a)
		check.That(t, strings.HasPrefix(subjects[k], "_MINE."), "reply to %s: not below the connection's prefix", subjects[k])
	}
	check.Equal(t, i.underWay(), 0, "calls are kept")
	check.ErrorIs(t, i.Close(), nil)
}

// A reply that comes twice, too late, or to nobody, is not taken for another.
func TestStrayRepliesAreNobodys(t *testing.T) {
	t.Parallel()
	i, s, id := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	gone := request(ctx, i, patience)
	late := <-s.requests
	cancel()
	a := <-gone
	check.That(t, errors.Is(a.err, context.Canceled), "got %+v", a)
	first := request(t.Context(), i, patience)
	subject := <-s.requests
	s.reply(id, late, "late")
	s.reply(id, subject+"0", "nobody's")
	s.reply(id, subject, "first")
	a = <-first
	check.That(t, a.err == nil && string(a.msg.Data) == "first", "got %+v", a)
	second := request(t.Context(), i, patience)
	next := <-s.requests
	s.reply(id, subject, "again")
	s.reply(id, next, "second")
	a = <-second
	check.That(t, a.err == nil && string(a.msg.Data) == "second", "got %+v", a)
	check.ErrorIs(t, i.Close(), nil)
}

// Whatever ends a request says so, at once, and nothing of it is left.
func TestEndsOfRequests(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		end  func(i *Inbox, s *server, id, reply string, cancel func())
		want error
	}{
		{"its context", func(_ *Inbox, _ *server, _, _ string, cancel func()) { cancel() }, context.Canceled},
		{"nobody listens", func(_ *Inbox, s *server, id, reply string, _ func()) { s.noResponders(id, reply) }, nats.ErrNoResponders},
		{"the connection is lost", func(_ *Inbox, s *server, _, _ string, _ func()) { s.conn.Close() }, nats.ErrDisconnected},
		{"the connection is closed", func(i *Inbox, _ *server, _, _ string, _ func()) { i.nc.Close() }, nats.ErrConnectionClosed},
		{"the inbox is closed", func(i *Inbox, _ *server, _, _ string, _ func()) { _ = i.Close() }, ErrClosed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			i, s, id := open(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := request(ctx, i, patience)
			tt.end(i, s, id, <-s.requests, cancel)
			a := <-done
			check.That(t, errors.Is(a.err, tt.want) && a.msg == nil, "got %+v, want %v", a, tt.want)
			check.Equal(t, i.underWay(), 0, "calls are kept")
			if !errors.Is(tt.want, ErrClosed) {
				_ = i.Close() // the connection is closed, perhaps
			}
		})
	}
}

// Nothing is kept for later: neither by the connection nor as a call.
func TestNothingIsSentWhenItCannotBe(t *testing.T) {
	t.Parallel()
	i, s, _ := open(t)
	lost := i.nc.StatusChanged(nats.RECONNECTING)
	s.conn.Close()
	<-lost
	a := <-request(t.Context(), i, patience)
	buffered, err := i.nc.Buffered()
	check.That(t, errors.Is(a.err, nats.ErrDisconnected) && err == nil && buffered == 0, "got %+v; %d bytes are kept, %v", a, buffered, err)
	i.nc.Close()
	<-i.done // nothing of it runs any more, closed or not
	if a := <-request(t.Context(), i, patience); !errors.Is(a.err, nats.ErrConnectionClosed) {
		t.Errorf("got %+v", a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a := <-request(ctx, i, patience); !errors.Is(a.err, context.Canceled) {
		t.Errorf("got %+v", a)
	}
	check.Equal(t, i.underWay(), 0, "calls are kept")
	_ = i.Close() // the connection is closed
	if a := <-request(t.Context(), i, patience); !errors.Is(a.err, ErrClosed) {
		t.Errorf("got %+v", a)
	}
}

// Each ends when its own time has passed, though one timer serves all, and whatever the order in which they came.
func TestRequestsEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, s, id := open(t)
		start := time.Now()
		type end struct {
			within, took time.Duration
			err          error
		}
		ends := make(chan end)
		bounds := []time.Duration{time.Second, 250 * time.Millisecond, 2 * time.Second, 250 * time.Millisecond, time.Nanosecond}
		for _, within := range bounds {
			go func() {
				_, err := i.Request(t.Context(), nats.NewMsg("subject"), within)
				ends <- end{within, time.Since(start), err}
			}()
			<-s.requests
		}
		answered := request(t.Context(), i, 100*time.Millisecond)
		s.reply(id, <-s.requests, "")
		if a := <-answered; a.err != nil {
			t.Error(a.err)
		}
		for range bounds {
			e := <-ends
			check.That(t, e.took == e.within && errors.Is(e.err, context.DeadlineExceeded), "%+v", e)
		}
		pass(time.Hour)
		start = time.Now()
		if a := <-request(t.Context(), i, time.Second); !errors.Is(a.err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("after a pause: %+v after %s", a, time.Since(start))
		}
		check.Equal(t, i.underWay(), 0, "calls are kept")
		check.ErrorIs(t, i.Close(), nil)
	})
}

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
			size, _ := strconv.Atoi(words[len(words)-1]) // the client's
			if _, err := io.CopyN(io.Discard, r, int64(size)+2); err != nil {
				return
			}
			s.requests <- words[2]
		}
	}
}

func (s *server) writef(format string, args ...any) {
	_, _ = fmt.Fprintf(s.conn, format, args...) // the client may be gone
}

// reply sends data to the subscription id under subject.
func (s *server) reply(id, subject, data string) {
	s.writef("MSG %s %s %d\r\n%s\r\n", subject, id, len(data), data)
}

// noResponders sends a server's answer to a request without responders.
func (s *server) noResponders(id, subject string) {
	const header = "NATS/1.0 503\r\n\r\n"
	s.writef("HMSG %s %s %d %d\r\n%s\r\n", subject, id, len(header), len(header), header)
}

// open returns an Inbox on a server, and the id of its subscription.
func open(t *testing.T, opts ...nats.Option) (i *Inbox, s *server, id string) {
	t.Helper()
	s = &server{inbox: make(chan string, 1), requests: make(chan string, 100), ended: make(chan struct{})}
	nc := check.Must(nats.Connect("", append(opts, nats.InProcessServer(s), nats.MaxReconnects(1000))...))(t)
	t.Cleanup(func() {
		nc.Close()
		<-s.ended
	})
	i = check.Must(NewInbox(nc))(t)
	return i, s, <-s.inbox
}
