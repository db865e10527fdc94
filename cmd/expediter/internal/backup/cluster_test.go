package backup

import (
	"context"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection" // elections take a second
)

// A backup of one server is restored onto three, also after a restore that was cut off, and one of three onto one.
func TestOneServerToThreeAndBack(t *testing.T) {
	t.Parallel()
	_, one := applied(t)
	fill(t, one)
	c := config(one, t.TempDir())
	must(t, Write(t.Context(), c, nothing))
	cluster := natstest.Cluster(t, 3)
	_, three := natstest.ConnectURL(t, cluster.URLs())
	c.JS, c.Replicas = three, 3
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := 8 // parts
	c.reached = func(string) {
		left--
		if left == 0 {
			cancel()
		}
	}
	if err := Restore(ctx, c, nothing); err == nil {
		t.Fatal("a restore that was cut off ended well")
	}
	c.reached = nil
	must(t, Restore(t.Context(), c, nothing))
	for _, name := range all(c.Services) {
		stream, err := three.Stream(t.Context(), name)
		must(t, err)
		if info := stream.CachedInfo(); info.Cluster == nil || len(info.Cluster.Replicas) != 2 {
			t.Errorf("%s is not on three servers: %+v", name, info.Cluster)
		}
		was, is := contents(t, one, name), ""
		for until := time.Now().Add(crash.Patience); is != was && time.Now().Before(until); {
			is = contents(t, three, name) // which lacks a consumer that has no leader yet
		}
		check.Same(t, name, was, is)
	}
	c.Dir = t.TempDir()
	must(t, Write(t.Context(), c, nothing))
	_, c.JS = listening(t)
	c.Replicas = 1
	must(t, Restore(t.Context(), c, nothing))
	for _, name := range all(c.Services) { // consumers begin again at the first message that was not acknowledged
		if was, is := messages(t, one, name), messages(t, c.JS, name); was != is {
			t.Errorf("%s was\n%sand is\n%s", name, was, is)
		}
	}
}
