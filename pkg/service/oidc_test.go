package service_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
)

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
	service.WriteJSON(w, http.StatusOK, document)
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
			service.WriteJSON(w, http.StatusOK, access.From(r.Context()).User)
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

// The quotas of a token are those of its issuer and subject: another token of the same user has no others.
func TestQuotasKnowTheUserOfAToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{address: "https://id.example.com", key: issuerKey()}
		c := newCounter(t, service.LimitConfig{Rate: 1}, i.guard(t, i))
		synctest.Wait()
		for n, user := range []string{"42", "43"} {
			c.want("/now", ada, i.token(t, user, "read all-users", time.Now().Add(time.Hour)), "200")
			c.want("/now", bob, i.token(t, user, "read all-users", time.Now().Add(time.Duration(n+2)*time.Hour)), overRate)
		}
	})
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
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://shop/events", http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header = header
			resp, err := client.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "retry: 2000\n\n" || !time.Now().Equal(expires) {
				t.Errorf("%q, %v, at %s", text, err, time.Now())
			}
		})
		both.Go(func() {
			conn, _, err := websocket.Dial(t.Context(), "ws://shop/ws", &websocket.DialOptions{HTTPClient: client, HTTPHeader: header})
			if err != nil {
				t.Error(err)
				return
			}
			var end websocket.CloseError
			if _, _, err := conn.Read(t.Context()); !errors.As(err, &end) || end.Code != websocket.StatusGoingAway || !time.Now().Equal(expires) {
				t.Errorf("%v, at %s", err, time.Now())
			}
		})
		both.Wait()
		client.CloseIdleConnections()
	})
}
