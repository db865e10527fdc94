package enricher_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// places returns n places of a town. Their names are their ids.
func places(town string, n int) []contracts.Restaurant {
	list := make([]contracts.Restaurant, n)
	for i := range list {
		id := fmt.Sprintf("%s-%02d", town, i)
		list[i] = contracts.Restaurant{PlaceID: id, Name: id, Address: fmt.Sprintf("Harbour Road %d", i+1), CityText: "Haifa"}
	}
	return list
}

// TestCrash has three instances asked 200 times each, at the same moment, for the same 50 new places. One instance is
// killed in the middle of a lookup, and the server in the middle of everything. Each place is looked up once, but for those that
// the killed instance had begun; every client gets every answer, and none twice.
func TestCrash(t *testing.T) {
	t.Parallel()
	const requestsPerInstance, restartAfter, victim = 200, 20, "Kitchen-25"
	ctx, cancel := context.WithTimeout(t.Context(), 4*crash.Patience)
	defer cancel()
	on, log, all := crash.MortalServer(t), crash.NewLog(t), places("Kitchen", 50)
	users, started := newClients(t, log), map[string]*crash.Process{}
	for _, name := range []string{"a", "b", "c"} {
		p := instances.Start(t, instance{Hold: victim, Log: log.Path(), Name: name, Replicas: on.Replicas, Servers: on.URL})
		started[name] = p
		users.at(name, p.Line())
	}
	list := make([]*client, len(started)*requestsPerInstance)
	errs := make(chan error, len(list))
	for i := range list {
		list[i] = &client{clients: users, req: contracts.EnrichRequest{RequestID: fmt.Sprintf("r%03d", i), Results: all}}
		go func() { errs <- list[i].run(ctx) }()
	}

	killed := ""
	check.Until(t, crash.Patience, "the lookup that is held", func() bool {
		_, killed = count(t, log, crash.Started, victim)
		return killed != ""
	})
	check.OK(t, log.Inject("process killed", killed))
	started[killed].Kill()
	check.Until(t, crash.Patience, "some lookups", func() bool {
		n, _ := count(t, log, crash.Effect, "")
		return n >= restartAfter
	})
	stored := results(ctx, t, on, all)
	check.OK(t, log.Inject("server killed", ""))
	check.OK(t, on.Restart(ctx, ""))

	resumes := 0
	for range list {
		check.ErrorIs(t, <-errs, nil)
	}
	for _, c := range list {
		resumes += c.resumes
	}
	again := checkOnce(t, log, list, killed)
	check.That(t, slices.Contains(again, victim), "%s was looked up by %s alone, which was killed before it had an answer", victim, killed)
	now := results(ctx, t, on, all)
	for key, value := range stored { // if its write was not confirmed, the record may have been rewritten with a new TTL
		check.Equal(t, now[key], value, "the result of", key, "after the restart")
	}
	t.Logf("killed %s in the middle of %d lookups; clients came back %d times", killed, len(again), resumes)
}

// count counts the entries of a kind about an id, "" for any, and returns the process of the last.
func count(t *testing.T, log *crash.Log, kind crash.Kind, id string) (n int, process string) {
	t.Helper()
	check.OK(t, log.Entries(func(e crash.Entry) {
		if e.Kind == kind && (id == "" || e.ID == id) {
			n, process = n+1, e.Process
		}
	}))
	return n, process
}

// checkOnce fails the test unless all clients have the same answer about every place, that of its last lookup, and each was looked up
// once, and once more only if the instance that was killed was in the middle of it. It returns the latter.
func checkOnce(t *testing.T, log *crash.Log, all []*client, killed string) (again []string) {
	t.Helper()
	last, dead := map[string]string{}, false
	check.OK(t, log.Entries(func(e crash.Entry) {
		dead = dead || e.Kind == crash.Injected
		if e.Kind != crash.Started {
			return
		}
		if before := last[e.ID]; before != "" {
			check.That(t, dead && before == killed && e.Process != killed, "%s was looked up by %s after %s", e.ID, e.Process, before)
			again = append(again, e.ID)
		}
		last[e.ID] = e.Process
	}))
	for _, c := range all {
		for id, state := range c.states {
			check.That(t, finder(state) != "" && finder(state) == last[id], "%s: %s is %+v, found by %s", c.req.RequestID, id, state, last[id])
		}
	}
	result := check.Must(log.Judge(maps.Keys(last), nil))(t)
	check.ErrorIs(t, result.Err(), nil)
	check.Equal(t, len(last), len(all[0].req.Results), "places looked up")
	return again
}

// results returns the results that are stored, by key.
func results(ctx context.Context, t *testing.T, on *crash.Servers, all []contracts.Restaurant) map[string]string {
	t.Helper()
	_, js := natstest.ConnectURL(t, on.URL)
	kv := check.Must(js.KeyValue(ctx, contracts.BucketEnrich))(t)
	stored := map[string]string{}
	for _, p := range all {
		key := check.Must(contracts.EnrichEntryKey(contracts.ProviderWolt, p.PlaceID))(t)
		entry, err := kv.Get(ctx, key)
		check.Require(t, err == nil || errors.Is(err, jetstream.ErrKeyNotFound), "%v", err)
		if err != nil {
			continue
		}
		if record, value, _ := strings.Cut(string(entry.Value()), "\n"); strings.Contains(record, `"state":"done"`) {
			stored[key] = value
		}
	}
	return stored
}

// TestProof: while instances and servers fail, every client gets an answer about every place, once, and no place is looked up after a
// client has received its answer.
func TestProof(t *testing.T) { crash.Proof(t, "lookups", prove) }

func prove(t *testing.T, on *crash.Servers, r *rand.Rand, until time.Time) crash.Result {
	t.Helper()
	const users, window, step = 8, 20, 10
	lease := 10 * time.Second // of a lookup
	log := crash.NewLog(t)
	all := newClients(t, log)
	group := crash.NewGroup(t, log, on.URL, 3, func(name, servers string) *crash.Process {
		p := instances.Start(t, instance{Log: log.Path(), Name: name, Replicas: on.Replicas, Servers: servers, Takes: time.Second})
		all.at(servers, p.Line())
		return p
	})
	accepting, cancel := context.WithDeadline(t.Context(), until)
	defer cancel()
	var mu sync.Mutex
	wanted := map[string]bool{}
	var unanswered, repeated []string
	var asking sync.WaitGroup
	for user := range users {
		asking.Go(func() {
			for n := 0; accepting.Err() == nil; n++ { // half of the places of a request are those of the one before, and of another user
				town := fmt.Sprintf("town%d", user/2)
				asked := places(town, n*step+window)[n*step:]
				c := &client{clients: all, req: contracts.EnrichRequest{RequestID: fmt.Sprintf("r%d-%d", user, n), Results: asked}}
				ctx, done := context.WithTimeout(t.Context(), 2*crash.Patience)
				err := c.run(ctx)
				done()
				mu.Lock()
				for _, p := range asked {
					wanted[p.PlaceID] = true
				}
				if unanswered = append(unanswered, c.unanswered()...); errors.Is(err, errRepeated) {
					repeated = append(repeated, err.Error())
				} else if err != nil {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	faults := slices.Concat(group.Faults(lease), on.Faults(log, lease, contracts.StreamEnrichJobs, "KV_"+contracts.BucketEnrich))
	check.ErrorIs(t, crash.Inject(accepting, r, time.Second, faults...), nil)
	asking.Wait()
	group.Stop()
	result := check.Must(log.Judge(maps.Keys(wanted), nil))(t)
	result.Lost, result.Repeated = append(result.Lost, unanswered...), append(result.Repeated, repeated...)
	return result
}
