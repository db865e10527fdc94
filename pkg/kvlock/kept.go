package kvlock

import (
	"fmt"
	"time"
)

// kept is the part of a record about a value that outlives its TTL, or that a claim carries: while it is computed anew,
// readers still get it, and it is put back when that fails.
type kept struct {
	Claim    string `json:"claim,omitempty"`    // pending: under which the value was computed
	Instance string `json:"instance,omitempty"` // pending: where
	Job      string `json:"job,omitempty"`      // pending: for what
	Since    int64  `json:"since,omitempty"`    // when it was stored, in ms since 1970 by the server's clock, if not with this record
	Fresh    int64  `json:"fresh,omitempty"`    // its TTL in ms, when it is kept for longer
	Holds    int64  `json:"holds,omitempty"`    // pending: the claim's TTL in s, when the record is kept for longer
	Pause    int64  `json:"pause,omitempty"`    // done: for so many ms from now nobody computes it anew
	Tried    string `json:"tried,omitempty"`    // done: the claim that failed to
}

// check refuses what no writer writes.
func (k kept) check() error {
	for name, n := range map[string]int64{"fresh": k.Fresh, "holds": k.Holds, "pause": k.Pause} {
		if n < 0 || n > int64(maxTTL/time.Millisecond) {
			return fmt.Errorf("%s of %d is out of range", name, n)
		}
	}
	if k.Since < 0 {
		return fmt.Errorf("value stored at %d", k.Since)
	}
	return nil
}

// hasValue says that the slot answers the question: with a value, or with that there is none.
func (s Slot) hasValue() bool {
	return s.State == Done || s.State == Pending && s.kept().Since > 0
}

// valueAge is how long ago the value was stored.
func (s Slot) valueAge() time.Duration { return s.aged + s.earlier + time.Since(s.seen) }

// fresh is for how long the value is good; 0 means for ever.
func (s Slot) fresh() time.Duration {
	if s.kept().Fresh > 0 {
		return time.Duration(s.kept().Fresh) * time.Millisecond
	}
	return s.TTL
}

// Stale says that the value is past its TTL: it is kept for those who rather take it than wait, see DoOptions.Stale.
func (s Slot) Stale() bool {
	return s.hasValue() && s.kept().Fresh > 0 && s.valueAge() >= s.fresh()
}

// paused says that nobody is to compute the value anew yet.
func (s Slot) paused() bool {
	return s.aged+time.Since(s.seen) < time.Duration(s.kept().Pause)*time.Millisecond
}

// claimEnd is when a claim is over that the server does not end, because it keeps the value in it for longer. It is zero
// for any other.
func (s *Slot) claimEnd() time.Time {
	if s.State != Pending || s.kept().Holds == 0 {
		return time.Time{}
	}
	return s.seen.Add(time.Duration(s.kept().Holds)*time.Second + claimGrace - s.aged)
}

// claimGrace is what a claim is given beyond its TTL where others tell from their clocks that it is over. The holder
// itself ends it before the TTL.
const claimGrace = time.Second

// abandoned says that the claim is over.
func (s Slot) abandoned() bool {
	end := s.claimEnd()
	return !end.IsZero() && !time.Now().Before(end)
}

// survivor is what a claim that is over leaves that nobody ended: the value in it is the result again, as old as it is.
func (s Slot) survivor() Slot {
	k := *s.kept()
	s.State, s.Claim, s.Owner, s.Job, s.Handoff = Done, k.Claim, k.Instance, k.Job, false
	k.Claim, k.Instance, k.Job, k.Holds = "", "", "", 0
	s.replace(func(in *inner) { in.kept, in.member, in.server = &k, "", "" })
	return s
}

// carried is a value that a claim keeps for readers, as it is stored.
type carried struct {
	data  []byte
	value packed
	kept  kept
	until time.Time // when it goes
}

// carry is the value of the slot, for a claim on it.
func (s Slot) carry() carried {
	if !s.hasValue() || s.NotFound {
		return carried{}
	}
	c := carried{data: s.Value, kept: *s.kept(), until: s.seen.Add(s.TTL - s.aged)}
	if s.TTL == 0 {
		c.until = s.seen.Add(maxTTL)
	}
	if origin := s.in().origin; origin != nil { // as it is stored
		c.data, c.value = origin.stored, origin.packed
	}
	if s.State == Done {
		c.kept.Claim, c.kept.Instance, c.kept.Job = s.Claim, s.Owner, s.Job
	}
	if c.kept.Since == 0 {
		c.kept.Since = s.Created.UnixMilli()
	}
	if c.kept.Fresh == 0 {
		c.kept.Fresh = s.TTL.Milliseconds()
	}
	c.kept.Holds, c.kept.Pause, c.kept.Tried = 0, 0, ""
	return c
}

// left is for how long the value is still to be kept: 0 for not at all.
func (c carried) left() time.Duration {
	if c.kept.Since == 0 {
		return 0
	}
	return wholeSeconds(time.Until(c.until))
}

// pause is for how long nobody computes the value anew after that failed, unless the caller says so.
func (c carried) pause() time.Duration {
	return min(retryPause, time.Duration(c.kept.Fresh)*time.Millisecond/4)
}

const retryPause = 10 * time.Second

// load puts the value into the change of a pending record, whose claim holds for as long as the change says.
func (c carried) load(ch *change, r *record) {
	left := c.left()
	if left == 0 {
		return
	}
	ch.value, r.Value, r.Kept = c.data, c.value, c.kept
	if left > ch.ttl {
		r.Kept.Holds = seconds(ch.ttl)
		ch.ttl, r.TTL = left, seconds(left)
	}
}

// restore makes of a pending record one of the value again, after the claim of tried failed, or nil for none.
func (c carried) restore(r *record, left, pause time.Duration, tried string) {
	r.State, r.TTL, r.Value, r.Kept = Done.String(), seconds(left), c.value, c.kept
	r.Claim, r.Instance, r.Job = c.kept.Claim, c.kept.Instance, c.kept.Job
	r.Kept.Claim, r.Kept.Instance, r.Kept.Job = "", "", ""
	r.Kept.Pause, r.Kept.Tried = pause.Milliseconds(), tried
}
