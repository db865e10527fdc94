package flight

import (
	"context"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/alive"
)

// sign names this process in a claim, if others can find out whether it is alive.
func (f *Flight) sign(r *claimRecord) {
	r.Member, r.Server = "", ""
	if !r.Handoff && r.State == Pending.String() {
		r.Member, r.Server = f.alive.Self()
	}
}

// probe starts to probe the process whose claim slot shows. It returns nil when the claim names none, or this one.
func (f *Flight) probe(slot *Slot) *alive.Probe {
	if slot.State != Pending {
		return nil
	}
	return f.alive.Watch(slot.in().member, slot.in().server, false)
}

// isDead reports whether the process that holds the claim in slot is known to be gone.
func (f *Flight) isDead(ctx context.Context, slot Slot) bool {
	return slot.State == Pending && f.alive.IsGone(ctx, slot.in().member, slot.in().server)
}
