// Package natstest gives each test a NATS server of its own.
//
//	func TestStore(t *testing.T) {
//		t.Parallel()
//
//		srv := natstest.Server(t)
//		_, js := natstest.Connect(t, srv)
//
//		kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
//		...
//	}
package natstest
