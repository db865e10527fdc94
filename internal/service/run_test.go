package service_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/servicetest"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A service that cannot connect says why, and releases its resources.
func TestRunSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]service.BaseConfig{
		"shop: connect to nats://127.0.0.1:1": {NATSConfig: service.NATSConfig{NATSURL: "nats://127.0.0.1:1"}},
		"shop: NATS_NKEY":                     {NATSConfig: service.NATSConfig{NATSNkey: "/nonexistent"}},
	} {
		cfg.Logger = slog.New(slog.DiscardHandler)
		err := service.Run(t.Context(), service.Spec{
			Close: func() error { return errTest }, Config: cfg.WithDefaults(service.None, 1), Name: "shop",
			Open: func(context.Context, *service.Service) error { return errors.New("opened without a server") },
		})
		check.That(t, err != nil && strings.Contains(err.Error(), want) && errors.Is(err, errTest), "%v, want %s", err, want)
	}
}

// A service that is told to stop while it starts has not failed: a rolling restart pages nobody. Any other error of the start is one.
func TestRunStopsWhileItStarts(t *testing.T) {
	t.Parallel()
	server := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	for _, test := range []struct{ fails, want error }{{nil, nil}, {errTest, errTest}} {
		ctx, cancel := context.WithCancel(t.Context())
		cfg := service.BaseConfig{
			Listen: "-", Logger: slog.New(slog.DiscardHandler), NATSConfig: service.NATSConfig{NATSURL: server.URL()},
		}
		err := service.Run(ctx, service.Spec{
			Config: cfg.WithDefaults(service.None, 1), Name: "shop",
			Open: func(ctx context.Context, _ *service.Service) error {
				cancel()
				return cmp.Or(test.fails, fmt.Errorf("read the menu: %w", ctx.Err()))
			},
		})
		check.ErrorIs(t, err, test.want)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type config struct {
	service.BaseConfig

	Old   bool          `env:"ENABLE_OLD"`
	Plain string        // has no variable
	Inner string        `env:"-"`
	Size  int           `env:"SHOP_SIZE"`
	Room  string        `env:"SHOP_ROOM_SERVICE_URL"`
	Wait  time.Duration `env:"SHOP_WAIT"`
}

func TestRead(t *testing.T) {
	t.Parallel()
	var cfg config
	err := service.Read("shop", map[string]string{
		"SHOP_SIZE": "3", "SHOP_WAIT": "7s", "ENABLE_OLD": "true", "SHOPPING": "x", "HOME": "/", "SERVICE_NAME": "x",
		"SHOP_LISTEN": ":2", "NATS_URL": "nats://x:4222", "SHOP_REPLICAS": "3",
		"SHOP_ROOM_SERVICE_URL": "https://x",
	}, io.Discard, &cfg)
	cfg.Logger = nil
	want := config{Old: true, Room: "https://x", Size: 3, Wait: 7 * time.Second}
	want.Listen, want.NATSURL, want.Replicas = ":2", "nats://x:4222", 3
	check.That(t, err == nil && reflect.DeepEqual(cfg, want), "%+v: %v", cfg, err)
}

func TestReadReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	var cfg config
	err := service.Read("shop", map[string]string{
		"SHOP_SIZE": "many", "SHOP_WAIT": "soon", "ENABLE_OLD": "perhaps", "SHOP_SIZ": "1", "SHOP_": "1", "SHOP_ACK_WAIT": "3x", "SHOP_LOG_LEVEL": "loud",
		"SERVICE_ORIGINS": "https://x",
	}, io.Discard, &cfg)
	check.ErrorContains(t, err,
		`shop: SHOP_SIZE is "many": want a value of the kind int`, `SHOP_WAIT is "soon"`, `ENABLE_OLD is "perhaps"`, `SHOP_ACK_WAIT is "3x"`,
		"unknown environment variable SHOP_SIZ:", "unknown environment variable SHOP_:", `SHOP_LOG_LEVEL is "loud": want debug, info, warn or error`,
		"SERVICE_ORIGINS: SERVICE stands for the name of the service: set SHOP_ORIGINS",
	)
}

// The log has the events from the configured level on, as lines of JSON.
func TestLogLevel(t *testing.T) {
	t.Parallel()
	levels := []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}
	for set, lines := range map[string]int{"": 3, "debug": 4, "info": 3, "warn": 2, "error": 1, "DEBUG": 4} {
		var cfg config
		var log bytes.Buffer
		check.OK(t, service.Read("shop", map[string]string{"SHOP_LOG_LEVEL": set}, &log, &cfg))
		for _, level := range levels {
			cfg.Logger.Log(t.Context(), level, "shop: open")
		}
		got := strings.Count(log.String(), `"msg":"shop: open"}`+"\n")
		check.That(t, got == lines, "%q logs %d lines, want %d:\n%s", set, got, lines, &log)
	}
}

func TestValidateReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	err := service.BaseConfig{
		AckWait: 1, Concurrency: -1, LimitConfig: service.LimitConfig{Connections: 1, Rate: -1, Requests: -1, Streams: -1}, MaxBytes: -1, Replicas: 6,
	}.WithDefaults(":1", 8).Validate("shop")
	check.ErrorContains(t, err,
		"shop: AckWait (SHOP_ACK_WAIT) is 1ns: want at least 100ms", "shop: Concurrency (SHOP_CONCURRENCY) is -1: want a positive number",
		"shop: Connections (SHOP_CONNECTIONS) is 1: want at least 16", "shop: Rate (SHOP_RATE) is -1: want a positive number",
		"shop: Requests (SHOP_REQUESTS) is -1: want a positive number", "shop: Streams (SHOP_STREAMS) is -1: want a positive number",
		"shop: MaxBytes (SHOP_MAX_BYTES) is -1: want a positive number", "shop: Replicas (SHOP_REPLICAS) is 6: want 1 to 5",
	)
	for want, cfg := range map[string]service.BaseConfig{
		"shop: OIDCIssuer (SHOP_OIDC_ISSUER) is http://id.example.com: want the https address": {OIDCAudience: "x", OIDCIssuer: "http://id.example.com"},
		"shop: OIDCIssuer (SHOP_OIDC_ISSUER) is : want":                                        {OIDCScopeClaim: "scp"},
		`shop: OIDCAudience (SHOP_OIDC_AUDIENCE) is "": want the audience`:                     {OIDCIssuer: "https://id.example.com"},
		"shop: Insecure (SHOP_INSECURE) is true: want false":                                   {Insecure: true, OIDCAudience: "x", OIDCIssuer: "https://x"},
		"shop: TokenAudience (SHOP_TOKEN_AUDIENCE) is app: want none without":                  {TokenAudience: "app"},
		"shop: Insecure (SHOP_INSECURE) is true: want false where SHOP_KEYS":                   {Insecure: true, Keys: "keys.json"},
	} {
		check.ErrorContains(t, cfg.WithDefaults(":1", 8).Validate("shop"), want)
	}
	check.ErrorIs(t, (service.BaseConfig{}).WithDefaults(":1", 8).Validate("shop"), nil, "the defaults are invalid")
}

func TestHostsAndOriginsAreChecked(t *testing.T) {
	t.Parallel()
	err := service.BaseConfig{
		Hosts:   []string{"app.example.com", "*.example.com", "[", "https://x", ""},
		Origins: []string{"https://app.example.com", "http://localhost:3000", "https://[::1]:8443"},
	}.WithDefaults(":1", 8).Validate("shop")
	if err == nil || strings.Count(err.Error(), "shop: Hosts (SHOP_HOSTS) has ") != 3 || strings.Contains(err.Error(), "SHOP_ORIGINS") {
		t.Errorf("got %v", err)
	}
	for _, origin := range []string{
		"", "*", "null", "app.example.com", "https://", "https://*.example.com", "https://App.example.com", "https://app.example.com/",
		"https://app.example.com:443", "http://app.example.com:80", "ftp://app.example.com", "https://a@app.example.com", "https://app.example.com?x",
	} {
		err := service.BaseConfig{Origins: []string{origin}}.WithDefaults(":1", 8).Validate("shop")
		check.That(t, err != nil && strings.Contains(err.Error(), "shop: Origins (SHOP_ORIGINS) has "), "%q: %v", origin, err)
	}
}

// serve answers the requests of the client, in a bubble, where time stands while a goroutine works. Calling stop ends the shop.
func serve(t *testing.T, handler http.Handler) (client *http.Client, stop func()) {
	t.Helper()
	s := servicetest.NewPipes()
	server, group := service.On("shop", s), service.NewGroup(t.Context())
	server.Serve(group, service.ServerConfig{Name: "shop", Handler: handler})
	stop = sync.OnceFunc(func() { check.ErrorIs(t, errors.Join(server.Stop(), group.Stop()), nil) })
	t.Cleanup(stop)
	return &http.Client{Transport: &http.Transport{DialContext: s.DialContext}}, stop
}

// dialSocket opens a WebSocket of a client to a shop that sends it frames with handler. Calling stop ends the shop. The channel handlerErr gets
// the result of handler, once the connection is closed.
func dialSocket(t *testing.T, handler func(context.Context, *service.Socket) error) (client *websocket.Conn, stop func(), handlerErr <-chan error) {
	t.Helper()
	ended := make(chan error, 1)
	router := service.NewRouter(service.RouterConfig{Logger: slog.New(slog.DiscardHandler), Name: "shop"})
	caller, stop := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		router.ServeSocket(w, r, func(ctx context.Context, s *service.Socket) error {
			err = handler(ctx, s)
			return err
		})
		ended <- err
	}))
	client, _, err := websocket.Dial(t.Context(), "ws://shop/", &websocket.DialOptions{HTTPClient: caller})
	check.OK(t, err)
	client.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = client.CloseNow() })
	return client, stop, ended
}

// A frame that is being written when the service stops is read to its end, and then the end is told.
func TestSocketIsNotCutOffInAFrame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("all of it ", 10_000)
		client, stop, handlerErr := dialSocket(t, func(ctx context.Context, s *service.Socket) error {
			if err := s.Frame(text); err != nil {
				return err
			}
			return ctx.Err()
		})
		synctest.Wait() // the frame is being written
		stop()
		_, data, err := client.Read(t.Context())
		check.Require(t, err == nil && string(data) == `"`+text+`"`, "%d bytes: %v", len(data), err)
		var end websocket.CloseError
		_, _, err = client.Read(t.Context())
		check.That(t, errors.As(err, &end) && end.Code == websocket.StatusGoingAway && end.Reason == "come back", "%v", err)
		check.ErrorIs(t, <-handlerErr, context.Canceled)
	})
}

// A client that does not read has ten seconds for a frame, five for a ping, and one when the service stops.
func TestSocketDoesNotWaitForAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handler func(context.Context, *service.Socket) error
		stop    bool
		want    time.Duration
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
				_, stop, handlerErr := dialSocket(t, test.handler)
				if test.stop {
					synctest.Wait()
					stop()
				}
				<-handlerErr
				check.Equal(t, time.Since(began), test.want, "time until the end")
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
				client, _, handlerErr := dialSocket(t, func(ctx context.Context, s *service.Socket) error {
					if err := s.Frame("one"); err != nil {
						return err
					}
					<-ctx.Done()
					if s.Frame("two") == nil || s.Heartbeat() == nil {
						return errors.New("there is nobody to write to")
					}
					return ctx.Err()
				})
				_, _, err := client.Read(t.Context())
				check.OK(t, err)
				left := time.Now()
				err = leave(t.Context(), client)
				check.That(t, err == nil || errors.Is(err, io.EOF), "%v", err)
				err = <-handlerErr
				check.That(t, errors.Is(err, context.Canceled) && time.Since(left) <= 0, "%v, after %s", err, time.Since(left))
			})
		})
	}
}

// An event stream of which nothing is written for a while stays open, over HTTP/1.1 and over HTTP/2, which browsers speak where there is
// TLS. A client that does not read is cut off all the same.
func TestStreamsEndOnlyForClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	const beats = 20
	idle := func(ctx context.Context, s *service.Stream) error {
		calls := 0
		return service.Relay(ctx, s, service.Heartbeat, func(ctx context.Context) (int, error) {
			calls++
			if calls > beats {
				return 0, io.EOF
			}
			<-ctx.Done()
			return 0, ctx.Err()
		}, func(int) error { return nil })
	}
	flood := func(_ context.Context, s *service.Stream) (err error) {
		for err == nil {
			err = s.Event("1", "status", strings.Repeat("x", 1<<20))
		}
		return err
	}
	for name, version := range map[string]func(*http.Protocols, bool){
		"HTTP 1": (*http.Protocols).SetHTTP1, "HTTP 2": (*http.Protocols).SetUnencryptedHTTP2,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				text, err := read(t, version, idle, io.ReadAll)
				check.That(t, err == nil && strings.Count(string(text), ": heartbeat\n\n") == beats,
					"%q, %v after %d heartbeats", text, err, strings.Count(string(text), ": heartbeat\n\n"))
			})
			synctest.Test(t, func(t *testing.T) {
				began, ended := time.Now(), make(chan struct{})
				_, err := read(t, version, func(ctx context.Context, s *service.Stream) error {
					defer close(ended)
					err := flood(ctx, s)
					took := time.Since(began)
					check.That(t, err != nil && took == 10*time.Second, "%v after %s", err, took)
					return err
				}, func(io.Reader) ([]byte, error) {
					<-ended
					return nil, nil
				})
				check.ErrorIs(t, err, nil)
			})
		})
	}
}

// read asks for an event stream over a version of HTTP.
func read(
	t *testing.T, version func(*http.Protocols, bool), send func(context.Context, *service.Stream) error, take func(io.Reader) ([]byte, error),
) ([]byte, error) {
	t.Helper()
	router := service.NewRouter(service.RouterConfig{Logger: slog.New(slog.DiscardHandler), Name: "shop"})
	router.HandleStream("GET /events", access.Public(), func(w http.ResponseWriter, r *http.Request) error {
		s, err := service.OpenStream(w, r, service.Retry)
		if err == nil {
			err = send(r.Context(), s)
		}
		return err
	})
	protocols, pipes := new(http.Protocols), servicetest.NewPipes()
	version(protocols, true)
	server := &http.Server{Handler: router, Protocols: protocols, ReadTimeout: time.Minute, WriteTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(pipes) }()
	transport := &http.Transport{DialContext: pipes.DialContext, Protocols: protocols}
	defer func() {
		transport.CloseIdleConnections()
		check.ErrorIs(t, server.Close(), nil)
		<-served
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/events", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return take(resp.Body)
}

// issuer signs tokens, and answers with its key. It is also a transport that takes no connection.
type issuer struct {
	address string
	key     *ecdsa.PrivateKey
}

var issuerKey = sync.OnceValue(func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
})

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var document any = map[string]string{"issuer": i.address, "jwks_uri": i.address + "/keys"}
	if r.URL.Path == "/keys" {
		document = jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &i.key.PublicKey, KeyID: "1"}}}
	}
	_ = json.NewEncoder(w).Encode(document)
}

func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	i.ServeHTTP(w, r)
	return w.Result(), nil
}

func (i *issuer) token(t *testing.T, user, scope string, expires time.Time) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: i.key}, (&jose.SignerOptions{}).WithHeader("kid", "1"))
	check.OK(t, err)
	text, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": i.address, "aud": "shop", "client_id": "app", "sub": user, "scope": scope, "exp": expires.Unix(),
	}).Serialize()
	check.OK(t, err)
	return text
}

// guard admits the callers of an issuer until the test ends.
func (i *issuer) guard(t *testing.T, transport http.RoundTripper) *access.Guard {
	t.Helper()
	oidc, err := access.NewOIDC(access.OIDCConfig{
		Audience: "shop", Issuer: i.address, Logger: slog.New(slog.DiscardHandler), Name: "shop", Transport: transport,
	})
	check.OK(t, err)
	group := service.NewGroup(t.Context())
	group.Go(oidc.Run)
	t.Cleanup(func() { _ = group.Stop() }) // it ends without one
	return access.NewGuard(nil, oidc)
}

// A token is asked of a real issuer; the header of RFC 6750 says what is wrong with it.
func TestTokensOverHTTP(t *testing.T) {
	t.Parallel()
	i := &issuer{key: issuerKey()}
	at := httptest.NewServer(i)
	defer at.Close()
	i.address = at.URL
	down := &issuer{address: "http://127.0.0.1:1", key: i.key}
	hour := time.Now().Add(time.Hour)
	route := func(r *service.Router) {
		r.Handle("GET /mine", access.Own(access.Read), func(w http.ResponseWriter, r *http.Request) error {
			_ = json.NewEncoder(w).Encode(access.From(r.Context()).User)
			return nil
		})
		r.Handle("GET /ours", access.All(access.Read), func(http.ResponseWriter, *http.Request) error { return nil })
	}
	up, off := open(t, service.RouterConfig{Access: i.guard(t, nil)}, route), open(t, service.RouterConfig{Access: down.guard(t, nil)}, route)
	for _, c := range []struct {
		shop               *shop
		path, token        string
		status             int
		code, text, header string
	}{
		{up, "/mine", i.token(t, "42", "read", hour), 200, "", `"42"`, ""},
		{up, "/ours", i.token(t, "42", "read all-users", hour), 200, "", "", ""},
		{up, "/ours", i.token(t, "42", "read", hour), 403, "", "bound to a user", ""},
		{up, "/mine", i.token(t, "42", "publish", hour), 403, "", `scope \"read\"`, `Bearer realm="shop", error="insufficient_scope", scope="read"`},
		{up, "/mine", i.token(t, "42", "read", time.Now()), 401, "", "key or token", `Bearer realm="shop", error="invalid_token", error_description="the token has expired"`},
		{up, "/mine", "", 401, "", "key or token", `Bearer realm="shop"`},
		{off, "/mine", down.token(t, "42", "read", hour), 503, "ISSUER_UNAVAILABLE", "the issuer of tokens does not answer", ""},
		{off, "/livez", down.token(t, "42", "read", hour), 200, "", "ok", ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.shop.server.URL()+c.path, http.NoBody)
		check.OK(t, err)
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		resp, err := c.shop.client.Do(r)
		check.OK(t, err)
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		var p service.Problem
		_ = json.Unmarshal(text, &p) // not all are problems
		check.That(t, err == nil && resp.StatusCode == c.status && p.Code == c.code && strings.Contains(string(text), c.text) &&
			resp.Header.Get("WWW-Authenticate") == c.header && (resp.Header.Get("Retry-After") != "") == (c.status == 503) &&
			(c.token == "" || !strings.Contains(string(text), strings.Split(c.token, ".")[2])),
			"%s is %d %v %s, %v", c.path, resp.StatusCode, resp.Header, text, err)
	}
}

// Event streams and WebSockets end in the second in which their token expires, and say so in their way.
func TestStreamsEndWithTheirToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{address: "https://id.example.com", key: issuerKey()}
		router := service.NewRouter(service.RouterConfig{Access: i.guard(t, i), Logger: slog.New(slog.DiscardHandler), Name: "shop"})
		router.HandleStream("GET /events", access.Own(access.Read), func(w http.ResponseWriter, r *http.Request) error {
			_, err := service.OpenStream(w, r, service.Retry)
			<-r.Context().Done()
			return err
		})
		router.HandleSocket("GET /ws", access.Own(access.Read), func(w http.ResponseWriter, r *http.Request) error {
			router.ServeSocket(w, r, func(ctx context.Context, _ *service.Socket) error {
				<-ctx.Done()
				return ctx.Err()
			})
			return nil
		})
		client, _ := serve(t, router)
		synctest.Wait()
		expires := time.Now().Add(time.Minute)
		header := http.Header{"Authorization": {"Bearer " + i.token(t, "42", "read", expires)}}
		var both sync.WaitGroup
		both.Go(func() {
			r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://shop/events", http.NoBody))(t)
			r.Header = header
			resp := check.Must(client.Do(r))(t)
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			check.That(t, err == nil && string(text) == "retry: 2000\n\n" && time.Now().Equal(expires), "%q, %v, at %s", text, err, time.Now())
		})
		both.Go(func() {
			conn, _, err := websocket.Dial(t.Context(), "ws://shop/ws", &websocket.DialOptions{HTTPClient: client, HTTPHeader: header})
			check.OK(t, err)
			var end websocket.CloseError
			_, _, err = conn.Read(t.Context())
			check.That(t, errors.As(err, &end) && end.Code == websocket.StatusGoingAway && time.Now().Equal(expires), "%v, at %s", err, time.Now())
		})
		both.Wait()
		client.CloseIdleConnections()
	})
}
