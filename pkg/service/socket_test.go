package service_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/expediter-io/expediter/pkg/service"
)

// street is a listener in whose pipes nothing is buffered: a frame has been written when it has been read.
type street struct {
	conns chan net.Conn
	over  chan struct{}
}

func (s *street) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.over:
		return nil, net.ErrClosed
	}
}

func (s *street) Addr() net.Addr { return &net.TCPAddr{} }

func (s *street) Close() error {
	close(s.over)
	return nil
}

// serve answers the requests of the client, in a bubble, where time stands while a goroutine works. Calling stop ends the shop.
func serve(t *testing.T, handler http.Handler) (client *http.Client, stop func()) {
	t.Helper()
	s := &street{conns: make(chan net.Conn), over: make(chan struct{})}
	server, group := service.On("shop", s), service.NewGroup(t.Context())
	server.Serve(group, service.ServerConfig{Name: "shop", Handler: handler})
	stop = sync.OnceFunc(func() {
		if err := errors.Join(server.Stop(), group.Stop()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		s.conns <- far
		return near, nil
	}}}, stop
}

// visit opens a WebSocket of a client to a shop that sends it frames with tell. Calling stop ends the shop. The channel told gets
// the result of tell, once the connection is closed.
func visit(t *testing.T, tell func(context.Context, *service.Socket) error) (client *websocket.Conn, stop func(), told <-chan error) {
	t.Helper()
	ended := make(chan error, 1)
	router := service.NewRouter(service.RouterConfig{Logger: slog.New(slog.DiscardHandler), Name: "shop"})
	caller, stop := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		router.ServeSocket(w, r, func(ctx context.Context, s *service.Socket) error {
			err = tell(ctx, s)
			return err
		})
		ended <- err
	}))
	client, _, err := websocket.Dial(t.Context(), "ws://shop/", &websocket.DialOptions{HTTPClient: caller}) //nolint:bodyclose // it is the connection
	if err != nil {
		t.Fatal(err)
	}
	client.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = client.CloseNow() })
	return client, stop, ended
}

func TestSocketTellsAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, _, _ := visit(t, func(_ context.Context, s *service.Socket) error {
			return errors.Join(s.Frame("one"), s.Frame(map[string]int{"two": 2}))
		})
		for _, want := range []string{`"one"`, `{"two":2}`} {
			if kind, data, err := client.Read(t.Context()); err != nil || kind != websocket.MessageText || string(data) != want {
				t.Fatalf("%s %q: %v, want %q", kind, data, err, want)
			}
		}
		var end websocket.CloseError
		if _, _, err := client.Read(t.Context()); !errors.As(err, &end) || end.Code != websocket.StatusNormalClosure || end.Reason != "complete" {
			t.Error(err)
		}
	})
}

// A frame that is being written when the service stops is read to its end, and then the end is told.
func TestSocketIsNotCutOffInAFrame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("all of it ", 10_000)
		client, stop, told := visit(t, func(ctx context.Context, s *service.Socket) error {
			if err := s.Frame(text); err != nil {
				return err
			}
			return ctx.Err()
		})
		synctest.Wait() // the frame is being written
		stop()
		if _, data, err := client.Read(t.Context()); err != nil || string(data) != `"`+text+`"` {
			t.Fatalf("%d bytes: %v", len(data), err)
		}
		var end websocket.CloseError
		if _, _, err := client.Read(t.Context()); !errors.As(err, &end) || end.Code != websocket.StatusGoingAway || end.Reason != "come back" {
			t.Error(err)
		}
		if err := <-told; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// A client that does not read has ten seconds for a frame, five for a ping, and one when the service stops.
func TestSocketDoesNotWaitForAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tell func(context.Context, *service.Socket) error
		stop bool
		want time.Duration
	}{
		"frame":            {func(_ context.Context, s *service.Socket) error { return s.Frame("one") }, false, 10 * time.Second},
		"heartbeat":        {func(_ context.Context, s *service.Socket) error { return s.Heartbeat() }, false, 5 * time.Second},
		"farewell":         {func(context.Context, *service.Socket) error { return nil }, false, time.Second},
		"frame at the end": {func(_ context.Context, s *service.Socket) error { return s.Frame("one") }, true, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, stop, told := visit(t, test.tell)
				if test.stop {
					synctest.Wait()
					stop()
				}
				<-told
				if took := time.Since(began); took != test.want {
					t.Errorf("%s, want %s", took, test.want)
				}
			})
		})
	}
}

// The sender's context ends at once when the client leaves, or sends a message, which is a violation; the connection is
// closed then.
func TestSocketHearsOfTheClientsEnd(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(context.Context, *websocket.Conn) error{
		"closes":  func(_ context.Context, c *websocket.Conn) error { return c.Close(websocket.StatusNormalClosure, "") },
		"is gone": func(_ context.Context, c *websocket.Conn) error { return c.CloseNow() },
		"talks": func(ctx context.Context, c *websocket.Conn) error {
			if err := c.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
				return err
			}
			_, _, err := c.Read(ctx)
			if websocket.CloseStatus(err) == websocket.StatusPolicyViolation {
				return nil
			}
			return errors.Join(errors.New("it may talk"), err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client, _, told := visit(t, func(ctx context.Context, s *service.Socket) error {
					if err := s.Frame("one"); err != nil {
						return err
					}
					<-ctx.Done()
					if s.Frame("two") == nil || s.Heartbeat() == nil {
						return errors.New("there is nobody to write to")
					}
					return ctx.Err()
				})
				if _, _, err := client.Read(t.Context()); err != nil {
					t.Fatal(err)
				}
				left := time.Now()
				if err := leave(t.Context(), client); err != nil && !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				if err := <-told; !errors.Is(err, context.Canceled) || time.Since(left) > 0 {
					t.Errorf("%v, after %s", err, time.Since(left))
				}
			})
		})
	}
}
