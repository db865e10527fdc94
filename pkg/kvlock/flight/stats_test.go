package flight

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
)

// Each field of Stats counts something, and nothing counts in two.
func TestEachFieldOfStatsMoves(t *testing.T) {
	t.Parallel()
	f := &Flight{store: &kv.Store{}}
	steps := []func(){
		func() { f.counts.read(Slot{State: Done}) }, func() { f.counts.read(Slot{}) },
		func() { f.counts.returned(&Result{}, errors.New("no")) }, func() { f.store.Unanswered.Add(1) },
	}
	for _, o := range []Outcome{Cached, Coalesced, Computed, Stale} {
		steps = append(steps, func() { f.counts.returned(&Result{Outcome: o}, nil) })
	}
	for _, kind := range []EventKind{
		EventAcquired, EventHeld, EventLost, EventRefresh, EventRenewalFailed, EventTakeOver, EventWaiting, EventWaitTimeout, EventCorrupt, EventPanic,
	} {
		steps = append(steps, func() { f.emit(t.Context(), Event{Kind: kind}) })
	}
	values := func() (all []uint64) {
		for _, v := range reflect.ValueOf(f.Stats()).Fields() {
			if v.CanUint() { // Memory is counted by its tier
				all = append(all, v.Uint())
			}
		}
		return all
	}
	moved := map[int]bool{}
	for i, step := range steps {
		before := values()
		step()
		var now []int
		for field, v := range values() {
			if v != before[field] {
				now = append(now, field)
			}
		}
		if len(now) != 1 || moved[now[0]] {
			t.Errorf("step %d moved the fields %v", i, now)
			continue
		}
		moved[now[0]] = true
	}
	if n := len(values()); len(moved) != n {
		t.Errorf("%d of %d fields move", len(moved), n)
	}
}

func TestConfigReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	err := Config{
		Bucket: "a.b", ClaimTTL: 1500 * time.Millisecond, ResultTTL: -time.Second, OpTimeout: -1, Instance: strings.Repeat("x", 300),
	}.validate()
	for _, want := range []string{"Bucket", "ClaimTTL", "ResultTTL", "OpTimeout", "Instance"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in %v", want, err)
		}
	}
	if err := (Config{Bucket: "b"}).withDefaults().validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	for _, bucket := range []string{"", "a/b", "a b", "a=", "*", "ä"} {
		if err := (Config{Bucket: bucket}).withDefaults().validate(); err == nil {
			t.Errorf("bucket %q was taken", bucket)
		}
	}
}
