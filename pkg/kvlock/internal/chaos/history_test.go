package chaos_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// history is everything that all workers wrote down.
type history struct {
	start  int64
	events []event
}

// hold is one lease, from its events.
type hold struct {
	event // that it was acquired

	seen    bool  // alive, ever
	last    int64 // when its context was alive for sure; when it was asked for, if it was never seen alive
	release event // of kind released, or zero: its process was killed, or lost it
}

func (h hold) span(start int64) string {
	return fmt.Sprintf("%s of %s from %s (asked at %s) to %s, token %s", h.Lease, h.Name,
		sinceStart(h.To, start), sinceStart(h.From, start), sinceStart(h.last, start), h.Token)
}

// holds are the leases of each lock, in the order in which they were got.
func (h *history) holds() map[string][]hold {
	byLease := map[string]*hold{}
	for _, e := range h.events {
		switch e.Kind {
		case acquired:
			byLease[e.Lease] = &hold{event: e, last: e.From}
		case alive:
			byLease[e.Lease].seen = true
			byLease[e.Lease].last = max(byLease[e.Lease].last, e.From)
		case released:
			byLease[e.Lease].release = e
		default:
		}
	}
	byName := map[string][]hold{}
	for _, one := range byLease {
		byName[one.Name] = append(byName[one.Name], *one)
	}
	for _, all := range byName {
		slices.SortFunc(all, func(a, b hold) int { return cmp.Compare(a.To, b.To) })
	}
	return byName
}

// check reports everything that should not have happened.
func (h *history) check(t *testing.T) {
	t.Helper()
	for _, e := range h.events {
		check.That(t, e.Kind != failed, "%s at %s: %s of %s: %s", e.By, sinceStart(e.To, h.start), e.Kind, e.Name, e.Error)
	}
	for _, all := range h.holds() {
		checkOverlap(t, all, h.start)
	}
	h.checkModel(t, "lock", lockModel, h.lockOperations())
	h.checkModel(t, "fenced register", registerModel, h.registerOperations())
	h.checkResults(t)
}

// checkOverlap finds two leases of one lock whose contexts were alive at the same time, or whose tokens do not grow.
func checkOverlap(t *testing.T, all []hold, start int64) {
	t.Helper()
	all = slices.DeleteFunc(slices.Clone(all), func(h hold) bool { return !h.seen })
	for i := 1; i < len(all); i++ {
		before, after := all[i-1], all[i]
		if after.To <= before.last {
			t.Errorf("two holders at once, for %s or longer:\n\t%s\n\t%s", time.Duration(min(before.last, after.last)-after.To),
				before.span(start), after.span(start))
		}
		check.That(t, after.Token.Compare(before.Token) > 0, "the token does not grow:\n\t%s\n\t%s", before.span(start), after.span(start))
	}
}

func (h *history) checkModel(t *testing.T, what string, model porcupine.Model, ops []porcupine.Operation) {
	t.Helper()
	result, info := porcupine.CheckOperationsVerbose(model, ops, time.Minute)
	if result == porcupine.Ok {
		return
	}
	t.Errorf("the history of the %s, %d operations, is %s", what, len(ops), result)
	for _, part := range partition(ops) {
		if porcupine.CheckOperationsTimeout(model, part, time.Minute) != porcupine.Ok {
			h.explain(t, part, info.PartialLinearizationsOperations())
		}
	}
}

// explain logs the end of the longest legal order that was found of a part of a history, and the first operations that have
// no place in it.
func (h *history) explain(t *testing.T, part []porcupine.Operation, found [][][]porcupine.Operation) {
	t.Helper()
	name := part[0].Input.(step).name //nolint:forcetypeassert // we made it
	var longest []porcupine.Operation
	for _, orders := range found {
		for _, order := range orders {
			if len(order) > len(longest) && order[0].Input.(step).name == name { //nolint:forcetypeassert // as above
				longest = order
			}
		}
	}
	placed := map[int]bool{}
	for _, o := range longest {
		placed[o.ClientId] = true
	}
	say := func(which string, o porcupine.Operation) {
		until := "for ever"
		if o.Return != math.MaxInt64 {
			until = sinceStart(o.Return, h.start).String()
		}
		t.Logf("%s, %s, from %s to %s: %+v %v", name, which, sinceStart(o.Call, h.start), until, o.Input, o.Output)
	}
	for _, o := range longest[max(0, len(longest)-20):] {
		say("in order", o)
	}
	left := slices.DeleteFunc(slices.Clone(part), func(o porcupine.Operation) bool { return placed[o.ClientId] })
	slices.SortFunc(left, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	for _, o := range left[:min(len(left), 20)] {
		say("left", o)
	}
}

// step is an operation for the models.
type step struct {
	name  string
	kind  kind
	token kvlock.Token
	value string
}

func partition(ops []porcupine.Operation) [][]porcupine.Operation {
	byName := map[string][]porcupine.Operation{}
	for _, o := range ops {
		name := o.Input.(step).name //nolint:forcetypeassert // we made it
		byName[name] = append(byName[name], o)
	}
	var all [][]porcupine.Operation
	for _, one := range byName {
		all = append(all, one)
	}
	return all
}

// lockState is whether a lock is held, and the greatest token there was.
type lockState struct {
	held    bool
	highest kvlock.Token
}

var lockModel = porcupine.Model{
	Partition: partition,
	Init:      func() any { return lockState{} },
	Step: func(state, in, _ any) (bool, any) {
		s, o := state.(lockState), in.(step) //nolint:forcetypeassert // we made them
		if o.kind == acquired {
			return !s.held && o.token.Compare(s.highest) > 0, lockState{held: true, highest: o.token}
		}
		return s.held && o.token == s.highest, lockState{highest: s.highest}
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprint(in, " ", out) },
}

// lockOperations are the beginnings and the ends of leases. A lease ends at some time after its context was seen alive
// for the last time; before Release returned, if it did so without an error.
func (h *history) lockOperations() (ops []porcupine.Operation) {
	client := 0
	for _, all := range h.holds() {
		for _, one := range all {
			client++
			o := step{name: one.Name, kind: acquired, token: one.Token}
			ops = append(ops, porcupine.Operation{ClientId: client, Input: o, Call: one.From, Return: one.To})
			o.kind = released
			end := int64(math.MaxInt64)
			if one.release.To > 0 && one.release.Error == "" {
				end = one.release.To
			}
			ops = append(ops, porcupine.Operation{ClientId: client, Input: o, Call: one.last, Return: end})
		}
	}
	return ops
}

// registerState is a guarded value.
type registerState struct {
	token kvlock.Token
	value string
}

// registerModel accepts a write unless a greater token was accepted before.
var registerModel = porcupine.Model{
	Partition: partition,
	Init:      func() any { return registerState{} },
	Step: func(state, in, out any) (bool, any) {
		s, o := state.(registerState), in.(step) //nolint:forcetypeassert // we made them
		fenced := o.token.Compare(s.token) < 0
		switch {
		case o.kind == read:
			return o.value == s.value, s
		case out == accepted:
			return !fenced, registerState{o.token, o.value}
		case out == refused || fenced: // a write of unknown outcome may have been refused
			return fenced, s
		default: // or accepted, if only after everything else
			return true, registerState{o.token, o.value}
		}
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprint(in, " ", out) },
}

// registerOperations are the writes and reads of the guarded values.
func (h *history) registerOperations() (ops []porcupine.Operation) {
	known := map[string]bool{}
	for _, e := range h.events {
		if e.Kind == wrote && e.Answer != unknown {
			known[e.Value] = true
		}
	}
	for i, e := range h.events {
		o := porcupine.Operation{ClientId: i, Call: e.From, Return: e.To, Output: e.Answer}
		o.Input = step{name: e.Name, kind: e.Kind, token: e.Token, value: e.Value}
		switch {
		case e.Kind == writes && !known[e.Value]: // perhaps it still is under way
			o.Output, o.Return = unknown, math.MaxInt64
		case e.Kind == wrote && e.Answer != unknown:
		case e.Kind == read && slices.Contains(lockNames, e.Name):
		default:
			continue
		}
		ops = append(ops, o)
	}
	return ops
}

// checkResults finds a key of which two saw different values, and a claim under which two were accepted.
func (h *history) checkResults(t *testing.T) {
	t.Helper()
	values := map[string]string{}
	took := map[string]event{}
	for _, e := range h.events {
		switch {
		case e.Kind == got:
			if before, known := values[e.Name]; known && before != e.Value {
				t.Errorf("%s has two values: %q and %q", e.Name, before, e.Value)
			}
			values[e.Name] = e.Value
		case e.Kind == completed && e.Answer == accepted:
			if before, known := took[e.Name]; known {
				t.Errorf("two results were accepted for %s: of claim %s at %s, of claim %s at %s", e.Name,
					before.Lease, sinceStart(before.To, h.start), e.Lease, sinceStart(e.To, h.start))
			}
			took[e.Name] = e
		case e.Kind == read && took[e.Name].Value != e.Value && took[e.Name].Answer == accepted:
			t.Errorf("%s has %q at the end; accepted was %q of claim %s", e.Name, e.Value, took[e.Name].Value, took[e.Name].Lease)
		default:
		}
	}
	check.That(t, len(values) != 0 && len(took) != 0, "%d keys were computed, %d completed: too little happened", len(values), len(took))
}
