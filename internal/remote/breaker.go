package remote

import (
	"time"

	"github.com/expediter-io/expediter/internal/retry"
)

// BreakerConfig has the bounds of a [Breaker].
type BreakerConfig struct {
	// Parties is the number of parties with failed calls, and no success in between, that opens the breaker. Required.
	Parties int

	// First is the first pause in which no call is made, and Last the longest: each is twice as long as the one before. Required.
	First, Last time.Duration

	// Trial is the time for which other calls wait while one tests the service. Required.
	Trial time.Duration

	// Grace is the time after a success in which failures do not open the breaker. Defaults to none.
	Grace time.Duration
}

// maxParties bounds the parties that a breaker remembers.
const maxParties = 1000

// Breaker decides when a service that fails is called again. The zero value is closed. The caller locks it.
//
// A call has a party, for which it is made: a place, a job, an owner. One party may ask for what the service can never do. So only
// the failures of several parties open a breaker, and a party whose calls have failed is not the first to test the service.
type Breaker struct {
	failed map[string]bool // parties with a failed call since the last success
	pauses int             // since then
	tests  string          // the party whose call tests the service
	until  time.Time       // when the next call may be made
	worked time.Time       // the last success
}

// IsOpen reports whether calls are held back, but for one that tests the service.
func (b *Breaker) IsOpen() bool { return b.pauses > 0 }

// Worked returns the time of the last success, zero for none.
func (b *Breaker) Worked() time.Time { return b.worked }

// Until returns the time from which calls may be made: in the past for a breaker that is closed, and for one that nobody calls.
func (b *Breaker) Until() time.Time { return b.until }

// pause returns the length of the present pause.
func (b *Breaker) pause(cfg BreakerConfig) time.Duration {
	return retry.Wait(b.pauses-1, cfg.First, cfg.Last)
}

// Wait returns the time until a call for a party may be made; 0 for now.
func (b *Breaker) Wait(cfg BreakerConfig, party string, now time.Time) time.Duration {
	if !b.IsOpen() {
		return 0
	}
	wait := b.until.Sub(now)
	if b.failed[party] {
		wait += b.pause(cfg) / 2 // others go first: this party's calls may fail even if the service works
	}
	return max(wait, 0)
}

// Call records that a call for a party is made. In an open breaker it tests the service, and other calls wait for its outcome.
func (b *Breaker) Call(cfg BreakerConfig, party string, now time.Time) {
	if b.IsOpen() {
		b.tests, b.until = party, now.Add(cfg.Trial)
	}
}

// Succeed records a call that succeeded, and reports whether the breaker was open.
func (b *Breaker) Succeed(now time.Time) (wasOpen bool) {
	wasOpen = b.IsOpen()
	*b = Breaker{until: now, worked: now}
	return wasOpen
}

// Leave records a call whose outcome says nothing about the service. If it was the test, the next call is.
func (b *Breaker) Leave(party string, now time.Time) {
	if b.IsOpen() && b.tests == party {
		b.tests, b.until = "", now
	}
}

// Fail records a call that failed, and reports whether it opens the breaker. A certain failure opens it whatever the number of parties,
// but not within BreakerConfig.Grace.
func (b *Breaker) Fail(cfg BreakerConfig, party string, now time.Time, certain bool) (opens bool) {
	if b.failed == nil {
		b.failed = map[string]bool{}
	}
	if len(b.failed) < maxParties {
		b.failed[party] = true
	}
	if b.until.IsZero() {
		b.until = now
	}
	if !b.IsOpen() {
		opens = now.Sub(b.worked) >= cfg.Grace && (certain || len(b.failed) >= cfg.Parties)
	}
	if opens || b.IsOpen() && b.tests == party { // a call from before the pause does not make it longer
		b.pauses, b.tests = b.pauses+1, ""
		b.until = now.Add(b.pause(cfg))
	}
	return opens
}

// Hold keeps calls back until a time, if that is later than the end of the present pause.
func (b *Breaker) Hold(until time.Time) {
	if b.IsOpen() && until.After(b.until) {
		b.until = until
	}
}
