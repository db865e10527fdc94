package chaos_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// event is one thing that a process did. From is the time before the operation was begun, To the time after it had returned.
type event struct {
	Kind   kind         `json:"kind"`
	By     string       `json:"by"`              // which process and which of its goroutines
	Lease  string       `json:"lease,omitempty"` // which of its leases or claims
	Name   string       `json:"name"`            // of the lock, or the key
	Token  kvlock.Token `json:"token"`
	Value  string       `json:"value,omitempty"`
	Answer answer       `json:"answer,omitempty"`
	Error  string       `json:"error,omitempty"`
	From   int64        `json:"from"`
	To     int64        `json:"to"`
}

type kind string

const (
	acquired kind = "acquired" // a lease was got
	alive    kind = "alive"    // the lease's context had not ended at From
	released kind = "released" // it was given back
	gaveUp   kind = "gave up"  // the waiter for a lock or a value gave up

	wrote     kind = "wrote"     // a guarded value, under a lease
	completed kind = "completed" // a claim, with a result
	got       kind = "got"       // Do returned a value
	read      kind = "read"      // an entry at the end of the run

	// The operations of a claim that does not expire.
	began    kind = "began"
	renewed  kind = "renewed"
	ended    kind = "ended" // with a result
	gaveBack kind = "gave back"

	replaced   kind = "replaced"   // a result, at the revision of Token
	remembered kind = "remembered" // a result of that revision was read from memory

	failed kind = "failed" // an operation that should not fail did
)

type answer string

const (
	accepted answer = "accepted"
	refused  answer = "refused"
	unknown  answer = "unknown" // or the operation is still under way
	nothing  answer = "nothing" // was tried
)

// history is what all processes did, in the order in which they wrote it down.
type history []event

func readHistory(t *testing.T, log *crash.Log) (h history) {
	t.Helper()
	check.OK(t, log.Entries(func(e crash.Entry) {
		var one event
		check.OK(t, json.Unmarshal([]byte(e.ID), &one))
		h = append(h, one)
	}))
	return h
}

// hold is one lease, from its events.
type hold struct {
	event // that it was acquired

	seen    bool  // alive, ever
	last    int64 // when its context was alive for sure; when it was asked for, if it was never seen alive
	release event // of kind released, or zero: its process was killed, or lost it
}

func (h hold) String() string {
	at := func(ns int64) string { return time.Unix(0, ns).Format("05.000000") }
	return fmt.Sprintf("%s of %s from %s (asked at %s) to %s, token %s", h.Lease, h.Name, at(h.To), at(h.From), at(h.last), h.Token)
}

// holds are the leases of each lock, in the order in which they were got.
func (h history) holds() map[string][]*hold {
	byLease, byName := map[string]*hold{}, map[string][]*hold{}
	for _, e := range h {
		switch e.Kind {
		case acquired:
			one := &hold{event: e, last: e.From}
			byLease[e.Lease] = one
			byName[e.Name] = append(byName[e.Name], one)
		case alive:
			byLease[e.Lease].seen = true
			byLease[e.Lease].last = max(byLease[e.Lease].last, e.From)
		case released:
			byLease[e.Lease].release = e
		default:
		}
	}
	for _, all := range byName {
		slices.SortFunc(all, func(a, b *hold) int { return cmp.Compare(a.To, b.To) })
	}
	return byName
}

// judge adds to the result what the history shows: effects that were lost or repeated, and what happened out of order.
func (h history) judge(t *testing.T, r *crash.Result) {
	t.Helper()
	for _, e := range h {
		check.That(t, e.Kind != failed, "%s of %s: %s", e.By, e.Name, e.Error)
		if e.Kind == wrote && e.Answer == accepted {
			r.Wanted++
		}
	}
	holds := h.holds()
	for name, all := range holds {
		r.OutOfOrder = append(r.OutOfOrder, overlaps(all)...)
		r.OutOfOrder = append(r.OutOfOrder, misfit(t, "lock "+name, lockModel, lockOperations(all))...)
	}
	for name, ops := range h.operations(wrote, read) {
		if slices.Contains(lockNames, name) {
			r.Lost = append(r.Lost, misfit(t, "guarded value "+name, registerModel, ops)...)
		}
	}
	for name, ops := range h.operations(began, renewed, ended, gaveBack) {
		r.OutOfOrder = append(r.OutOfOrder, misfit(t, "claim "+name, claimModel, ops)...)
	}
	h.judgeResults(t, r)
	r.OutOfOrder = append(r.OutOfOrder, h.outdated(t)...)
}

// outdated are the reads from memory of results that were replaced longer ago than the bound of memory.
func (h history) outdated(t *testing.T) (wrong []string) {
	t.Helper()
	const bound = 3 * time.Second
	newer, reads := map[string][]event{}, 0
	for _, e := range h {
		switch e.Kind {
		case replaced:
			newer[e.Name] = append(newer[e.Name], e)
		case remembered:
			reads++
			for _, w := range newer[e.Name] {
				if age := time.Duration(e.From - w.To); w.Token.Revision > e.Token.Revision && age > bound {
					wrong = append(wrong, fmt.Sprintf("%s has %s at %d in memory, replaced %s ago", e.By, e.Name, e.Token.Revision, age))
				}
			}
		default:
		}
	}
	check.That(t, reads > 0 && len(newer) > 0, "%d reads from memory of %d keys: too little happened", reads, len(newer))
	return wrong
}

// overlaps are the leases of one lock whose contexts were alive at the same time, or whose tokens do not grow.
func overlaps(all []*hold) (wrong []string) {
	all = slices.DeleteFunc(slices.Clone(all), func(h *hold) bool { return !h.seen })
	for i := 1; i < len(all); i++ {
		before, after := all[i-1], all[i]
		if after.To <= before.last {
			wrong = append(wrong, fmt.Sprintf("two holders at once: %s; %s", before, after))
		}
		if after.Token.Compare(before.Token) <= 0 {
			wrong = append(wrong, fmt.Sprintf("the token does not grow: %s; %s", before, after))
		}
	}
	return wrong
}

// misfit returns the name of a history that has no order that the model allows, and logs the longest order that was found.
func misfit(t *testing.T, name string, model porcupine.Model, ops []porcupine.Operation) []string {
	t.Helper()
	result, info := porcupine.CheckOperationsVerbose(model, ops, time.Minute)
	if result == porcupine.Ok {
		return nil
	}
	var longest []porcupine.Operation
	for _, orders := range info.PartialLinearizationsOperations() {
		for _, order := range orders {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	placed := map[int]bool{}
	for i, o := range longest {
		placed[o.ClientId] = true
		if i >= len(longest)-20 {
			t.Logf("%s, in order, from %d to %d: %+v %v", name, o.Call, o.Return, o.Input, o.Output)
		}
	}
	left := slices.DeleteFunc(slices.Clone(ops), func(o porcupine.Operation) bool { return placed[o.ClientId] })
	slices.SortFunc(left, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for _, o := range left[:min(len(left), 20)] {
		t.Logf("%s, left, from %d to %d: %+v %v", name, o.Call, o.Return, o.Input, o.Output)
	}
	return []string{fmt.Sprintf("%s: its history of %d operations is %s", name, len(ops), result)}
}

// operation is an operation for the models.
type operation struct {
	kind  kind
	token kvlock.Token
	value string
}

// model makes a model of its first state and of the step that an operation with an answer takes from a state, if it may.
func model[S any](first S, step func(s S, o operation, got answer) (bool, S)) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return first },
		Step: func(state, in, out any) (bool, any) {
			s, o, got := state.(S), in.(operation), out.(answer) //nolint:forcetypeassert // we made them
			return step(s, o, got)
		},
	}
}

// lockState is whether a lock is held, and the greatest token there was.
type lockState struct {
	held    bool
	highest kvlock.Token
}

var lockModel = model(lockState{}, func(s lockState, o operation, _ answer) (bool, lockState) {
	if o.kind == acquired {
		return !s.held && o.token.Compare(s.highest) > 0, lockState{held: true, highest: o.token}
	}
	return s.held && o.token == s.highest, lockState{highest: s.highest}
})

// lockOperations are the beginnings and the ends of leases. A lease ends at some time after its context was seen alive
// for the last time; before Release returned, if it did so without an error.
func lockOperations(all []*hold) (ops []porcupine.Operation) {
	for client, one := range all {
		o := operation{kind: acquired, token: one.Token}
		ops = append(ops, porcupine.Operation{ClientId: client, Input: o, Call: one.From, Output: accepted, Return: one.To})
		o.kind = released
		end := int64(math.MaxInt64)
		if one.release.To > 0 && one.release.Error == "" {
			end = one.release.To
		}
		ops = append(ops, porcupine.Operation{ClientId: client, Input: o, Call: one.last, Output: accepted, Return: end})
	}
	return ops
}

// registerState is a guarded value.
type registerState struct {
	token kvlock.Token
	value string
}

// registerModel accepts a write unless a greater token was accepted before.
var registerModel = model(registerState{}, func(s registerState, o operation, got answer) (bool, registerState) {
	fenced := o.token.Compare(s.token) < 0
	switch {
	case o.kind == read:
		return o.value == s.value, s
	case got == accepted:
		return !fenced, registerState{o.token, o.value}
	case got == refused || fenced: // a write of unknown outcome may have been refused
		return fenced, s
	default: // or accepted, if only after everything else
		return true, registerState{o.token, o.value}
	}
})

// claimModel is one key of claims that do not expire: "" is absent.
var claimModel = model("", func(state string, o operation, got answer) (bool, string) {
	pending := "pending: " + o.value
	from, to := pending, map[kind]string{began: pending, renewed: pending, ended: "done", gaveBack: ""}[o.kind]
	if o.kind == began {
		from = ""
	}
	switch {
	case state == from && (got != refused || o.kind != renewed):
		return true, to // refused: it was applied, and another process wrote before its outcome was read back
	case got == accepted:
		return false, state
	default:
		return state != from || got == unknown, state
	}
})

// operations are the operations of some kinds on each name. One without an answer, or with an unknown one, may still be under way.
func (h history) operations(kinds ...kind) map[string][]porcupine.Operation {
	type id struct {
		kind  kind
		value string
		from  int64 // of a read
	}
	last := map[id]int{} // the answer comes after the beginning
	for i, e := range h {
		if slices.Contains(kinds, e.Kind) {
			one := id{kind: e.Kind, value: e.Value}
			if e.Kind == read {
				one.from = e.From
			}
			last[one] = i
		}
	}
	byName := map[string][]porcupine.Operation{}
	for _, i := range last {
		e := h[i]
		if e.Answer == unknown {
			e.To = math.MaxInt64
		}
		if e.Answer != nothing {
			byName[e.Name] = append(byName[e.Name], porcupine.Operation{
				ClientId: i, Call: e.From, Return: e.To, Output: e.Answer, Input: operation{kind: e.Kind, token: e.Token, value: e.Value},
			})
		}
	}
	return byName
}

// judgeResults finds a key of which two callers got different values, a key for which two results were accepted, and an accepted result
// that is gone.
func (h history) judgeResults(t *testing.T, r *crash.Result) {
	t.Helper()
	values, took := map[string]string{}, map[string]event{}
	for _, e := range h {
		switch {
		case e.Kind == got:
			if before, known := values[e.Name]; known && before != e.Value {
				r.Repeated = append(r.Repeated, fmt.Sprintf("%s has two values: %q and %q", e.Name, before, e.Value))
			}
			values[e.Name] = e.Value
		case e.Kind == completed && e.Answer == accepted:
			if before, known := took[e.Name]; known {
				r.Repeated = append(r.Repeated, fmt.Sprintf("%s has two results: %q and %q", e.Name, before.Value, e.Value))
			}
			took[e.Name] = e
		case e.Kind == read && took[e.Name].Answer == accepted && took[e.Name].Value != e.Value:
			r.Lost = append(r.Lost, fmt.Sprintf("%s has %q at the end, accepted was %q", e.Name, e.Value, took[e.Name].Value))
		default:
		}
	}
	r.Wanted += len(values) + len(took)
	check.That(t, len(values) != 0 && len(took) != 0, "%d keys were computed, %d completed: too little happened", len(values), len(took))
}
