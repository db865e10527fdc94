package recipient

import (
	"context"
	"iter"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// place is a channel, and the id of an address there.
type place struct{ channel, id string }

// endpoints yields what is known of the addresses of a recipient.
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

// newer returns what an edit says of an address, with the secret that it has, unless the edit knows of a later one.
func newer(was, is contracts.Endpoint) contracts.Endpoint {
	if is.Generation <= was.Generation {
		is.Generation, is.Previous, is.RotatedAt = was.Generation, was.Previous, was.RotatedAt
	}
	return is
}

// stamp has the addresses of r keep the secrets that they have, and gives each new one a secret of its own: one who knows that of
// an address that was removed knows nothing of the next one of its name.
func stamp(known contracts.Recipient, r *contracts.Recipient) {
	for at, e := range endpoints(*r) {
		was, old := known.Endpoints[at.channel][at.id]
		if e = newer(was, e); !old && at.id != contracts.MainEndpoint && e.Generation == 0 {
			e.Generation = time.Now().UnixMilli()
		}
		setEndpoint(r, at, e)
	}
}

// replaceAddresses has r have the addresses of an edit. What has signed for main before its last rotation never does again.
func replaceAddresses(r *contracts.Recipient, by contracts.Recipient) {
	stamp(*r, &by)
	for at, e := range endpoints(*r) {
		if _, stays := by.Endpoints[at.channel][at.id]; !stays && at.id == contracts.MainEndpoint && e.Generation > 0 {
			setEndpoint(&by, at, newer(e, contracts.Endpoint{}))
		}
	}
	r.Addresses, r.Endpoints = by.Addresses, by.Endpoints
}

// rotated is for how long after a rotation another one changes nothing: it repeats one whose answer was lost, and would take the secret
// back that is in use.
const rotated = time.Minute

// Rotate gives an address of a recipient a new secret, unless it has got one within the last minute, and returns what is known of it
// then. The error matches [ErrUnknown] when there is no such address. Two round trips, more when others write at the same time.
func (d *Directory) Rotate(
	ctx context.Context, kind contracts.RecipientType, userID, channel, id string,
) (e contracts.Endpoint, err error) {
	_, err = d.change(ctx, addresses, kind, userID, false, func(r *contracts.Recipient) bool {
		now := time.Now().UTC()
		if e = r.Endpoint(channel, id); e.Address == "" || now.Sub(e.RotatedAt) < rotated {
			return false
		}
		e.Generation, e.Previous, e.RotatedAt = max(now.UnixMilli(), e.Generation+1), e.Generation, now
		stored := e
		if id == contracts.MainEndpoint {
			stored.Address = ""
		}
		setEndpoint(r, place{channel, id}, stored)
		return true
	})
	if err == nil && e.Address == "" {
		err = permanent(ErrUnknown)
	}
	return e, err
}
