package jsapi_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

const patience = time.Minute

// inbox is an Inbox with its connection, and a service that answers requests only when the test does.
type inbox struct {
	*jsapi.Inbox

	nc       *nats.Conn
	service  *nats.Conn
	requests chan *nats.Msg
}

func open(t *testing.T, srv *natsrun.Server, opts ...nats.Option) inbox {
	t.Helper()
	i := inbox{requests: make(chan *nats.Msg, 100)}
	i.nc, _ = natstest.Connect(t, srv, opts...)
	i.service, _ = natstest.Connect(t, srv)
	check.OK(t, check.Err(i.service.ChanSubscribe("subject", i.requests)))
	check.OK(t, i.service.Flush())
	i.Inbox = check.Must(jsapi.NewInbox(i.nc))(t)
	return i
}

// result is what Request returned.
type result struct {
	msg *nats.Msg
	err error
}

// request sends a request, and returns its result.
func (i inbox) request(ctx context.Context, subject string, within time.Duration) <-chan result {
	done := make(chan result, 1)
	go func() {
		msg, err := i.Request(ctx, nats.NewMsg(subject), within)
		done <- result{msg, err}
	}()
	return done
}

// Each gets its own reply, in whatever order they come.
func TestRepliesFindTheirCallers(t *testing.T) {
	t.Parallel()
	i := open(t, natstest.Server(t), nats.CustomInboxPrefix("_MINE"))
	const n = 50
	var results []<-chan result
	var requests []*nats.Msg
	for range n {
		results = append(results, i.request(t.Context(), "subject", patience))
		requests = append(requests, <-i.requests)
	}
	for k := n - 1; k >= 0; k-- {
		check.OK(t, requests[k].Respond([]byte(strconv.Itoa(k))))
	}
	for k, done := range results {
		r := <-done
		check.That(t, r.err == nil && string(r.msg.Data) == strconv.Itoa(k), "request %d got %+v", k, r)
		check.That(t, strings.HasPrefix(requests[k].Reply, "_MINE."), "reply to %s: not below the connection's prefix", requests[k].Reply)
	}
	check.Equal(t, i.UnderWay(), 0, "requests are kept")
	check.OK(t, i.Close())
}

// A reply that comes twice, too late, or to nobody, is not taken for another.
func TestStrayRepliesAreNobodys(t *testing.T) {
	t.Parallel()
	i := open(t, natstest.Server(t))
	ctx, cancel := context.WithCancel(t.Context())
	gone := i.request(ctx, "subject", patience)
	late := <-i.requests
	cancel()
	check.ErrorIs(t, (<-gone).err, context.Canceled)
	strays := []string{late.Reply, late.Reply + "0"}
	for _, want := range []string{"first", "second"} {
		done := i.request(t.Context(), "subject", patience)
		request := <-i.requests
		for _, stray := range strays {
			check.OK(t, i.service.Publish(stray, []byte("stray")))
		}
		check.OK(t, request.Respond([]byte(want)))
		r := <-done
		check.That(t, r.err == nil && string(r.msg.Data) == want, "got %+v, want %s", r, want)
		strays = []string{request.Reply} // again
	}
	check.OK(t, i.Close())
}

// Whatever ends a request says so, at once, and nothing of it is left.
func TestEndsOfRequests(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		subject string
		end     func(i inbox, p *natstest.Proxy, cancel func())
		want    error
	}{
		"its context":              {"subject", func(_ inbox, _ *natstest.Proxy, cancel func()) { cancel() }, context.Canceled},
		"nobody listens":           {"nobody", nil, nats.ErrNoResponders},
		"the connection is lost":   {"subject", func(_ inbox, p *natstest.Proxy, _ func()) { p.Cut() }, nats.ErrDisconnected},
		"the connection is closed": {"subject", func(i inbox, _ *natstest.Proxy, _ func()) { i.nc.Close() }, nats.ErrConnectionClosed},
		"the inbox is closed":      {"subject", func(i inbox, _ *natstest.Proxy, _ func()) { _ = i.Close() }, jsapi.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Server(t)
			p := natstest.NewProxy(t, srv)
			i := open(t, srv, p.Through())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := i.request(ctx, tt.subject, patience)
			if tt.end != nil {
				<-i.requests
				tt.end(i, p, cancel)
			}
			r := <-done
			check.That(t, errors.Is(r.err, tt.want) && r.msg == nil, "got %+v, want %v", r, tt.want)
			check.Equal(t, i.UnderWay(), 0, "requests are kept")
			if !errors.Is(tt.want, jsapi.ErrClosed) {
				_ = i.Close() // the connection is closed, perhaps
			}
		})
	}
}

// Nothing is kept for later: neither by the connection nor as a request.
func TestNothingIsSentWhenItCannotBe(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	p := natstest.NewProxy(t, srv)
	i := open(t, srv, p.Through())
	lost := i.nc.StatusChanged(nats.RECONNECTING)
	p.Cut()
	<-lost
	check.ErrorIs(t, (<-i.request(t.Context(), "subject", patience)).err, nats.ErrDisconnected)
	check.Equal(t, check.Must(i.nc.Buffered())(t), 0, "bytes are kept")
	i.nc.Close()
	check.Until(t, patience, "the connection counts as closed", func() bool {
		err := (<-i.request(t.Context(), "subject", patience)).err
		check.That(t, errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrDisconnected), "%v", err)
		return errors.Is(err, nats.ErrConnectionClosed)
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.ErrorIs(t, (<-i.request(ctx, "subject", patience)).err, context.Canceled)
	check.Equal(t, i.UnderWay(), 0, "requests are kept")
	_ = i.Close() // the connection is closed
	check.ErrorIs(t, (<-i.request(t.Context(), "subject", patience)).err, jsapi.ErrClosed)
}

// While nats.go waits for a server that does not answer, it holds the lock of the connection. No request waits for that.
func TestAServerThatHangsHoldsNoRequestUp(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	p := natstest.NewProxy(t, srv)
	i := open(t, srv, p.Through(), nats.Timeout(time.Hour), nats.ReconnectWait(time.Millisecond))
	<-p.Hang(t)
	check.Until(t, patience, "a request returns", func() bool {
		select {
		case r := <-i.request(t.Context(), "subject", time.Hour): // of one that was on its way when the connection was lost, later
			check.ErrorIs(t, r.err, nats.ErrDisconnected)
			return true
		case <-time.After(patience / 100):
			return false
		}
	})
	p.Heal()
	check.Until(t, patience, "the connection is back", func() bool { return i.Down() == nil })
	done := i.request(t.Context(), "subject", patience)
	check.OK(t, (<-i.requests).Respond(nil))
	check.OK(t, (<-done).err)
	check.OK(t, i.Close())
}

// The event of a lost connection counts for a while: nats.go drops the event of its return when too many are unread.
func TestAnOldLossCountsNoMore(t *testing.T) {
	t.Parallel()
	i := open(t, natstest.Server(t))
	i.LoseAt(time.Now())
	check.ErrorIs(t, i.Down(), nats.ErrDisconnected)
	i.LoseAt(time.Now().Add(-i.LostFor()))
	check.OK(t, i.Down())
	check.OK(t, i.Close())
}

// Each ends when its own time has passed, though one timer serves all, and whatever the order in which they came.
func TestRequestsEndInTime(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := open(t, srv)
		start := time.Now()
		took := map[time.Duration]<-chan result{}
		for _, within := range []time.Duration{time.Second, 250 * time.Millisecond, 2 * time.Second, 500 * time.Millisecond} {
			took[within] = i.request(t.Context(), "subject", within)
			<-i.requests
		}
		answered := i.request(t.Context(), "subject", 100*time.Millisecond)
		check.OK(t, (<-i.requests).Respond(nil))
		check.OK(t, (<-answered).err)
		for _, within := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second} {
			check.ErrorIs(t, (<-took[within]).err, context.DeadlineExceeded)
			check.Equal(t, time.Since(start), within)
		}
		natstest.Pass(time.Hour)
		start = time.Now()
		check.ErrorIs(t, (<-i.request(t.Context(), "subject", time.Second)).err, context.DeadlineExceeded)
		check.Equal(t, time.Since(start), time.Second, "after a pause")
		check.Equal(t, i.UnderWay(), 0, "requests are kept")
		check.OK(t, i.Close())
	})
}
