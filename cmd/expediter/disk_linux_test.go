package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// status returns the status and body of an answer to a request that is bounded, 0 for none.
func status(ctx context.Context, method, url, body string) (int, string) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	return reply(r)
}

// emitter publishes events over HTTP, one after the other.
type emitter struct {
	accepted []string
	longest  time.Duration // of a request
	refused  []string
	url      string
}

// emit publishes an event, and reports whether it was accepted.
func (e *emitter) emit(ctx context.Context) bool {
	id := fmt.Sprintf("disk-%d", len(e.accepted)+len(e.refused))
	begun := time.Now()
	got, body := status(ctx, http.MethodPost, e.url+"/v1/events",
		`{"event_id":"`+id+`","event_type":"OUTAGE","aggregate_type":"RESTAURANT","restaurant_id":"5"}`)
	e.longest = max(e.longest, time.Since(begun))
	if got/100 != 2 {
		e.refused = append(e.refused, fmt.Sprintf("%d %s", got, body))
		return false
	}
	e.accepted = append(e.accepted, id)
	return true
}

// turned waits until all or any of the services are ready, or are not, and returns how long that took and their answers.
func turned(t *testing.T, urls []string, ready bool, most time.Duration) (time.Duration, string) {
	t.Helper()
	begun := time.Now()
	for {
		all, said := true, ""
		for _, url := range urls {
			got, body := status(t.Context(), http.MethodGet, url+"/readyz?verbose", "")
			all = all && (got == http.StatusOK) == ready
			said += body
		}
		if took := time.Since(begun); all || took > most {
			check.That(t, all, "after %s readiness is not %t everywhere:\n%s", took, ready, said)
			return took, said
		}
		retry.Sleep(t.Context(), 20*time.Millisecond) // as a probe does: nothing says that readiness has changed
	}
}

// On a full disk all services say that they are not ready within 5 seconds, and requests are answered. Within 30 seconds after
// there is room they are ready again by themselves, and every event that was accepted reaches its recipient.
func TestAFullDiskIsShownAndOvercome(t *testing.T) {
	disk := t.TempDir()
	if err := testbed.Mount(t, disk); err != nil {
		testbed.Refusedf(t, "a disk to fill cannot be mounted: %v (run as root)", err)
	}
	r := up(t, "--dir", filepath.Join(disk, "data"))
	address := func(name, scheme string) string {
		return strings.Fields(r.find(t, name+` +`+scheme+`://127\.0\.0\.1:\d+`))[1]
	}
	notifier := address("notifier", "http")
	services := []string{address("enrichers", "http"), address("importer", "http"), notifier}
	turned(t, services, true, 10*time.Second)

	const some = 100
	source := emitter{url: notifier}
	for range some {
		check.That(t, source.emit(t.Context()), "refused before: %v", source.refused)
	}
	var sources sync.WaitGroup
	defer sources.Wait()
	sources.Go(func() { // events until one is refused
		for source.emit(t.Context()) {
		}
	})
	filler := testbed.Fill(t, disk)
	red, said := turned(t, services, false, 5*time.Second)
	t.Logf("not ready after %s:\n%s", red, said)
	check.Contains(t, r.Said(), "no space left") // later lines replace the first ones that the process has written
	sources.Wait()
	check.OK(t, os.Remove(filler))
	green, _ := turned(t, services, true, 30*time.Second)
	for range some {
		check.That(t, source.emit(t.Context()), "refused behind: %v", source.refused)
	}
	t.Logf("ready after %s; %d events accepted, refused %v; the longest request took %s", green, len(source.accepted), source.refused, source.longest)
	check.That(t, source.longest <= 18*time.Second, "a request took %s", source.longest)
	told(t, address("NATS", "nats"), source.accepted)
	r.Interrupt()
}

// told waits until each event is in the inbox of somebody.
func told(t *testing.T, server string, events []string) {
	t.Helper()
	nc := check.Must(nats.Connect(server))(t)
	defer nc.Close()
	js := check.Must(jetstream.New(nc))(t)
	kv := check.Must(js.KeyValue(t.Context(), contracts.BucketInbox))(t)
	items := check.Must(kv.WatchAll(t.Context()))(t)
	defer items.Stop() //nolint:errcheck // the connection closes
	missing := map[string]bool{}
	for _, id := range events {
		missing[id] = true
	}
	begun, patience := time.Now(), time.After(2*time.Minute)
	for len(missing) > 0 {
		select {
		case item := <-items.Updates():
			if item != nil { // nil is behind those that were there
				delete(missing, item.Key()[strings.LastIndexByte(item.Key(), '.')+1:])
			}
		case <-patience:
			t.Fatalf("%d of %d events are lost: %.20v", len(missing), len(events), slices.Sorted(maps.Keys(missing)))
		}
	}
	t.Logf("all are told %s later", time.Since(begun))
}
