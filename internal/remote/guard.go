package remote

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

var (
	// special are networks of IANA's special-purpose registries that netip does not report as private, loopback or link-local,
	// within ranges that are global otherwise.
	special = []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
		netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
		netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
		netip.MustParsePrefix("3fff::/20"),
	}

	// global is the range of IPv6 that IANA has allocated for the open internet.
	global = netip.MustParsePrefix("2000::/3")
)

// embeddings are the IPv6 networks whose addresses lead to an IPv4 address, by a translator or a tunnel, and the byte at which the IPv4
// address begins.
var embeddings = []struct {
	network netip.Prefix
	at      int
}{
	{netip.MustParsePrefix("::/96"), 12},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12},
	{netip.MustParsePrefix("64:ff9b::/96"), 12},
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12},
	{netip.MustParsePrefix("2002::/16"), 2},
}

// teredo has the client's address, inverted, in its last bytes.
var teredo = netip.MustParsePrefix("2001::/32")

// embedded returns the IPv4 address that an IPv6 address leads to, and reports whether there is one.
func embedded(addr netip.Addr) (netip.Addr, bool) {
	b := addr.As16()
	for _, e := range embeddings {
		if e.network.Contains(addr) {
			return netip.AddrFrom4([4]byte(b[e.at : e.at+4])), true
		}
	}
	switch {
	case teredo.Contains(addr):
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	case addr.Is6() && b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP, in any network
		return netip.AddrFrom4([4]byte(b[12:])), true
	default:
		return netip.Addr{}, false
	}
}

// BlockedError is returned when an address must not be dialled.
type BlockedError struct {
	// Address is the address that was to be dialled.
	Address string

	// Reason is the reason, for a person, without the address.
	Reason string
}

// Error implements error.
func (e *BlockedError) Error() string { return fmt.Sprintf("%s is blocked: %s", e.Address, e.Reason) }

// Guard allows some addresses and blocks all others. The zero value allows the open internet.
type Guard struct {
	// Allow are networks that may be dialled although they are not public. An IPv6 address that embeds an IPv4 address, as those of a
	// translator in 64:ff9b::/96 do, is allowed only if the IPv4 address is allowed as well. Defaults to none.
	Allow []netip.Prefix

	// Resolver finds the addresses of names. Defaults to the system's resolver.
	Resolver *net.Resolver

	// Timeout bounds one dial, the look-up of the name included. Defaults to 10 seconds.
	Timeout time.Duration
}

// Dialer returns a dialer that dials only allowed addresses. For other addresses its error wraps a [*BlockedError].
func (g Guard) Dialer() *net.Dialer {
	g.Timeout = cmp.Or(g.Timeout, 10*time.Second)
	return &net.Dialer{ControlContext: g.Control, Resolver: g.Resolver, Timeout: g.Timeout}
}

// Control is the hook of a [net.Dialer], which calls it for every address right before it is dialled, after names have
// been resolved.
func (g Guard) Control(_ context.Context, _, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return &BlockedError{Address: address, Reason: "it is not a network address"}
	}
	if g.allows(target.Addr().Unmap()) {
		return nil
	}
	return &BlockedError{Address: address, Reason: "it is in a private or special network"}
}

func (g Guard) allows(addr netip.Addr) bool {
	if Public(addr) {
		return true
	}
	inner, leadsOn := embedded(addr)
	return slices.ContainsFunc(g.Allow, func(n netip.Prefix) bool { return n.Contains(addr) }) && (!leadsOn || g.allows(inner))
}

// Public reports whether an address belongs to the open internet. IPv6 addresses of translators and tunnels do not.
func Public(addr netip.Addr) bool {
	addr = addr.Unmap()
	if !addr.IsGlobalUnicast() || addr.IsPrivate() || addr.Zone() != "" || addr.Is6() && !global.Contains(addr) {
		return false
	}
	if inner, leadsOn := embedded(addr); addr.Is6() && leadsOn && !Public(inner) {
		return false
	}
	return !slices.ContainsFunc(special, func(n netip.Prefix) bool { return n.Contains(addr) })
}
