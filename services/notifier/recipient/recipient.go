// Package recipient finds the recipients of an event. A [Resolver] is a source of recipients: the [Directory],
// or the event itself, which [Carried] prefers to another source. It yields recipients one after the
// other, so that an audience of any size needs no memory.
package recipient

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// AggregateRestaurant is the type of the aggregate of events that name a restaurant and no aggregate.
const AggregateRestaurant = "RESTAURANT"

// Query asks for the recipients of one kind that an event concerns.
type Query struct {
	// Event is the event.
	Event Event

	// Scope selects the recipients of the kind.
	Scope rules.Scope

	// Type is the kind of recipients.
	Type contracts.RecipientType
}

// Resolver is a source of recipients.
type Resolver interface {
	// Resolve yields the recipients, in any order. An error ends the sequence, which is then incomplete. Without an error it is
	// complete. A user may occur twice and counts once, see [Once]. The caller may stop at any time. An implementation holds no more
	// than a bounded number of recipients at a time.
	//
	// An error that is not an [*Error] counts as temporary.
	Resolve(ctx context.Context, q Query) iter.Seq2[contracts.Recipient, error]
}

// one yields a single recipient.
func one(r contracts.Recipient) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) { yield(r, nil) }
}

// failed yields an error.
func failed(err error) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) { yield(contracts.Recipient{}, err) }
}

// Once returns a resolver that yields the recipients of next, each once. It holds sixteen bytes of each. A
// [Directory] does not need it.
func Once(next Resolver) Resolver { return once{next} }

type once struct{ next Resolver }

// Resolve implements [Resolver].
func (o once) Resolve(ctx context.Context, q Query) iter.Seq2[contracts.Recipient, error] {
	return distinct(o.next.Resolve(ctx, q))
}

func distinct(all iter.Seq2[contracts.Recipient, error]) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) {
		seen := map[[16]byte]struct{}{}
		for r, err := range all {
			sum := sha256.Sum256([]byte(string(r.RecipientType) + "\x00" + r.UserID))
			id := [16]byte(sum[:])
			if _, twice := seen[id]; twice && err == nil {
				continue
			}
			if seen[id] = struct{}{}; !yield(r, err) {
				return
			}
		}
	}
}

// Carried returns a resolver that yields the recipients in an event, and asks next about an event without recipients.
func Carried(next Resolver) Resolver { return carried{next} }

type carried struct{ next Resolver }

// Resolve implements [Resolver]. An event with recipients has no other recipients, of any kind.
func (c carried) Resolve(ctx context.Context, q Query) iter.Seq2[contracts.Recipient, error] {
	if len(q.Event.Recipients) == 0 {
		return c.next.Resolve(ctx, q)
	}
	return distinct(func(yield func(contracts.Recipient, error) bool) {
		for _, r := range q.Event.Recipients {
			if r.RecipientType == q.Type && !yield(r, nil) {
				return
			}
		}
	})
}

// place is a channel, and the id of an address on the channel.
type place struct{ channel, id string }

// endpoints yields the endpoints of a recipient.
func endpoints(r contracts.Recipient) iter.Seq2[place, contracts.Endpoint] {
	return func(yield func(place, contracts.Endpoint) bool) {
		for channel, all := range r.Endpoints {
			for id, e := range all {
				if !yield(place{channel, id}, e) {
					return
				}
			}
		}
	}
}

func setEndpoint(r *contracts.Recipient, at place, e contracts.Endpoint) {
	if r.Endpoints == nil {
		r.Endpoints = map[string]map[string]contracts.Endpoint{}
	}
	if r.Endpoints[at.channel] == nil {
		r.Endpoints[at.channel] = map[string]contracts.Endpoint{}
	}
	r.Endpoints[at.channel][at.id] = e
}

// newer returns an endpoint of an edit with the generation of the present endpoint, unless the edit's generation is
// later.
func newer(was, is contracts.Endpoint) contracts.Endpoint {
	if is.Generation <= was.Generation {
		is.Generation, is.Previous, is.RotatedAt = was.Generation, was.Previous, was.RotatedAt
	}
	return is
}

// stamp lets the addresses of r keep their secrets, and gives each new address its own secret, so that the secret of a
// removed address does not sign for the next address of its name.
func stamp(known contracts.Recipient, r *contracts.Recipient) {
	for at, e := range endpoints(*r) {
		was, old := known.Endpoints[at.channel][at.id]
		if e = newer(was, e); !old && at.id != contracts.MainEndpoint && e.Generation == 0 {
			e.Generation = time.Now().UnixMilli()
		}
		setEndpoint(r, at, e)
	}
}

// replaceAddresses replaces the addresses of r by the addresses of an edit. A secret of main from before its last
// rotation never signs again.
func replaceAddresses(r *contracts.Recipient, by contracts.Recipient) {
	stamp(*r, &by)
	for at, e := range endpoints(*r) {
		if _, stays := by.Endpoints[at.channel][at.id]; !stays && at.id == contracts.MainEndpoint && e.Generation > 0 {
			setEndpoint(&by, at, newer(e, contracts.Endpoint{}))
		}
	}
	r.Addresses, r.Endpoints = by.Addresses, by.Endpoints
}

// unverify marks the addresses that a recipient's own edit sets, keeps the marks of the others, and reports whether the edit sets any, or
// replaces a secret.
func unverify(known contracts.Recipient, r *contracts.Recipient) (sets bool) {
	channels := slices.AppendSeq(slices.Collect(maps.Keys(r.Addresses)), maps.Keys(r.Endpoints))
	for _, channel := range channels {
		for _, id := range r.EndpointIDs(channel) {
			was, is := known.Endpoint(channel, id), r.Endpoint(channel, id)
			sets = sets || is.Address != was.Address || is.Generation > was.Generation
			unverified := is.Address != was.Address || was.Unverified
			if is.Unverified == unverified {
				continue
			}
			if is.Unverified = unverified; id == contracts.MainEndpoint {
				is.Address = ""
			}
			setEndpoint(r, place{channel, id}, is)
		}
	}
	return sets
}

// rotated is the time after a rotation in which another call changes nothing, because it may repeat a call whose answer was lost, and
// would replace a secret that is in use.
const rotated = time.Minute

// Rotate gives an address of a recipient a new secret, unless it got one within the last minute, and returns the endpoint. The
// error matches [ErrUnknown] when there is no such address. Two round trips, more when others write at the same time.
func (d *Directory) Rotate(
	ctx context.Context, kind contracts.RecipientType, userID, channel, id string,
) (e contracts.Endpoint, err error) {
	err = d.change(ctx, kind, userID, func(p *person) error {
		now := time.Now().UTC()
		if e = p.Endpoint(channel, id); e.Address == "" || now.Sub(e.RotatedAt) < rotated {
			return nil
		}
		e.Generation, e.Previous, e.RotatedAt = max(now.UnixMilli(), e.Generation+1), e.Generation, now
		stored := e
		if id == contracts.MainEndpoint {
			stored.Address = ""
		}
		setEndpoint(&p.Recipient, place{channel, id}, stored)
		return nil
	})
	if err == nil && e.Address == "" {
		err = permanent(ErrUnknown)
	}
	return e, err
}

var (
	// ErrChanged is returned for an edit of another revision than the present one.
	ErrChanged = errors.New("the record has another revision: read it again")

	// ErrForgotten is returned for a recipient whose data was erased.
	ErrForgotten = errors.New("the data of the recipient was erased")

	// ErrIncomplete is returned when a list of recipients broke off.
	ErrIncomplete = errors.New("the list of recipients broke off")

	// ErrKept is returned for an edit that removes an opt-out and is not the recipient's own.
	ErrKept = errors.New("an opt-out is taken back by its person only")

	// ErrNoAggregate is returned when an event that concerns the recipients of its aggregate does not name one.
	ErrNoAggregate = errors.New("the event has no aggregate_id and no restaurant_id, so its recipients cannot be looked up")

	// ErrNoUser is returned when an event that concerns its user does not name one.
	ErrNoUser = errors.New("the event has no user_id, and its rule is for the user whom the event names")

	// ErrTooLarge is returned for an edit that makes a record larger than [MaxDocument].
	ErrTooLarge = fmt.Errorf("the record would have more than %d KiB", MaxDocument>>10)

	// ErrUnknown is returned for a recipient that the directory does not have.
	ErrUnknown = errors.New("there is no such user")

	// ErrUnreadable is returned for a change of a record that cannot be read, and whose opt-outs the change would lose.
	ErrUnreadable = errors.New("the stored record cannot be read: delete the user, and put it again with its opt-outs")
)

// Error is returned when recipients could not be found.
type Error struct {
	// Cause is the underlying error.
	Cause error

	// Permanent reports whether another attempt cannot succeed before the event, or the directory, changes.
	Permanent bool
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("recipients: %v", e.Cause) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

func permanent(err error) error { return &Error{Cause: err, Permanent: true} }

func temporary(err error) error { return &Error{Cause: err} }
