package kvlock

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// reconnectTime is for how long a process that lives may be without a connection: its client tries again after two
// seconds, and whoever was disconnected by the same event may be back before it.
const reconnectTime = 5 * time.Second

// liveness tells others that this process is there, and finds out which others are not. Each store subscribes to a
// subject of its own and says nothing: a server answers for it when nobody is subscribed, as soon as the connection of a
// process that died is closed. Such an answer comes back to the same subject, and so one subscription serves for both.
//
// What it finds out is a hint, as a TTL is: a process can also have lost its connection. Whoever takes over from it does
// so by a conditional write, after which nothing that it writes is accepted.
type liveness struct {
	nc     *nats.Conn
	every  time.Duration
	prefix string // of the subjects of all members, with its final dot
	self   string // this member
	sub    *nats.Subscription
	heard  chan struct{} // closed when messages to this member arrive: others may conclude from none arriving
	once   sync.Once
	work   sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	running    bool
	reconnects uint64
	trusted    time.Time // since when "nobody is there" can be believed at once
	suspects   map[string]*suspect
}

// suspect is a member whose claim somebody waits for.
type suspect struct {
	sent    uint64 // probes
	refused uint64 // the last one that reached nobody
	inRow   int    // so many before it did not either
	since   time.Time
	vigils  map[*vigil]struct{}
}

// vigil is kept by one who waits for a claim of a member.
type vigil struct {
	member string
	server string        // to which the member was connected when it wrote the claim
	gone   chan struct{} // closed when the member is
}

// newLiveness makes a member. every is how often others are probed; if it is not positive there is none, and TTLs
// alone count.
func newLiveness(s *store, every time.Duration) (*liveness, error) {
	if every <= 0 {
		return nil, nil //nolint:nilnil // the methods take it for what it is
	}
	l := &liveness{
		nc: s.nc, every: every, prefix: "kvlock.alive." + s.bucket + ".", self: nuid.Next(), heard: make(chan struct{}),
		reconnects: s.nc.Stats().Reconnects, suspects: map[string]*suspect{},
	}
	var err error
	if l.sub, err = s.nc.Subscribe(l.prefix+l.self+".>", l.receive); err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", l.prefix+l.self, err)
	}
	// Where this is not permitted nothing arrives, and the member is not named in claims: it would look dead.
	if err := s.nc.Publish(l.prefix+l.self+".probe", nil); err != nil {
		return nil, errors.Join(fmt.Errorf("publish to %s: %w", l.prefix+l.self, err), l.sub.Unsubscribe())
	}
	select {
	case <-l.heard:
	case <-time.After(hearTime):
		s.log.Warn("kvlock: others will not find out when this process dies: nothing that is sent to it arrives", "subject", l.sub.Subject)
	}
	return l, nil
}

// hearTime is for how long a member waits for what it sends to itself before it goes on without.
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

// sign says in a claim whose it is, if others can find out whether that member is there.
func (l *liveness) sign(r *record) {
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

// receive takes a probe by another member, or the server's answer to a probe that reached nobody.
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

// watch starts to probe the member whose claim slot shows. It returns nil when there is none, or when it is this one.
func (l *liveness) watch(slot *Slot) *vigil {
	if l == nil || slot.State != Pending || slot.in().member == "" || slot.in().member == l.self {
		return nil
	}
	v := &vigil{member: slot.in().member, server: slot.in().server, gone: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.checkConnection(time.Now())
	s := l.suspects[v.member]
	if s == nil {
		s = &suspect{vigils: map[*vigil]struct{}{}}
		l.suspects[v.member] = s
		l.probe(v.member, s)
		if !l.running && !l.closed {
			l.running = true
			l.work.Go(l.run)
		}
	}
	s.vigils[v] = struct{}{}
	return v
}

func (l *liveness) unwatch(v *vigil) {
	if v == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.suspects[v.member]
	if s == nil {
		return
	}
	delete(s.vigils, v)
	if len(s.vigils) == 0 {
		delete(l.suspects, v.member)
	}
}
