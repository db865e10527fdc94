package flight

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// reconnectTime is for how long a process that lives may be without a connection: its client tries again after two
// seconds, and others that were disconnected by the same event may be back before it.
const reconnectTime = 5 * time.Second

// liveness lets other processes see that this one is alive, and finds out which others are not. Each store subscribes
// to a subject of its own and sends no answers: the server answers a probe when there is no subscriber, as soon as the
// connection of a process that died is closed. Such an answer comes back to the prober's own subject, so one
// subscription serves for both.
//
// The result is a hint, as a TTL is: a process that is not reached may also have lost its connection only. Another
// process takes over from it by a conditional write, after which none of its writes is accepted.
type liveness struct {
	nc     *nats.Conn
	every  time.Duration
	prefix string // of the subjects of all members, with its final dot
	self   string // this member
	sub    *nats.Subscription
	heard  chan struct{} // closed when a message to this member has arrived: until then others must not conclude anything from silence
	once   sync.Once
	work   sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	running    bool
	reconnects uint64
	trusted    time.Time // since when "no subscriber" is trusted at once
	suspects   map[string]*suspect
}

// suspect is a member with a claim that a caller waits for.
type suspect struct {
	sent    uint64 // probes
	refused uint64 // the last probe that reached no subscriber
	inRow   int    // how many in a row before it did not either
	since   time.Time
	probes  map[*ownerProbe]struct{}
}

// ownerProbe is the wait of one caller for a claim of a member.
type ownerProbe struct {
	member string
	server string        // to which the member was connected when it wrote the claim
	dead   chan struct{} // closed when the member is found dead
}

// newLiveness makes a member. every is how often others are probed; if it is not positive newLiveness returns nil, and
// TTLs alone count.
func newLiveness(s *kv.Store, every time.Duration) (*liveness, error) {
	if every <= 0 {
		return nil, nil //nolint:nilnil // the methods take it for what it is
	}
	l := &liveness{
		nc: s.Conn, every: every, prefix: "kvlock.alive." + s.Bucket + ".", self: nuid.Next(), heard: make(chan struct{}),
		reconnects: s.Conn.Stats().Reconnects, suspects: map[string]*suspect{},
	}
	var err error
	if l.sub, err = s.Conn.Subscribe(l.prefix+l.self+".>", l.receive); err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", l.prefix+l.self, err)
	}
	// Where this is not permitted nothing arrives, and the member is not named in claims: it would look dead.
	if err := s.Conn.Publish(l.prefix+l.self+".probe", nil); err != nil {
		return nil, errors.Join(fmt.Errorf("publish to %s: %w", l.prefix+l.self, err), l.sub.Unsubscribe())
	}
	select {
	case <-l.heard:
	case <-time.After(hearTime):
		s.Log.Warn("kvlock: others will not find out when this process dies: nothing that is sent to it arrives", "subject", l.sub.Subject)
	}
	return l, nil
}

// hearTime is for how long a member waits for its probe of itself before it goes on without liveness.
const hearTime = 250 * time.Millisecond

func (l *liveness) close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.work.Wait()
	if err := l.sub.Unsubscribe(); err != nil {
		return fmt.Errorf("unsubscribe from %s: %w", l.prefix+l.self, err)
	}
	return nil
}

// sign names this member in a claim, if others can find out whether it is alive.
func (l *liveness) sign(r *claimRecord) {
	r.Member, r.Server = "", ""
	if l == nil || r.Handoff || r.State != Pending.String() {
		return
	}
	select {
	case <-l.heard:
		r.Member, r.Server = l.self, l.nc.ConnectedServerId()
	default:
	}
}

// receive takes a probe by another member, or the server's answer to a probe that reached no subscriber.
func (l *liveness) receive(m *nats.Msg) {
	l.once.Do(func() { close(l.heard) })
	if m.Header.Get("Status") != "503" {
		return
	}
	member, probe, _ := strings.Cut(strings.TrimPrefix(m.Subject, l.prefix+l.self+"."), ".")
	if n, err := strconv.ParseUint(probe, 10, 64); err == nil {
		l.refused(member, n)
	}
}

// watch starts to probe the member whose claim slot shows. It returns nil when the claim names no member, or this one.
func (l *liveness) watch(slot *Slot) *ownerProbe {
	if l == nil || slot.State != Pending || slot.in().member == "" || slot.in().member == l.self {
		return nil
	}
	v := &ownerProbe{member: slot.in().member, server: slot.in().server, dead: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checkConnection(time.Now())
	s := l.suspects[v.member]
	if s == nil {
		s = &suspect{probes: map[*ownerProbe]struct{}{}}
		l.suspects[v.member] = s
		l.probe(v.member, s)
		if !l.running && !l.closed {
			l.running = true
			l.work.Go(l.run)
		}
	}
	s.probes[v] = struct{}{}
	return v
}

func (l *liveness) unwatch(v *ownerProbe) {
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

// run probes for as long as a caller waits: all members each time, and between two times those that seem to be gone.
func (l *liveness) run() {
	half := time.NewTicker(max(l.every/2, time.Millisecond))
	defer half.Stop()
	for n := 1; l.probeAll(n%2 == 0); n++ {
		<-half.C
	}
}

// probeAll probes the members, and reports whether there are any.
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

// probe probes a member. The only answer is the server's, that there is no subscriber.
func (l *liveness) probe(member string, s *suspect) {
	s.sent++
	reply := l.prefix + l.self + "." + member + "." + strconv.FormatUint(s.sent, 10)
	if err := l.nc.PublishRequest(l.prefix+member+".probe", reply, nil); err != nil {
		s.inRow = 0 // the next tick tries again
	}
}

// checkConnection begins anew after a reconnect: others that were disconnected too may not be back yet.
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

// refused records a probe that reached no subscriber.
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
	for v := range s.probes {
		if l.believes(v, now) || now.Sub(s.since) >= reconnectTime {
			close(v.dead)
			delete(s.probes, v)
		}
	}
}

// believes reports whether a probe without a subscriber shows at once that its member is dead, and did not just lose
// its server: this member is connected to the same server, and was all the time.
func (l *liveness) believes(v *ownerProbe, now time.Time) bool {
	return v.server != "" && v.server == l.nc.ConnectedServerId() && !now.Before(l.trusted)
}

// isDead reports whether the member that holds the claim in slot is gone. It waits for two probes at most, and returns
// false when those do not decide.
func (l *liveness) isDead(ctx context.Context, slot Slot) bool {
	v := l.watch(&slot)
	if v == nil {
		return false
	}
	defer l.unwatch(v)
	bound := time.NewTimer(2 * l.every)
	defer bound.Stop()
	select {
	case <-v.dead:
		return true
	case <-bound.C:
		return false
	case <-ctx.Done():
		return false
	}
}
