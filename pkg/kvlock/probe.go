package kvlock

import (
	"context"
	"strconv"
	"time"
)

// run probes for as long as somebody waits: all members each time, and between two times those that seem to be gone.
func (l *liveness) run() {
	half := time.NewTicker(max(l.every/2, time.Millisecond))
	defer half.Stop()
	for n := 1; l.probeAll(n%2 == 0); n++ {
		<-half.C
	}
}

// probeAll says whether there is anybody to probe.
func (l *liveness) probeAll(all bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = len(l.suspects) > 0 && !l.closed
	l.checkConnection(time.Now())
	if !l.running || !l.nc.IsConnected() { // the client would keep the probes
		return l.running
	}
	for member, s := range l.suspects {
		if all || s.inRow > 0 {
			l.probe(member, s)
		}
	}
	return true
}

// probe asks for a member. It gets no answer but the server's, that nobody is there.
func (l *liveness) probe(member string, s *suspect) {
	s.sent++
	reply := l.prefix + l.self + "." + member + "." + strconv.FormatUint(s.sent, 10)
	if err := l.nc.PublishRequest(l.prefix+member+".probe", reply, nil); err != nil {
		s.inRow = 0 // the next tick tries again
	}
}

// checkConnection begins anew after a reconnect: who was disconnected too may not be back yet.
func (l *liveness) checkConnection(now time.Time) {
	reconnects := l.nc.Stats().Reconnects
	if reconnects == l.reconnects && l.nc.IsConnected() {
		return
	}
	l.reconnects, l.trusted = reconnects, now.Add(reconnectTime)
	for _, s := range l.suspects {
		s.inRow = 0
	}
}

// refused takes note of a probe that reached nobody.
func (l *liveness) refused(member string, probe uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.checkConnection(now)
	s := l.suspects[member]
	if s == nil || probe > s.sent {
		return
	}
	if s.inRow == 0 || probe != s.refused+1 {
		s.inRow, s.since = 0, now
	}
	s.inRow++
	s.refused = probe
	if s.inRow < 2 {
		return
	}
	for v := range s.vigils {
		if l.believes(v, now) || now.Sub(s.since) >= reconnectTime {
			close(v.gone)
			delete(s.vigils, v)
		}
	}
}

// believes says that a member which is not there did not just lose the server that it was connected to: this member is
// connected to the same, and was all the time.
func (l *liveness) believes(v *vigil, now time.Time) bool {
	return v.server != "" && v.server == l.nc.ConnectedServerId() && !now.Before(l.trusted)
}

// gone asks whether the member that holds the claim in slot is gone. It does not wait for what takes long to find out.
func (l *liveness) gone(ctx context.Context, slot Slot) bool {
	v := l.watch(&slot)
	if v == nil {
		return false
	}
	defer l.unwatch(v)
	bound := time.NewTimer(2 * l.every)
	defer bound.Stop()
	select {
	case <-v.gone:
		return true
	case <-bound.C:
		return false
	case <-ctx.Done():
		return false
	}
}
