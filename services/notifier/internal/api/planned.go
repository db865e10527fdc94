package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

// ofPlan returns the notifications of a plan that are stored or delivered, from a position on.
func (a *API) ofPlan(ctx context.Context, p *plan.Plan, q Query, from position, most int) (found part, err error) {
	for found.next = from; found.next.part < p.Parts(); found.next = (position{part: found.next.part + 1}) {
		recipients, err := a.cfg.Reader.Part(ctx, p, found.next.part)
		if err != nil {
			return part{}, err
		}
		candidates, err := candidatesIn(p, recipients)
		if err != nil {
			return part{}, err
		}
		for found.next.index < len(candidates) {
			if found.looked >= most {
				return found, nil
			}
			some := candidates[found.next.index:min(len(candidates), found.next.index+most-found.looked)]
			rows, err := a.there(ctx, q, some, found.next)
			if err != nil {
				return part{}, err
			}
			found.rows = append(found.rows, rows...)
			found.looked += len(some)
			found.next.index += len(some)
		}
	}
	found.next = position{end: true}
	return found, nil
}

// candidatesIn returns the subjects of all notifications that recipients of a plan can have.
func candidatesIn(p *plan.Plan, recipients []contracts.Recipient) (all []string, err error) {
	for _, r := range recipients {
		route := p.Routes[r.RecipientType]
		for _, channel := range route.All() {
			subject, err := contracts.NotifySendSubject(channel, r.RecipientType, r.UserID, p.EventID)
			if err != nil {
				return nil, fmt.Errorf("plan of %.80q: %w", p.EventID, err)
			}
			all = append(all, subject)
		}
	}
	return all, nil
}

// there returns the notifications at candidates, in their order. from is the position of the first candidate.
func (a *API) there(ctx context.Context, q Query, candidates []string, from position) (rows []stored, err error) {
	positions := make(map[string]int, len(candidates)) // by the key of the notification
	var wanted []string
	for i, subject := range candidates {
		if key, _, ok := keys.OfSubject(subject); ok && q.matches(key) {
			positions[key] = from.index + i
			wanted = append(wanted, subject)
		}
	}
	get := func(in place, subjects []string) error {
		for some := range slices.Chunk(subjects, in.atOnce) {
			found, err := in.GetMany(ctx, some)
			if err != nil {
				return err
			}
			for _, r := range found {
				if row, ok := in.read(r); ok {
					row.at = position{part: from.part, index: positions[row.key]}
					delete(positions, row.key)
					rows = append(rows, row)
				}
			}
		}
		return nil
	}
	if err := get(a.place(false), wanted); err != nil {
		return nil, err
	}
	var items []string
	for key := range positions {
		if item := deliveries.ItemSubject(key); item != "" {
			items = append(items, item)
		}
	}
	if err := get(a.place(true), items); err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b stored) int { return cmp.Compare(a.at.index, b.at.index) })
	return rows, nil
}
