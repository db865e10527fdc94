package recipient

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"iter"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// AggregateRestaurant is the type of the aggregate of events that name a restaurant and no aggregate.
const AggregateRestaurant = "RESTAURANT"

// Query asks for the recipients of one kind whom an event concerns.
type Query struct {
	// Event is what happened.
	Event contracts.Event

	// Scope says which of the kind are meant.
	Scope rules.Scope

	// Type is the kind.
	Type contracts.RecipientType
}

// Resolver is a source of recipients.
type Resolver interface {
	// Resolve yields the recipients, in any order. An error ends the sequence: the recipients before it are not all. Without
	// an error they are all. A user may come twice and counts once, see [Once]. The caller may stop at any time. An implementation holds
	// no more than a bounded number of recipients at a time.
	//
	// An error that is not an [*Error] counts as temporary.
	Resolve(ctx context.Context, q Query) iter.Seq2[contracts.Recipient, error]
}

// Aggregate returns what the event happened to: its aggregate or, in events that only name a restaurant, that. The id is
// "" when the event names neither.
func Aggregate(e contracts.Event) (kind, id string) {
	if e.AggregateID != "" {
		return e.AggregateType, e.AggregateID
	}
	raw := string(e.RestaurantID)
	if raw == "" || raw == "null" {
		return e.AggregateType, ""
	}
	var text string
	if err := json.Unmarshal(e.RestaurantID, &text); err == nil {
		raw = text
	}
	return AggregateRestaurant, raw
}

// one yields a single recipient.
func one(r contracts.Recipient) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) { yield(r, nil) }
}

// failed yields an error.
func failed(err error) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) { yield(contracts.Recipient{}, err) }
}

// Once returns a resolver that yields those of next, each once. It holds sixteen bytes of each. A [Directory] needs none.
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

// Carried returns a resolver that takes the recipients from events that bring them along, and asks next about others.
func Carried(next Resolver) Resolver { return carried{next} }

type carried struct{ next Resolver }

// Resolve implements [Resolver]. An event with recipients has no others, of any kind.
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
