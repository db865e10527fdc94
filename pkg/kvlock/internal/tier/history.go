package tier

// remembered is how many of the last changes of the bucket are known by their keys.
const remembered = 4096

// everything is the hash that stands for every key: the mark of a purge has it.
const everything uint64 = 0

// history has the last changes of a stream. The sequences of a stream have no gaps, so missing changes are known too.
type history struct {
	applied uint64 // all changes up to this one were pushed, or nothing is kept that is older
	highest uint64 // the last known change, maybe only from an answer
	changes [remembered]change
}

// change is the key that was written at a sequence.
type change struct {
	sequence uint64
	hash     uint64
}

// onPush records the next pushed change, and reports whether others before it were lost. A change that comes late is no
// gap.
func (h *history) onPush(sequence, hash uint64) (gap bool) {
	gap = sequence > h.applied+1
	h.applied = max(h.applied, sequence)
	h.note(sequence, hash)
	return gap
}

// note records a change that is known from an answer, maybe before it is pushed.
func (h *history) note(sequence, hash uint64) {
	h.highest = max(h.highest, sequence)
	c := &h.changes[sequence%remembered]
	if c.sequence < sequence {
		*c = change{sequence, hash}
	}
}

// changed reports whether the key with hash was, or may have been, written after the bucket was at sequence asOf.
// Unknown changes after the last pushed one do not count: their pushes will come.
func (h *history) changed(hash, asOf uint64) bool {
	last := max(h.applied, h.highest)
	if asOf+remembered <= last {
		return true
	}
	for s := asOf + 1; s <= last; s++ {
		switch c := h.changes[s%remembered]; {
		case c.sequence != s && s <= h.applied:
			return true // it was lost
		case c.sequence == s && (c.hash == hash || c.hash == everything):
			return true
		}
	}
	return false
}

// reset begins anew behind sequence.
func (h *history) reset(sequence uint64) { *h = history{applied: sequence, highest: sequence} }
