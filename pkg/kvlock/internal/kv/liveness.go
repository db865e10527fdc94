package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// reconnectTime is the time for which a live process may be without a connection: its client tries again after two seconds, and other
// processes that the same event disconnected may be back before it.
const reconnectTime = 5 * time.Second

// Members shows other processes that this process is alive, and finds out which others are not. Each process subscribes to a subject of
// its own and sends no answers. The server answers a probe without a subscriber, as soon as the connection of a dead process is closed.
// That answer comes back to the prober's own subject, so one subscription serves for both.
//
// The result is a hint, as a TTL is: a process that is not reached may only have lost its connection. Another process takes over from it
// by a conditional write, after which none of its writes is accepted.
//
// A nil *Members probes nobody, and nobody can probe it.
type Members struct {
	nc      *nats.Conn
	every   time.Duration
	prefix  string // the prefix of the subjects of all members, with its final dot
	self    string // this member
	sub     *nats.Subscription
	onProbe chan struct{} // closed when a message to this member has arrived; until then a missing answer proves nothing to others
	once    sync.Once
	wake    chan struct{} // has an element when run is to look again
	work    sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	running    bool
	next       time.Time // the time of the next probe of a member that seems to be alive
	reconnects uint64
	trusted    time.Time // the time since which "no subscriber" is trusted at once
	suspects   map[string]*suspect
}

// suspect is a member for which a caller waits.
type suspect struct {
	came    time.Time // the time at which the first caller began to wait
	probed  time.Time // the time of the last probe; zero when none was sent
	sent    uint64    // probes
	refused uint64    // the last probe that reached no subscriber
	inRow   int       // the number of probes in a row before it that reached none either
	since   time.Time
	asks    time.Time // the time at which its own server is asked
	asking  bool
	probes  map[*Probe]struct{}
}

// Probe is the wait of one caller for a member.
type Probe struct {
	member string
	server string // the server to which the member was connected
	dead   atomic.Bool
	found  func() // called then
}

// IsDead reports whether the member was found dead.
func (v *Probe) IsDead() bool { return v != nil && v.dead.Load() }

// ProbeEvery is the default time between two probes of a member for which a caller waits.
const ProbeEvery = 25 * time.Millisecond

// Multiples of that time, so that processes which wait for each other send few probes: for a process that has waited for one member for a
// while, and for a process that waits for several, over all of them.
const (
	patient = 5
	shared  = 10
)

// IsOf reports whether the wait is for a member that is connected to server.
func (v *Probe) IsOf(member, server string) bool {
	return v != nil && v.member == member && v.server == server
}

// NewMembers makes a member. every is the time between two probes; if it is not positive, NewMembers returns nil, and only TTLs count.
func NewMembers(s *Store, every time.Duration) (*Members, error) {
	if every <= 0 {
		return nil, nil
	}
	l := &Members{
		nc: s.Conn, every: every, prefix: "kvlock.alive." + s.Bucket + ".", self: namePrefix + nuid.Next(), onProbe: make(chan struct{}),
		wake: make(chan struct{}, 1), reconnects: s.Conn.Stats().Reconnects, suspects: map[string]*suspect{},
	}
	var err error
	if l.sub, err = s.Conn.Subscribe(l.prefix+l.self+".>", l.receive); err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", l.prefix+l.self, err)
	}
	// Without the permission nothing arrives, and the member is not named in records: it would look dead.
	if err := s.Conn.Publish(l.prefix+l.self+".probe", nil); err != nil {
		return nil, errors.Join(fmt.Errorf("publish to %s: %w", l.prefix+l.self, err), l.sub.Unsubscribe())
	}
	select {
	case <-l.onProbe:
	case <-time.After(probeTimeout):
		s.Log.Warn("kvlock: others will not find out when this process dies: nothing that is sent to it arrives", "subject", l.sub.Subject)
	}
	return l, nil
}

// namePrefix begins the names of members that can be probed.
const namePrefix = "alive"

// Self returns the name of this member, and the server to which it is connected; "" when others cannot probe it.
func (l *Members) Self() (member, server string) {
	if l == nil {
		return "", ""
	}
	select {
	case <-l.onProbe:
		return l.self, l.nc.ConnectedServerId()
	default:
		return "", ""
	}
}

// probeTimeout is the time for which a member waits for its probe of itself before it goes on without liveness.
const probeTimeout = 250 * time.Millisecond

// Close ends the probing.
func (l *Members) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.look()
	l.work.Wait()
	_ = l.sub.Unsubscribe() // the connection is closed, then
}

// receive takes a probe by another member, or the server's answer to a probe that reached no subscriber.
func (l *Members) receive(m *nats.Msg) {
	l.once.Do(func() { close(l.onProbe) })
	if m.Header.Get("Status") != "503" {
		return
	}
	member, probe, _ := strings.Cut(strings.TrimPrefix(m.Subject, l.prefix+l.self+"."), ".")
	if n, err := strconv.ParseUint(probe, 10, 64); err == nil {
		l.refused(member, n)
	}
}

// Watch starts to probe a member, which was connected to server, until Unwatch. It returns nil for this member, and for no member. urgent
// is for a caller that does not wait until others were probed. found is called when the member is found dead; found must not call the
// Members.
func (l *Members) Watch(member, server string, urgent bool, found func()) *Probe {
	if l == nil || member == "" || member == l.self {
		return nil
	}
	v := &Probe{member: member, server: server, found: found}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.checkConnection(now)
	s := l.suspects[member]
	if s == nil {
		s = &suspect{came: now, probes: map[*Probe]struct{}{}}
		l.suspects[member] = s
		if urgent || len(l.suspects) == 1 {
			l.probe(member, s, now)
		}
		if !l.running && !l.closed {
			l.running = true
			l.work.Go(l.run)
		}
	}
	s.probes[v] = struct{}{}
	return v
}

// Unwatch ends a probe that Watch began.
func (l *Members) Unwatch(v *Probe) {
	if v == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.suspects[v.member]
	if s == nil {
		return
	}
	delete(s.probes, v)
	if len(s.probes) == 0 {
		delete(l.suspects, v.member)
	}
}

// look makes run look again.
func (l *Members) look() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run probes for as long as a caller waits.
func (l *Members) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.wake:
		}
		wait, more := l.probeDue(time.Now())
		if !more {
			return
		}
		timer.Reset(wait)
	}
}

// probeDue probes the members that seem to be gone, and of the others the one that was probed least recently. It returns the wait before
// the next call, and reports whether any member is left to probe.
func (l *Members) probeDue(now time.Time) (wait time.Duration, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = len(l.suspects) > 0 && !l.closed
	l.checkConnection(now)
	if !l.running || !l.nc.IsConnected() { // the client would keep the probes
		return l.every, l.running
	}
	var first *suspect
	var of string
	until := now.Add(shared * l.every)
	for member, s := range l.suspects {
		switch due := s.probed.Add(l.doubting(s)); {
		case s.inRow == 0 && (first == nil || s.probed.Before(first.probed)):
			first, of = s, member
		case s.inRow == 0:
		case !due.After(now):
			l.probe(member, s, now)
			until = earlier(until, now.Add(l.doubting(s)))
		default:
			until = earlier(until, due)
		}
	}
	if first != nil {
		if !l.next.After(now) {
			l.probe(of, first, now)
		}
		until = earlier(until, l.next)
	}
	return max(until.Sub(now), time.Millisecond), true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// doubting returns the time between two probes of a member that seems to be gone.
func (l *Members) doubting(s *suspect) time.Duration {
	if s.inRow < 2 {
		return l.every / 2
	}
	return min(shared*l.every, max(l.every, time.Until(s.asks))) // the member is gone now, but not known for how long
}

// pace returns the time between two probes of members that seem to be alive. Where many processes wait for many members, all of them probe
// each member in turn. One of these processes is enough: it takes over, which the others see.
func (l *Members) pace(s *suspect, now time.Time) time.Duration {
	if len(l.suspects) > 1 {
		return shared * l.every
	}
	return min(max(now.Sub(s.came)/(8*patient), l.every), patient*l.every)
}

// probe probes a member. The only answer is that of the server, for no subscriber.
func (l *Members) probe(member string, s *suspect, now time.Time) {
	if s.inRow == 0 {
		l.next = now.Add(l.pace(s, now))
	} else if s.sent >= s.refused+shared {
		s.inRow = 0 // it is back
	}
	s.sent++
	s.probed = now
	reply := l.prefix + l.self + "." + member + "." + strconv.FormatUint(s.sent, 10)
	if err := l.nc.PublishRequest(l.prefix+member+".probe", reply, nil); err != nil {
		s.inRow = 0 // the next tick tries again
	}
}

// checkConnection starts over after a reconnect: others that were disconnected too may not be back yet.
func (l *Members) checkConnection(now time.Time) {
	reconnects := l.nc.Stats().Reconnects
	if reconnects == l.reconnects && l.nc.IsConnected() {
		return
	}
	l.reconnects, l.trusted = reconnects, now.Add(reconnectTime)
	for _, s := range l.suspects {
		s.inRow = 0
	}
}

// refused records a probe that reached no subscriber.
func (l *Members) refused(member string, probe uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.checkConnection(now)
	s := l.suspects[member]
	if s == nil || probe > s.sent {
		return
	}
	if s.inRow == 0 || probe != s.refused+1 {
		s.inRow, s.since, s.asks = 0, now, now.Add(rand.N(askAfter))
	}
	s.inRow++
	s.refused = probe
	if s.inRow < 2 {
		l.look()
		return
	}
	for v := range s.probes {
		switch {
		case l.believes(v, now) || now.Sub(s.since) >= reconnectTime:
			s.end(v)
		case !s.asking && !l.closed && !now.Before(s.asks) && !now.Before(l.trusted) && v.server != "":
			s.asking = true
			l.work.Go(func() { l.ask(s, member, v.server) })
		}
	}
}

// end ends a wait: its member is dead.
func (s *suspect) end(v *Probe) {
	v.dead.Store(true)
	v.found()
	delete(s.probes, v)
}

// believes reports whether a probe without a subscriber shows at once that its member is dead, and did not just lose its server. That is
// so if this member has been connected to the same server all the time.
func (l *Members) believes(v *Probe, now time.Time) bool {
	return v.server != "" && v.server == l.nc.ConnectedServerId() && !now.Before(l.trusted)
}

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
	is := l.askAt(server, l.prefix+member+".probe")
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s.asking, s.asks = false, now.Add(askEvery)
	if is == alive {
		s.since = now
	}
	for v := range s.probes {
		if is == dead && v.server == server && s.inRow > 0 {
			s.end(v)
		}
	}
}

// fate is what the server to which a member was connected knows of the member.
type fate uint8

const (
	unknown fate = iota // the server cannot be reached
	alive
	dead // it has no subscriber
)

// askAt asks a server for the member that subscribes to subject. It makes a separate connection to that server, as the client would.
func (l *Members) askAt(server, subject string) fate {
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
			is := alive
			if refuses(nc, subject) {
				<-time.After(askAgain) // its client may be about to reconnect
				if refuses(nc, subject) {
					is = dead
				}
			}
			if !nc.IsClosed() { // else the answers prove nothing
				nc.Close()
				return is
			}
		}
		nc.Close()
	}
	return unknown
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
