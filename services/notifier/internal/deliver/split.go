package deliver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// choose finds the address that a row goes to. A row that was not sent yet is split when there are several, and one that no address
// is for ends: it reports held, and err is the error for the worker then. One that was tried stays with its address, which knows it
// by its message id.
func (s *Sender) choose(ctx context.Context, r *row, d *deliveries.Delivery) (held bool, err error) {
	all := r.profile.Endpoints[r.Channel]
	if r.Address == "" && len(all) == 0 {
		r.to = r.profile.Endpoint(r.Channel, "")
		return false, nil
	}
	ids := []string{r.Address}
	if r.Address == "" {
		ids = slices.DeleteFunc(r.profile.EndpointIDs(r.Channel), func(id string) bool { return !all[id].Takes(r.EventType) })
	}
	disabled := false
	ids = slices.DeleteFunc(ids, func(id string) bool {
		disabled = disabled || all[id].Disabled
		return all[id].Disabled || r.profile.Endpoint(r.Channel, id).Address == ""
	})
	tried := r.Address == "" && len(d.Attempts) > 0
	if by := cmp.Or(d.Endpoint, contracts.MainEndpoint); tried && slices.Contains(ids, by) {
		ids, tried = []string{by}, false
	}
	switch {
	case len(ids) == 0 && disabled:
		return true, s.end(ctx, r, d, deliveries.Suppressed, deliveries.ReasonEndpointDisabled, nil)
	case len(ids) == 0:
		return true, s.end(ctx, r, d, deliveries.Suppressed, string(channel.KindNoAddress), nil)
	case len(ids) > 1, tried: // an address gets nothing under the id of another one
		return true, s.split(ctx, r, d, ids)
	}
	r.to = r.profile.Endpoint(r.Channel, ids[0])
	if d.Endpoint = ids[0]; d.Endpoint == contracts.MainEndpoint {
		d.Endpoint = ""
	}
	return false, nil
}

// split ends a row in favour of one for each address.
func (s *Sender) split(ctx context.Context, r *row, d *deliveries.Delivery, ids []string) error {
	d.State, d.Reason, d.Until, d.Addresses = deliveries.Split, "", time.Time{}, ids
	if err := s.write(ctx, r, d); err != nil {
		return err
	}
	s.report(ctx, r, d, nil)
	return s.follow(ctx, r, d, nil)
}

// spread stores the rows of the addresses that a row was split into, as far as they are missing. They have passed its digest and its
// throttle. One round trip for each.
func (s *Sender) spread(ctx context.Context, r *row, d *deliveries.Delivery, verdict error) error {
	s.cfg.Passed(PointSplit)
	for _, id := range d.Addresses {
		child := r.Notification
		child.Address, child.Digest, child.Throttle = id, nil, nil
		if err := s.put(ctx, r, child); err != nil {
			return err
		}
		s.cfg.Passed(PointSpread)
	}
	return verdict
}

// lag is for how long a replica may lag behind, with the rows of addresses but not the split of their row.
const lag = time.Minute

// siblings notes in the record of a split row that the row of one of its addresses, whose record is d, has not reached the user, and
// returns which channel is next, "" while another address may reach the user, or has. Of two rows that end at the same time the one
// that writes last finds the other's note. Two round trips, and one more for the last.
func (s *Sender) siblings(ctx context.Context, r *row, d *deliveries.Delivery) (next string, err error) {
	s.cfg.Passed(PointUnheard)
	whole := r.Notification
	whole.Address = ""
	key, err := whole.Key()
	if err != nil {
		return "", err
	}
	split, err := s.cfg.Deliveries.Get(ctx, key)
	for err == nil {
		switch {
		case len(split.Addresses) == 0 && time.Since(d.UpdatedAt) < lag:
			return "", errStaleSplit
		case len(split.Addresses) == 0: // erased
			s.log(ctx, slog.LevelWarn, r, "nothing is known of the row that was split")
			return "", nil
		case slices.Contains(split.Unheard, r.Address):
			return split.FellBackTo, nil
		}
		split.Unheard = append(split.Unheard, r.Address)
		if split.FellBackTo, err = s.nextOf(ctx, &whole, split); err != nil {
			break
		}
		err = s.cfg.Deliveries.Put(ctx, key, split)
		if taken, ok := errors.AsType[*deliveries.TakenError](err); ok {
			split, err = taken.There, nil
		}
	}
	return "", err
}

// errStaleSplit is why the row of an address is put off that does not find the row that was split.
var errStaleSplit = errors.New("the server that answered has not heard that the row was split")

// nextOf returns the channel that follows a row that was split, "" when one of its addresses may reach the user, or has.
func (s *Sender) nextOf(ctx context.Context, whole *contracts.Notification, split *deliveries.Delivery) (string, error) {
	var keys []string
	for _, id := range split.Addresses {
		if !slices.Contains(split.Unheard, id) {
			return "", nil
		}
		child := *whole
		child.Address = id
		key, err := child.Key()
		if err != nil {
			return "", err
		}
		keys = append(keys, key)
	}
	known, err := s.cfg.Deliveries.GetMany(ctx, keys)
	for _, d := range known { // by a replay, or a late caller
		if d.State == deliveries.Sent || d.State == deliveries.Delivered {
			return "", err
		}
	}
	return whole.Fallback[0], err
}
