package kvlock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// DoOptions are the choices of one [Flight.Do]. The zero value is good.
type DoOptions struct {
	// ClaimTTL is after how long others take over when this process dies. Defaults to Config.ClaimTTL.
	ClaimTTL time.Duration

	// FailOpen computes the value although JetStream is unreachable, and returns it although it could not be stored;
	// others may compute it too. Defaults to false: ErrUnavailable is returned, and a call that waits for another
	// process waits until its context ends.
	FailOpen bool

	// FailureTTL says for how long an error of the function is kept, so that callers get it, as a [FailedError], and do
	// not run the function again; a fraction of a second counts as one. 0 keeps it for nobody but those who wait
	// already. Defaults to 0 for all.
	FailureTTL func(error) time.Duration

	// Fingerprint tells inputs apart that share a key, in at most 1,024 bytes: hash what is longer. Defaults to none.
	Fingerprint string

	// Jitter makes each TTL of a result or a failure longer or shorter by up to this fraction of it, from 0 to 0.5, so
	// that what was computed together does not expire together. Defaults to 0.
	Jitter float64

	// Job names what the value is wanted for, for people who look, and for who gets the result later: 128 bytes of it are
	// kept. Defaults to none.
	Job string

	// KeepRunning lets the function finish when every caller in this process has gone, if one of them wants it.
	// Defaults to false: its context is cancelled and the claim given back.
	KeepRunning bool

	// NegativeTTL is how long it is kept that there is nothing: see [ErrNotFound]. Defaults to 0: only those who wait
	// already are told.
	NegativeTTL time.Duration

	// NoWait returns a [TakenError] with the slot, instead of waiting, when somebody else computes the value, in this
	// process or another, and there is none meanwhile. Defaults to false.
	NoWait bool

	// Refresh computes a value anew before it expires: once this fraction of its TTL has passed, from 0 to 1, one
	// caller of all processes does so in the background. All others get the value that is there, as Cached, and so does
	// that one. Processes draw by chance when they try, in the first half of what is left. Defaults to 0: never.
	Refresh float64

	// Stale is for how long a value may be returned beyond its TTL, with the outcome Stale: while somebody computes it
	// anew in the background, and when that fails. After a failure nobody tries again for FailureTTL, or else for ten
	// seconds or a quarter of the TTL, whichever is less. Defaults to 0: it is not.
	Stale time.Duration

	// StaleWait is for how long a caller that may get a stale value waits for a new one first. Defaults to 0.
	StaleWait time.Duration

	// TTL is how long the result is kept. Defaults to Config.ResultTTL.
	TTL time.Duration

	// ValueTTL says for how long a value is kept, instead of TTL; a fraction of a second counts as one. 0 leaves it at
	// TTL. Defaults to 0 for all.
	ValueTTL func(value []byte) time.Duration
}

func (opts DoOptions) validate() error {
	var errs []error
	for _, o := range []struct {
		name string
		ttl  time.Duration
	}{{"ClaimTTL", opts.ClaimTTL}, {"NegativeTTL", opts.NegativeTTL}, {"TTL", opts.TTL}} {
		if o.ttl == 0 {
			continue
		}
		if err := checkTTL(o.ttl); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", o.name, err))
		}
	}
	if !(opts.Jitter >= 0 && opts.Jitter <= 0.5) {
		errs = append(errs, fmt.Errorf("DoOptions.Jitter is %g: want 0 to 0.5", opts.Jitter))
	}
	if !(opts.Refresh >= 0 && opts.Refresh < 1) {
		errs = append(errs, fmt.Errorf("DoOptions.Refresh is %g: want 0 to below 1", opts.Refresh))
	}
	if opts.Stale < 0 || opts.Stale > maxTTL || opts.StaleWait < 0 {
		errs = append(errs, fmt.Errorf("DoOptions.Stale is %s and StaleWait %s: want 0 to %s", opts.Stale, opts.StaleWait, maxTTL))
	}
	if err := checkFingerprint(opts.Fingerprint); err != nil {
		errs = append(errs, err) // only then, for a result in memory costs no allocation
	}
	return errors.Join(errs...)
}

// resultTTL is for how long value is kept.
func (opts DoOptions) resultTTL(value []byte, otherwise time.Duration) time.Duration {
	ttl := otherwise
	if opts.TTL > 0 {
		ttl = opts.TTL
	}
	if opts.ValueTTL != nil {
		if of := opts.ValueTTL(value); of > 0 {
			ttl = wholeSeconds(of)
		}
	}
	return jitter(ttl, opts.Jitter)
}

// failureTTL is for how long a failure is kept; 0 means not at all.
func (opts DoOptions) failureTTL(err error) time.Duration {
	if opts.FailureTTL == nil {
		return 0
	}
	return jitter(wholeSeconds(opts.FailureTTL(err)), opts.Jitter)
}

// wholeSeconds is d rounded up to a TTL; 0 when there is none.
func wholeSeconds(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return min((min(d, maxTTL) + time.Second - 1).Truncate(time.Second), maxTTL)
}

// jitter makes ttl longer or shorter by up to a fraction of it, in whole seconds, so that what was stored together does
// not go together.
func jitter(ttl time.Duration, fraction float64) time.Duration {
	spread := time.Duration(fraction * float64(ttl))
	if spread <= 0 {
		return ttl
	}
	ttl += rand.N(2*spread+1) - spread //nolint:gosec // spreads expiry, guards nothing
	return min(max(ttl.Round(time.Second), time.Second), maxTTL)
}
