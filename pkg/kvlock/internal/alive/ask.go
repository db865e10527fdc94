package alive

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// A member that was connected to another server is asked for there, twice, askAgain apart: a client whose connection was lost is back
// by then, on any server. That server alone knows whether the connection is closed: it is no death that the route between the two
// servers is cut.
const (
	askAfter = 200 * time.Millisecond // at most, so that not all who wait connect at once
	askAgain = 500 * time.Millisecond
	askEvery = 500 * time.Millisecond // after an answer that does not end the wait
	askTime  = 250 * time.Millisecond // bounds each part of asking
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

// askAt reports whether the server could be reached, and whether it knows no subscriber of subject. It takes a connection of its own
// there, as the client would make it.
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

// refuses reports whether there is no subscriber. One that there is does not answer.
func refuses(nc *nats.Conn, subject string) bool {
	_, err := nc.Request(subject, nil, askTime)
	return errors.Is(err, nats.ErrNoResponders)
}
