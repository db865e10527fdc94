package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
)

const (
	maxLocks  = 500 // of a page
	maxLimits = 500 // keys of limits of a page
)

func (c *Console) addKeys() {
	c.page("GET /keys", []string{"account", "bucket", "prefix"}, c.showLocks)
	c.page("GET /keys/limits", []string{"account", "bucket"}, c.showLimits)
	c.action("POST /keys/steal", nil, c.planSteal)
}

type keysPage struct {
	Account, Bucket, Prefix string

	Locks   []kvlock.Lock
	More    bool // there are more keys than are shown
	Problem string

	Limits []operate.Limit
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
func (p *keysPage) Left(l kvlock.Lock) string { return span(time.Until(l.Expires)) }

// planSteal takes a lock from the holder that the page has shown, for the next in the queue, if its name was typed.
func (c *Console) planSteal(r *request) (deed, error) {
	name, token := r.PostForm.Get("name"), r.PostForm.Get("token")
	if r.PostForm.Get("typed") != name || name == "" {
		return deed{}, fail(http.StatusConflict, "You typed %.100q, and the lock is %.100q. Nothing was done: type its name to take it.",
			r.PostForm.Get("typed"), name)
	}
	locks, _, err := c.locker(r.Context(), r, r.PostForm)
	if err != nil {
		return deed{}, err
	}
	context.AfterFunc(r.Context(), locks.Close) // after the action
	a, err := operate.StealLock(r.Context(), locks, name, token, "console")
	return deed{Action: a, To: c.href("/keys", query("account", r.PostForm.Get("account"), "bucket", r.PostForm.Get("bucket")))}, err
}

// showLimits lists the permits of the limits of workers and of other programs.
func (c *Console) showLimits(r *request) error {
	a, err := c.ownAccount(r, r.URL.Query().Get("account"))
	if err != nil {
		return err
	}
	p := &keysPage{Account: a.Name, Bucket: r.URL.Query().Get("bucket")}
	if p.Limits, p.Total, err = operate.Limits(r.Context(), a.JetStream, p.Bucket, maxLimits); err != nil {
		return err
	}
	r.Command, r.Live = operate.Line("limits "+p.Bucket, &operate.JobSelection{Account: p.Account}), topicTick
	return r.render("keyslimits", "Limits", p)
}
