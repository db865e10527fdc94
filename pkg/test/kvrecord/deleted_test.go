package kvrecord_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Deleted tells the marks of a bucket from records.
func TestDeletedKeysOfABucket(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	_, js := natstest.Connect(t, srv)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
	check.OK(t, err)
	s := client(t, kvrecord.Config{JetStream: js}).Bucket("b")
	remove := map[string]func(context.Context, string, ...jetstream.KVDeleteOpt) error{"deleted": kv.Delete, "purged": kv.Purge, "kept": nil}
	for _, key := range slices.Collect(maps.Keys(remove)) {
		check.OK(t, check.Err(kv.Put(t.Context(), key, []byte("v"))))
		if remove[key] != nil {
			check.OK(t, remove[key](t.Context(), key))
		}
		r, err := s.Get(t.Context(), "$KV.b."+key)
		if err != nil || r.Deleted() != (remove[key] != nil) || (len(r.Data) == 0) != r.Deleted() {
			t.Errorf("%s: got %+v, %v", key, r, err)
		}
		if _, err := s.Put(t.Context(), kvrecord.Write{Subject: "$KV.b." + key, Data: []byte("w"), Over: r}); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}
