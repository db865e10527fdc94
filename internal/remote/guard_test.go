package remote_test

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"testing"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
	if !ok {
		t.Fatal(listener.Addr())
	}
	name := net.JoinHostPort("localhost", strconv.Itoa(addr.Port))
	_, err = remote.Guard{}.Dialer().DialContext(t.Context(), "tcp", name)
	if _, ok := errors.AsType[*remote.BlockedError](err); !ok {
		t.Errorf("error %v: want it blocked", err)
	}
	allowed := remote.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	conn := check.Must(allowed.Dialer().DialContext(t.Context(), "tcp", name))(t)
	check.ErrorIs(t, conn.Close(), nil)
}
