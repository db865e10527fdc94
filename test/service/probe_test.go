package service_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

const (
	recipes = "KV_" + contracts.BucketRecipes
	objects = "OBJ_" + contracts.BucketImportSteps
)

// stored checks the check of the stores, and its metric: passed, or failed with a text.
func (sh *store) stored(says string) {
	sh.Helper()
	if err := sh.service.Ready()["store"]; (err == nil) != (says == "") || !strings.Contains(fmt.Sprint(err), says) {
		sh.Errorf("the check of the stores is %v, want %q", err, says)
	}
	sh.shows(map[bool]string{true: "1", false: "0"}[says == ""], "service_ready", "store")
}

// elapse lets time pass.
func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // fake time

// A store that does not acknowledge writes is named within 5 seconds, and is believed again at the first write that it
// acknowledges, also when an answer was lost and the record has expired.
func TestAStoreThatTakesNoWritesIsNamed(t *testing.T) {
	inStore(t, func(sh *store) {
		for stream, subject := range map[string]string{recipes: "$KV.recipes.ready.", objects: "$O.import-steps.C.ready."} {
			for _, lost := range []bool{true, false} { // the write, or its answer
				sh.stored("")
				sh.proxy.Filter(func(f natstest.Frame) natstest.Verdict {
					if lost && f.FromClient && strings.HasPrefix(f.Subject, subject) ||
						!lost && !f.FromClient && strings.Contains(string(f.Payload()), `"stream":"`+stream+`"`) {
						return natstest.Lose
					}
					return natstest.Relay
				})
				elapse(5 * time.Second)
				sh.stored(stream + " for ")
				sh.stored("not acknowledged")
				elapse(2 * time.Minute)
				sh.stored(stream + " for 2m")
				sh.proxy.Filter(nil)
				elapse(5 * time.Second)
			}
		}
		sh.stored("")
	})
}

// A deleted bucket is named within 5 seconds, and one that is full for as long as it is.
func TestAStoreThatIsMissingOrFullIsNamed(t *testing.T) {
	inStore(t, func(sh *store) {
		s, err := sh.js.Stream(sh.Context(), recipes)
		check.OK(sh, err)
		check.OK(sh, sh.js.DeleteStream(sh.Context(), recipes))
		elapse(5 * time.Second)
		sh.stored(recipes + " for ")
		sh.stored("is missing")
		full := s.CachedInfo().Config
		full.MaxMsgs = 1
		check.OK(sh, check.Err(sh.js.CreateStream(sh.Context(), full)))
		check.OK(sh, check.Err(sh.js.Publish(sh.Context(), "$KV.recipes.x", nil)))
		elapse(5 * time.Second)
		sh.stored("maximum messages")
		full.MaxMsgs = -1
		check.OK(sh, check.Err(sh.js.UpdateStream(sh.Context(), full)))
		elapse(5 * time.Second)
		sh.stored("")
	})
}

// The record of a service is one in each store, no client of the store sees it, and it ends a minute after the service.
func TestTheRecordOfReadinessIsNoData(t *testing.T) {
	inStore(t, func(sh *store) {
		elapse(time.Hour)
		count := func(want uint64) {
			sh.Helper()
			for _, name := range []string{recipes, objects} {
				s, err := sh.js.Stream(sh.Context(), name)
				check.OK(sh, err)
				check.Same(sh, name+" has messages", s.CachedInfo().State.Msgs, want)
			}
		}
		count(1)
		kv, err := sh.js.KeyValue(sh.Context(), contracts.BucketRecipes)
		check.OK(sh, err)
		if keys, err := kv.Keys(sh.Context()); !errors.Is(err, jetstream.ErrNoKeysFound) {
			sh.Errorf("the bucket has %v, %v", keys, err)
		}
		files, err := sh.js.ObjectStore(sh.Context(), contracts.BucketImportSteps)
		check.OK(sh, err)
		if all, err := files.List(sh.Context()); !errors.Is(err, jetstream.ErrNoObjectsFound) {
			sh.Errorf("the object store has %v, %v", all, err)
		}
		check.Is(sh, sh.service.Stop(), nil)
		elapse(62 * time.Second)
		count(0)
	})
}

// However often readiness is asked for, the service sends nothing for it.
func TestReadinessCostsNoRequest(t *testing.T) {
	inStore(t, func(sh *store) {
		var sent atomic.Int64
		sh.proxy.Filter(func(f natstest.Frame) natstest.Verdict {
			if f.FromClient {
				sent.Add(1)
			}
			return natstest.Relay
		})
		for range 10_000 {
			check.Is(sh, sh.service.Ready()["store"], nil)
		}
		sh.stored("")
		if n := sent.Load(); n > 0 {
			sh.Errorf("sent %d messages", n)
		}
	})
}
