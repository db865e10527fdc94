package remote_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "s3cr3t-service-token"

// TestConfigKeepsItsSecret when somebody prints or logs it.
func TestConfigKeepsItsSecret(t *testing.T) {
	t.Parallel()
	config := remote.Config{BaseURL: "https://user:" + token + "@service.example", Token: token}
	var b strings.Builder
	slog.New(slog.NewJSONHandler(&b, nil)).Info("config", "config", config)
	for _, text := range []string{b.String(), fmt.Sprintf("%v %+v %s %#v", config, &config, config, config)} {
		check.That(t, !strings.Contains(text, token) && strings.Contains(text, "service.example"), "it says %s", text)
	}
}

func TestConfigErrorsAreNamedTogether(t *testing.T) {
	t.Parallel()
	err := remote.Config{BaseURL: "ftp://u:hunter2@example.com", Timeout: -1, Token: "a\r\né"}.Validate()
	check.Require(t, err != nil, "no error")
	check.Contains(t, err.Error(), "BaseURL is", "Timeout is", "Token holds")
	check.That(t, !strings.Contains(err.Error(), "hunter2"), "it tells the password: %v", err)
	for base, ok := range map[string]bool{
		"": false, "http://service:8000": false, "https://u:p@x": false, "https://x?key=1": false, "https://": false, "::": false,
		"https://service": true, "http://127.0.0.1:1/v1/": true, "http://[::1]:1": true, "http://localhost": true,
	} {
		err := remote.Config{BaseURL: base}.Validate()
		check.That(t, (err == nil) == ok, "%q: %v", base, err)
	}
	check.ErrorIs(t, remote.Config{BaseURL: "http://service:8000", AllowHTTP: true}.Validate(), nil)
}

// A service, or a proxy before it, that answers a call twice is not taken to have answered the next one, which is about another
// job: each call has a separate connection. On one that is kept, one in a thousand second answers was taken for another job's. And a
// call whose connection breaks is not made again: the service may have begun the work.
func TestEachCallIsMadeOnceOverAConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	var from []string // calls come one after the other
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if from = append(from, r.RemoteAddr); len(from) == 2 {
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	client := check.Must(remote.New(remote.Config{BaseURL: server.URL, Token: token}, "X-Service-Token", ""))(t)
	for n, broken := range []bool{false, true, false} {
		_, err := client.Call(t.Context(), http.MethodPost, "/", []byte("{}"), "key", 10)
		check.That(t, (err != nil) == broken, "call %d: %v", n, err)
		check.That(t, err == nil || !strings.Contains(err.Error(), "127.0.0.1"), "the error tells the address: %v", err)
	}
	check.That(t, len(from) == 3 && from[0] != from[1] && from[1] != from[2], "calls came from %v", from)
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	cfg := remote.BreakerConfig{Parties: 2, First: 10 * time.Second, Last: 15 * time.Second, Trial: 3 * time.Second, Grace: time.Second}
	now := time.Now()
	var b remote.Breaker
	waits := func(when, party string, want time.Duration) {
		t.Helper()
		check.Equal(t, b.Wait(cfg, party, now), want, when+", the wait of "+party)
	}
	fails := func(party string, certain, opens bool) {
		t.Helper()
		check.Equal(t, b.Fail(cfg, party, now, certain), opens, "opens for "+party)
	}

	fails("a", false, false)
	fails("a", false, false) // one party may do what always fails
	waits("closed", "a", 0)
	fails("b", false, true)
	fails("c", false, false) // a call that was under way
	waits("open", "d", 10*time.Second)
	waits("open", "a", 15*time.Second)

	now = now.Add(10 * time.Second)
	waits("after the pause", "d", 0)
	b.Call(cfg, "d", now)
	waits("while d tests", "e", 3*time.Second)
	b.Leave("e", now) // not the test
	waits("while d tests", "e", 3*time.Second)
	b.Leave("d", now)
	waits("after a test without an outcome", "e", 0)
	b.Call(cfg, "e", now)
	fails("e", false, false)
	waits("after a test that failed", "f", 15*time.Second)
	b.Hold(now.Add(time.Second))
	waits("held for less", "f", 15*time.Second)
	b.Hold(now.Add(time.Minute))
	waits("held for longer", "f", time.Minute)

	now = now.Add(time.Minute)
	b.Call(cfg, "f", now)
	check.That(t, b.Succeed(now) && !b.IsOpen() && b.Worked().Equal(now), "a success does not close it")
	waits("closed", "a", 0)
	fails("a", true, false) // so soon after a success
	now = now.Add(time.Second)
	fails("a", true, true)
	waits("open again", "b", 10*time.Second)
}

func TestPublic(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"1.1.1.1": true, "8.8.8.8": true, "142.250.1.1": true, "172.15.0.1": true, "172.32.0.1": true, "100.63.0.1": true, "2606:4700::1111": true,
		"0.0.0.0": false, "0.1.2.3": false, "10.0.0.1": false, "100.64.0.1": false, "127.0.0.1": false, "127.255.255.254": false, "169.254.169.254": false,
		"172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "192.0.0.8": false, "192.0.2.1": false, "198.18.0.1": false, "198.51.100.1": false,
		"203.0.113.1": false, "224.0.0.1": false, "240.0.0.1": false, "255.255.255.255": false,
		"::": false, "::1": false, "::7f00:1": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fd12::1": false, "fec0::1": false, "ff02::1": false,
		"64:ff9b::7f00:1": false, "64:ff9b:1::a00:1": false, "2002:7f00:1::": false, "2001::1": false, "2001:db8::1": false, "100::1": false,
		"::ffff:0:7f00:1": false, "::ffff:0:808:808": false, "3fff::1": false, "3fff:fff::1": false, "5f00::1": false, "4000::1": false, "1fff::1": false, "9000::1": false,
		"64:ff9b::808:808": false, "2002:808:808::1": false, "2001:0:4136:e378:8000:63bf:80ff:fffe": false, "3ffe::1": true, "2a00:1450::1": true,
		"2a00:1450::5efe:a00:1": false, "2a00:1450::200:5efe:7f00:1": false, "2a00:1450::200:5efe:808:808": true,
		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::ffff:1.1.1.1": true,
	} {
		got := remote.Public(netip.MustParseAddr(text))
		check.That(t, got == want, "Public(%s) is %t: want %t", text, got, want)
	}
}

func TestControl(t *testing.T) {
	t.Parallel()
	guard := remote.Guard{Allow: []netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fd00::/8"),
	}}
	for address, want := range map[string]bool{
		"1.1.1.1:443": true, "10.1.2.3:80": true, "[::ffff:10.1.2.3]:80": true, "[2606:4700::1111]:443": true,
		"[64:ff9b::808:808]:80": true, "[64:ff9b::a01:203]:80": true, "[2002:808:808::1]:80": true, "[fd00::1]:80": true,
		"[64:ff9b::a02:1]:80": false, "[64:ff9b::7f00:1]:80": false, "[2002:7f00:1::]:80": false, "[fd00::5efe:7f00:1]:80": false, "[::ffff:0:a01:203]:80": false,
		"10.2.0.1:80": false, "[::ffff:127.0.0.1]:80": false, "/run/docker.sock": false, "localhost:80": false, "": false,
	} {
		err := guard.Control(t.Context(), "tcp", address, nil)
		blocked, ok := errors.AsType[*remote.BlockedError](err)
		check.That(t, want == (err == nil) && (err == nil || ok && blocked.Address == address), "%s: %v", address, err)
	}
}

// A name is checked by its addresses, not by its text.
func TestDialer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.OK(t, err)
	defer listener.Close()
	addr, ok := listener.Addr().(*net.TCPAddr)
	check.Require(t, ok, "%v", listener.Addr())
	name := net.JoinHostPort("localhost", strconv.Itoa(addr.Port))
	_, err = remote.Guard{}.Dialer().DialContext(t.Context(), "tcp", name)
	_, ok = errors.AsType[*remote.BlockedError](err)
	check.That(t, ok, "error %v: want it blocked", err)
	allowed := remote.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	conn := check.Must(allowed.Dialer().DialContext(t.Context(), "tcp", name))(t)
	check.ErrorIs(t, conn.Close(), nil)
}
