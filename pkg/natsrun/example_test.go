package natsrun_test

import (
	"context"
	"fmt"
	"log"
	"time"

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
