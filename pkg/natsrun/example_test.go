package natsrun_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
)

func ExampleStart() {
	srv, err := natsrun.Start(natsrun.Config{Memory: true})
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Stop()
	nc, err := srv.Connect()
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	reply, err := nc.Request("$JS.API.INFO", nil, time.Minute)
	fmt.Println(len(reply.Data) > 0, err)
	// Output: true <nil>
}

func ExampleServer_Restart() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	srv, err := natsrun.Start(natsrun.Config{Memory: true})
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Stop()
	reconnected := make(chan struct{}, 1)
	nc, err := srv.Connect(nats.ReconnectHandler(func(*nats.Conn) { reconnected <- struct{}{} }))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := kv.PutString(ctx, "table-7", "soup"); err != nil {
		log.Fatal(err)
	}
	if err := srv.Restart(ctx); err != nil {
		log.Fatal(err)
	}
	<-reconnected                        // earlier requests may be lost
	entry, err := kv.Get(ctx, "table-7") // the same client, the next server
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(entry.Value()))
	// Output: soup
}

func ExampleConfig() {
	cfg := natsrun.Config{Memory: true, ServerName: "kitchen"}
	natsrun.ChangeOptions(&cfg, func(o *server.Options) { o.MaxPayload = 64 << 10 })
	srv, err := natsrun.Start(cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Stop()
	nc, err := srv.Connect()
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	fmt.Println(nc.ConnectedServerName(), nc.MaxPayload())
	// Output: kitchen 65536
}

func ExampleStartCluster() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := natsrun.StartCluster(ctx, natsrun.ClusterConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Stop()
	if err := c.Nodes[0].Kill(); err != nil {
		log.Fatal(err)
	}
	// The others elect a leader if it was that one, and take streams again.
	if err := c.WaitReady(ctx); err != nil {
		log.Fatal(err)
	}
	for _, n := range c.Nodes {
		fmt.Println(n.Name, n.Running())
	}
	// Output:
	// n1 false
	// n2 true
	// n3 true
}
