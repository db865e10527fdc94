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
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// choose sets the address of a row. It splits a row for several addresses that was not tried yet, and ends a row without an
// address. held reports that, and err is then the error for the worker. A row that was tried keeps its address, because the message
// id is known there.
func (s *Sender) choose(ctx context.Context, r *row, d *deliveries.Delivery) (held bool, err error) {
	all := r.profile.Endpoints[r.Channel]
	if s.inbox != nil || r.Address == "" && len(all) == 0 {
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
	case len(ids) > 1, tried: // no address gets a message under the id of another address
		return true, s.split(ctx, r, d, ids)
	}
	r.to = r.profile.Endpoint(r.Channel, ids[0])
	if d.Endpoint = ids[0]; d.Endpoint == contracts.MainEndpoint {
		d.Endpoint = ""
	}
	return false, nil
}

// split ends a row, and stores a row for each address in its place.
func (s *Sender) split(ctx context.Context, r *row, d *deliveries.Delivery, ids []string) error {
	d.State, d.Reason, d.Until, d.Addresses = deliveries.Split, "", time.Time{}, ids
	if err := s.write(ctx, r, d); err != nil {
		return err
	}
	s.report(ctx, r, d, nil)
	return s.follow(ctx, r, d, nil)
}

// spread stores the missing rows of the addresses that a row was split into. These rows skip digest and throttle, which the split
// row has passed. One round trip for each.
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

// lag is the time for which a replica may have the rows of addresses but not the split of their row.
const lag = time.Minute

// siblings notes in the record of a split row that the row of one of its addresses, whose record is d, has not reached the user. It
// returns the next channel, "" while another address may reach the user, or has. Of two rows that end at the same time, the last to
// write finds the note of the other. Two round trips, and one more for the last row.
func (s *Sender) siblings(ctx context.Context, r *row, d *deliveries.Delivery) (next string, err error) {
	s.cfg.Passed(PointUnheard)
	whole := r.Notification
	whole.Address = ""
	key, err := keys.Of(&whole)
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

// errStaleSplit is the reason for putting off the row of an address when the split row is not found.
var errStaleSplit = errors.New("the server that answered has not heard that the row was split")

// nextOf returns the channel after a split row, "" when one of its addresses may reach the user, or has.
func (s *Sender) nextOf(ctx context.Context, whole *contracts.Notification, split *deliveries.Delivery) (string, error) {
	var children []string
	for _, id := range split.Addresses {
		if !slices.Contains(split.Unheard, id) {
			return "", nil
		}
		child := *whole
		child.Address = id
		key, err := keys.Of(&child)
		if err != nil {
			return "", err
		}
		children = append(children, key)
	}
	known, err := s.cfg.Deliveries.GetMany(ctx, children)
	for _, d := range known { // changed by a replay, or by a late caller
		if d.State == deliveries.Sent || d.State == deliveries.Delivered {
			return "", err
		}
	}
	return whole.Fallback[0], err
}
