package liveness

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// A member that was connected to another server is probed there, twice, askAgain apart: a client whose connection was lost is back by
// then, on any server. Only that server knows whether the connection is closed: a cut route between two servers is not a death.
const (
	askAfter = 200 * time.Millisecond // the longest wait before the first request, so that not all waiters connect at once
	askAgain = 500 * time.Millisecond
	askEvery = 500 * time.Millisecond // the wait after an answer that does not end the wait for the member
	askTime  = 250 * time.Millisecond // bounds each part of a request
)

// ask finds out from the server to which a member was connected whether it is gone.
func (l *Members) ask(s *suspect, member, server string) {
	reached, gone := l.askAt(server, l.prefix+member+".probe")
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s.asking, s.asks = false, now.Add(askEvery)
	if reached && !gone {
		s.since = now
	}
	for v := range s.probes {
		if gone && v.server == server && s.inRow > 0 {
			s.end(v)
		}
	}
}

// askAt reports whether the server could be reached, and whether it knows no subscriber of subject. It makes a connection of its own to
// that server, as the client would.
func (l *Members) askAt(server, subject string) (reached, gone bool) {
	opts := l.nc.Opts
	opts.Url, opts.AllowReconnect, opts.RetryOnFailedConnect, opts.Timeout = "", false, false, askTime
	opts.IgnoreDiscoveredServers = true
	opts.ClosedCB, opts.ConnectedCB, opts.DisconnectedCB, opts.DisconnectedErrCB, opts.DiscoveredServersCB = nil, nil, nil, nil, nil
	opts.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {}
	for _, url := range l.nc.Servers() {
		opts.Servers = []string{url}
		nc, err := opts.Connect()
		if err != nil {
			continue
		}
		if nc.ConnectedServerId() == server {
			if gone = refuses(nc, subject); gone {
				<-time.After(askAgain)
				gone = refuses(nc, subject)
			}
			reached = !nc.IsClosed()
		}
		nc.Close()
		if reached {
			break
		}
	}
	return reached, gone
}

// refuses reports whether there is no subscriber. A subscriber does not answer.
func refuses(nc *nats.Conn, subject string) bool {
	_, err := nc.Request(subject, nil, askTime)
	return errors.Is(err, nats.ErrNoResponders)
}

// IsGone reports whether a member, which was connected to server, is gone. It waits for two probes at most, and returns false when they do
// not decide.
func (l *Members) IsGone(ctx context.Context, member, server string) bool {
	return l.gone(ctx, []string{member}, server) == 1
}

// Gone returns the members before the first that is alive. Where many processes call it with the members before them, the nearest first,
// each sends few probes.
func (l *Members) Gone(ctx context.Context, members []string) []string {
	if l == nil {
		return nil
	}
	if other := slices.IndexFunc(members, func(m string) bool { return !strings.HasPrefix(m, namePrefix) }); other >= 0 {
		members = members[:other]
	}
	const more = 8 // the factor of the number of probes after a round in which all members are gone
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

// gone returns the number of members before the first that is alive. It waits for two probes of each at most.
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
