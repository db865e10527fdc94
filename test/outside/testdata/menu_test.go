//go:build ignore

// A test with its own server, whose week passes in milliseconds.
package menu

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

func TestMenuExpires(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "menus", LimitMarkerTTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Create(t.Context(), "soup", nil, jetstream.KeyTTL(7*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
		natstest.Pass(7*24*time.Hour + time.Second)
		if entry, err := kv.Get(t.Context(), "soup"); err == nil {
			t.Errorf("after a week it is there, of %s", entry.Created())
		}
	})
}
