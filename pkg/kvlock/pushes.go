package kvlock

import (
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// crowd is how many keys are looked at regularly before the leader is asked instead.
	crowd = 16

	// putOffs is how often in a row a key is not read when it is looked at.
	putOffs = 10
)

// pushes is what the board knows of the changes that the bucket pushed. A stream numbers its changes without gaps, so what
// was not pushed is known too. As long as nothing is missing, a read would say what is known: of a key that was read once,
// as of a change since which it has been watched.
type pushes struct {
	applied uint64    // all changes up to it were pushed, or floor is not below those that were not
	floor   uint64    // what is known as of a change below it may not be true any more
	begun   bool      // there is a beginning: until then any first push looks as if others were missing
	read    time.Time // when all keys were last to be read because of missing ones
	trusted time.Time // until when none is missing, as far as it matters
}

// hears takes note of a push, and says whether its key is watched. Both at once: a key that is watched from now on has
// missed this one.
func (b *board) hears(key string, m *nats.Msg) bool {
	sequence, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.hear(sequence)
	}
	return b.keys[key] != nil
}

// hear takes the number of a change that was pushed. It is called with mu held. When others before it are missing all keys
// are read, though not for each of many such.
func (b *board) hear(sequence uint64) {
	p := &b.pushes
	gap := p.begun && sequence > p.applied+1
	p.applied = max(p.applied, sequence)
	if !gap {
		return
	}
	p.floor, p.trusted = sequence, time.Time{}
	if now := time.Now(); now.Sub(p.read) >= recheckEvery {
		p.read = now
		b.allDue()
	}
}

func (b *board) startChecks() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checks.start()
}

func (b *board) pushedUpTo() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pushes.applied
}

// skip begins anew behind sequence, or behind the last change that was pushed: what is known may have changed up to it.
func (b *board) skip(sequence uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beginBehind(max(sequence, b.pushes.applied))
}

// reset begins anew behind sequence, whatever was pushed: what is known may have been undone.
func (b *board) reset(sequence uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beginBehind(sequence)
}

// beginBehind is called with mu held.
func (b *board) beginBehind(sequence uint64) {
	first := !b.pushes.begun
	b.pushes.applied, b.pushes.floor, b.pushes.begun = sequence, sequence, true
	if !first {
		b.forget()
		return
	}
	for _, k := range b.due { // they are being read, or are again when they are looked at
		k.asOf = 0
	}
}

// restart has all keys read, because the connection was down.
func (b *board) restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget()
}

// forget makes all keys due for reads that have not begun yet. It is called with mu held.
func (b *board) forget() {
	b.pushes.trusted = time.Time{}
	for _, k := range b.due {
		k.asOf, k.since = 0, b.reads+1
	}
	b.allDue()
}

// allDue is called with mu held.
func (b *board) allDue() {
	for _, k := range b.due {
		k.next = time.Time{}
	}
	b.nudge()
}

// extend says that no push from before then is missing.
func (b *board) extend(then time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pushes.trusted = then.Add(2 * recheckEvery)
	b.heard = time.Now()
}

// suspend has keys read when they are looked at, until extend is called.
func (b *board) suspend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pushes.trusted = time.Time{}
}

// putsOff says that k need not be read now, as it would be regularly: somebody was told all that there is to say, and
// whatever comes is pushed. It is called with mu held.
func (b *board) putsOff(k *watched, now time.Time) bool {
	known := k.asOf > 0 && k.asOf >= max(k.floor, b.pushes.floor) && k.last != nil && !k.last.over(now.Add(together))
	if !known || !now.Before(b.pushes.trusted) || k.put >= putOffs || k.resting() || !k.served(0) {
		k.put = 0
		return false
	}
	k.put++
	return true
}

// crowded says that so many keys are looked at regularly that the leader is asked instead.
func (b *board) crowded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.regular > crowd
}

// count takes note of whether k is looked at regularly. It is called with mu held, after each change of its watchers.
func (b *board) count(k *watched) {
	rests := k.resting() || k.watchers.none()
	switch {
	case rests == k.rests:
		return
	case rests:
		b.regular--
	default:
		b.regular++
		if b.regular == crowd+1 && b.source.subject != "" {
			b.checks.start()
			b.checks.soon()
		}
	}
	k.rests = rests
}
