package alive

import (
	"context"
	"slices"
	"strings"
)

// IsGone reports whether a member, which was connected to server, is gone. It waits for two probes at most, and returns
// false when those do not decide.
func (l *Members) IsGone(ctx context.Context, member, server string) bool {
	return l.gone(ctx, []string{member}, server) == 1
}

// Gone returns those of members that are gone and before which there is none that is not. Where many processes call it
// with the members that come before them, the nearest first, each sends few probes.
func (l *Members) Gone(ctx context.Context, members []string) []string {
	if l == nil {
		return nil
	}
	if other := slices.IndexFunc(members, func(m string) bool { return !strings.HasPrefix(m, namePrefix) }); other >= 0 {
		members = members[:other]
	}
	const more = 8 // times as many are probed when all before them are gone
	n := 0
	for probe := 1; n < len(members); probe *= more {
		some := members[n:min(n+probe, len(members))]
		gone := l.gone(ctx, some, l.nc.ConnectedServerId())
		if n += gone; gone < len(some) {
			break
		}
	}
	return members[:n]
}

// gone returns how many of the first of the members are gone, and waits for two probes of each at most.
func (l *Members) gone(ctx context.Context, members []string, server string) int {
	if l == nil {
		return 0
	}
	probes, found := make([]*Probe, len(members)), make(chan struct{}, len(members))
	for i, member := range members {
		probes[i] = l.Watch(member, server, true, func() { found <- struct{}{} })
	}
	defer func() {
		for _, probe := range probes {
			l.Unwatch(probe)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 2*l.every)
	defer cancel()
	for i, v := range probes {
		for !v.IsDead() {
			if v == nil {
				return i
			}
			select {
			case <-found:
			case <-ctx.Done():
				return i
			}
		}
	}
	return len(probes)
}
