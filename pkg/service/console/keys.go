package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

const (
	maxLocks    = 500     // of a page
	maxLimits   = 500     // keys of limits of a page
	maxSurveyed = 200_000 // messages of a bucket that are counted by their states
	maxRead     = 1 << 28 // bytes of them
)

func (c *Console) addKeys() {
	c.page("GET /keys", c.showLocks)
	c.page("GET /keys/results", c.showFlights)
	c.page("GET /keys/limits", c.showLimits)
	c.action("POST /keys/steal", "steal", c.planSteal)
}

// keysPage is the common part of the pages of keys.
type keysPage struct {
	Account, Bucket, Prefix string

	Locks   []kvlock.Lock
	More    bool // there are more keys than are shown
	Problem string

	Buckets []accountStream
	Survey  *flight.Survey

	Limits []limitRow
	Total  int
}

// ownAccount is account, except that without a name it returns the connection's own account, if that is shown: it has the locks of
// operators.
func (c *Console) ownAccount(r *request, name string) (Account, error) {
	if at := slices.IndexFunc(c.cfg.Accounts, func(a Account) bool { return a.Name == "" }); at >= 0 && name == "" {
		return c.cfg.Accounts[at].of(r.Context())
	}
	return c.account(r, name)
}

// locker opens the locks of a bucket for one request. Two round trips.
func (c *Console) locker(ctx context.Context, r *request, q url.Values) (locks *kvlock.Locker, p *keysPage, err error) {
	a, err := c.ownAccount(r, q.Get("account"))
	if err != nil {
		return nil, nil, err
	}
	p = &keysPage{Account: a.Name, Bucket: cmp.Or(q.Get("bucket"), contracts.BucketLocks), Prefix: q.Get("prefix")}
	locks, err = kvlock.NewLocker(ctx, a.JetStream, kvlock.LockerConfig{Bucket: p.Bucket, Instance: "console", Logger: c.cfg.Logger})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fail(http.StatusNotFound, "There is no bucket %.100q. expediter apply makes the bucket of expediter lock.", p.Bucket)
	}
	return locks, p, err
}

// showLocks lists the held locks of a bucket: three round trips, and one for each 512 records.
func (c *Console) showLocks(r *request) error {
	locks, p, err := c.locker(r.Context(), r, r.URL.Query())
	r.Live = topicTick
	r.Command = operate.Shell(append([]string{"expediter", "locks", "list"}, p.flags(p.Prefix)...)...)
	if err != nil && p.Bucket == contracts.BucketLocks && r.Context().Err() == nil { // the other pages still work
		p.Problem = err.Error()
		return r.render("keys", "Locks", p)
	}
	if err != nil {
		return err
	}
	defer locks.Close()
	for lock, err := range locks.List(r.Context(), p.Prefix) {
		if err != nil && lock.Name == "" {
			return err
		}
		if p.More = len(p.Locks) == maxLocks; p.More {
			break
		}
		p.Locks = append(p.Locks, lock) // also a lock that cannot be read
	}
	return r.render("keys", "Locks", p)
}

// flags returns the flags of a command about the bucket.
func (p *keysPage) flags(args ...string) []string {
	args = slices.DeleteFunc(args, func(arg string) bool { return arg == "" })
	if p.Bucket != contracts.BucketLocks {
		args = append(args, "--bucket", p.Bucket)
	}
	return args
}

// Steal returns the command line that steals a lock.
func (p *keysPage) Steal(name string) string {
	return operate.Shell(append([]string{"expediter", "locks", "steal"}, p.flags(name, "--yes")...)...)
}

// Left returns the time for which a lock stays held if its holder does not renew it.
func (p *keysPage) Left(l kvlock.Lock) string { return span(time.Until(l.Written.Add(l.TTL))) }

// Waiters returns the number of waiters of a lock.
func (p *keysPage) Waiters(l kvlock.Lock) (n int) {
	for _, w := range l.Queue {
		n += w.Waiters
	}
	return n
}

// planSteal takes a lock from the holder that the page has shown, for the next in the queue, if its name was typed.
func (c *Console) planSteal(r *request) (deed, error) {
	name, token := r.PostForm.Get("name"), r.PostForm.Get("token")
	if r.PostForm.Get("typed") != name || name == "" {
		return deed{}, fail(http.StatusConflict, "You typed %.100q, and the lock is %.100q. Nothing was done: type its name to take it.",
			r.PostForm.Get("typed"), name)
	}
	return deed{
		Target: "lock " + name, To: c.href("/keys") + "?" + url.Values{"account": r.PostForm["account"], "bucket": r.PostForm["bucket"]}.Encode(),
		Do: func(ctx context.Context) (int, error) {
			locks, _, err := c.locker(ctx, r, r.PostForm)
			if err != nil {
				return 0, err
			}
			defer locks.Close()
			held, err := locks.Inspect(ctx, name)
			if err == nil && (!held.Held || held.Token.String() != token) {
				err = fail(http.StatusConflict, "The lock %.100q has another holder by now, or none. Nothing was done: look again.", name)
			}
			if err != nil {
				return 0, err
			}
			lease, err := locks.Steal(ctx, name, kvlock.AcquireOptions{Metadata: map[string]string{"command": "console"}})
			if err != nil {
				return 0, err
			}
			return 1, lease.Release(ctx)
		},
		Note: func(int) string {
			return fmt.Sprintf("Took the lock %s from its holder. The next in the queue has it now.", name)
		},
	}, nil
}

// showFlights lists the buckets. On request it counts the results of one bucket by their states, which reads the whole bucket.
func (c *Console) showFlights(r *request) error {
	q := r.URL.Query()
	p := &keysPage{Account: q.Get("account"), Bucket: q.Get("bucket"), Prefix: q.Get("prefix")}
	r.Command = keysLine("results", p.Account, p.Bucket)
	var err error
	p.Buckets, err = c.streams(r.Context(), func(cfg jetstream.StreamConfig) bool { return strings.HasPrefix(cfg.Name, "KV_") })
	if err != nil {
		return err
	}
	if p.Bucket != "" {
		if err := c.countResults(r, p); err != nil {
			return err
		}
	}
	return r.render("keysresults", "Results", p)
}

// countResults counts the results of a bucket by their states.
func (c *Console) countResults(r *request, p *keysPage) error {
	at := slices.IndexFunc(p.Buckets, func(b accountStream) bool { return b.Bucket() == p.Bucket && b.Account == p.Account })
	if at < 0 {
		return fail(http.StatusNotFound, "There is no bucket %.100q in this account.", p.Bucket)
	}
	if state := p.Buckets[at].State; state.Msgs > maxSurveyed || state.Bytes > maxRead {
		return fail(http.StatusConflict, "The bucket %s has %s keys and %s. To count them by their states reads them all, which this page does "+
			"up to %s and %s. Use %s.", p.Bucket, number(state.Msgs), size(state.Bytes), number(maxSurveyed), size(maxRead), r.Command)
	}
	a, err := c.ownAccount(r, p.Account)
	if err != nil {
		return err
	}
	f, err := flight.New(r.Context(), a.JetStream, flight.Config{Bucket: p.Bucket, Instance: "console", Logger: c.cfg.Logger})
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := f.Survey(r.Context(), p.Prefix)
	p.Survey = &s
	return err
}

// limitRow is a key of a limit.
type limitRow struct {
	kvlock.LimitState

	Bucket string
}

// Count returns the number of held permits.
func (l limitRow) Count() (n int) {
	for _, held := range l.Held {
		n += held
	}
	return n
}

// showLimits lists the permits of the limits of workers and of other programs: two to six round trips for each bucket.
func (c *Console) showLimits(r *request) error {
	a, err := c.ownAccount(r, r.URL.Query().Get("account"))
	if err != nil {
		return err
	}
	p := &keysPage{Account: a.Name, Bucket: r.URL.Query().Get("bucket")}
	buckets := []string{contracts.BucketJobs, contracts.BucketLocks}
	if p.Bucket != "" {
		buckets = []string{p.Bucket}
	}
	for _, bucket := range buckets {
		found, total, err := kvlock.ListLimits(r.Context(), a.JetStream, bucket, maxLimits)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		p.Total += total
		for _, s := range found {
			p.Limits = append(p.Limits, limitRow{s, bucket})
		}
	}
	r.Command, r.Live = keysLine("limits", p.Account, p.Bucket), topicTick
	return r.render("keyslimits", "Limits", p)
}

// keysLine returns a command line about an account, or one of its buckets.
func keysLine(verb, account, bucket string) string {
	args := []string{"expediter", verb}
	if bucket != "" {
		args = append(args, bucket)
	}
	if account != "" {
		args = append(args, "--account", account)
	}
	return operate.Shell(args...)
}
