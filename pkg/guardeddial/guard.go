package guardeddial

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// special are networks that netip does not report as private, loopback or link-local, and that are not the open
// internet either: those of IANA's special-purpose registries, and the IPv6 prefixes that embed an IPv4 address, which
// may be any of the others.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
}

// BlockedError is returned when an address must not be dialled.
type BlockedError struct {
	// Address is the address that was to be dialled.
	Address string

	// Reason is why it is blocked, for a person, without the address.
	Reason string
}

// Error implements error.
func (e *BlockedError) Error() string { return fmt.Sprintf("%s is blocked: %s", e.Address, e.Reason) }

// Guard allows some addresses and blocks all others. The zero value allows the open internet.
type Guard struct {
	// Allow are networks that may be dialled although they are not public. Defaults to none.
	Allow []netip.Prefix

	// Resolver finds the addresses of names. Defaults to the system's.
	Resolver *net.Resolver

	// Timeout bounds one dial, the look-up of the name included. Defaults to 10 seconds.
	Timeout time.Duration
}

// Dialer returns a dialer that dials only allowed addresses. For any other its error wraps a [*BlockedError].
func (g Guard) Dialer() *net.Dialer {
	if g.Timeout == 0 {
		g.Timeout = 10 * time.Second
	}
	return &net.Dialer{ControlContext: g.Control, Resolver: g.Resolver, Timeout: g.Timeout}
}

// Control is the hook of a [net.Dialer], which calls it for every address right before it is dialled, after names have
// been resolved.
func (g Guard) Control(_ context.Context, _, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return &BlockedError{Address: address, Reason: "it is not a network address"}
	}
	addr := target.Addr().Unmap()
	for _, network := range g.Allow {
		if network.Contains(addr) {
			return nil
		}
	}
	if Public(addr) {
		return nil
	}
	return &BlockedError{Address: address, Reason: "it is in a private or special network"}
}

// Public reports whether an address belongs to the open internet.
func Public(addr netip.Addr) bool {
	addr = addr.Unmap()
	if !addr.IsGlobalUnicast() || addr.IsPrivate() || addr.Zone() != "" {
		return false
	}
	for _, network := range special {
		if network.Contains(addr) {
			return false
		}
	}
	return true
}
