package api

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
)

// Requests in an hour of callers who are no operators, over all instances.
const (
	maxChanges    = 20  // of a user's own that set an address, replace a secret, or make a record
	maxReplays    = 10  // for a user
	maxRotations  = 10  // for a user
	maxTests      = 20  // for a user, and to an address, without those to unverified addresses
	maxTestsOfKey = 200 // of a key that is not bound to a user
	maxUnverified = 5   // to unverified addresses of a user, and to one such address
)

// bound is the largest number of requests that count together in an hour.
type bound struct {
	of   string // describes the requests
	by   string // the id that they have in common
	most int
}

// isBounded reports whether bounds hold for a caller. Operators have none, and neither do callers over NATS, which are operators.
func isBounded(ctx context.Context) bool {
	caller := access.From(ctx)
	return len(caller.Scopes) > 0 && !caller.IsOperator()
}

// within counts a request towards bounds, or refuses it for one of them. The counts are in the store, so all instances share them and a
// restart keeps them, and a user who is deleted keeps them, too. A request that cannot be counted fails. Two round trips for each bound.
func (a *API) within(ctx context.Context, action, target string, bounds ...bound) error {
	if !isBounded(ctx) {
		return nil
	}
	request := nuid.Next()
	for _, b := range bounds {
		// A key without a type acts for users of every type: they count together.
		key := hold.ThrottleKey{Channel: "http", Group: "/bound", RecipientType: "ANY", UserID: audit.User(b.of + "\x00" + b.by)}
		hourly := contracts.Throttle{Limit: b.most, Per: int64(time.Hour / time.Second), Suppress: true}
		until, err := a.cfg.Throttles.Ask(ctx, key, request, time.Time{}, hourly, false)
		if err != nil {
			return err
		}
		if !until.IsZero() {
			a.cfg.Audit.Refused(ctx, action, target)
			return service.OverQuota(strings.ToUpper(action), fmt.Sprintf("too many %s: %d in an hour", b.of, b.most), time.Until(until))
		}
	}
	return nil
}

// mayTest counts a test message. Addresses that nobody but the user vouches for get fewer, so that users cannot have mail sent to others.
func (a *API) mayTest(ctx context.Context, r AddressRequest, e contracts.Endpoint) error {
	kind, most := "", maxTests
	if e.Unverified {
		kind, most = "unverified ", maxUnverified
	}
	bounds := []bound{
		{"test messages to " + kind + "addresses of the user", r.UserID, most},
		{"test messages to this " + kind + "address", r.Channel + "\x00" + strings.ToLower(e.Address), most},
	}
	if caller := access.From(ctx); caller.User == "" {
		bounds = append(bounds, bound{"test messages of the key", caller.Name, maxTestsOfKey})
	}
	return a.within(ctx, "test", r.target(), bounds...)
}
