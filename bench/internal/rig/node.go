package rig

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/expediter-io/expediter/pkg/natsrun"
)

// nodeEnv makes this program a NATS server. It reads its node, as JSON.
const nodeEnv = "BENCH_NODE"

// maxStore is what a server lets streams reserve in memory, and on disk, in bytes.
const maxStore = 8 << 30

// node is one NATS server.
type node struct {
	Name   string
	Dir    string
	Port   int
	Route  int      // port for the other nodes; 0 for a server alone
	Routes []string // of all nodes
	Always bool     // sync to disk before every acknowledgement; else every second, as deployed
}

// NodeMain is the life of a server, if this process is to be one: until its standard input ends.
func NodeMain() { ChildMain(nodeEnv, serve) }

func serve(_ context.Context, n node) error {
	cfg := natsrun.Config{Dir: n.Dir, Port: n.Port, ReadyTimeout: time.Minute, ServerName: n.Name}
	natsrun.ChangeOptions(&cfg, n.apply)
	srv, err := natsrun.Start(cfg)
	if err != nil {
		return err
	}
	defer srv.Stop()
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func (n node) apply(o *server.Options) {
	o.SyncAlways = n.Always
	o.JetStreamMaxMemory, o.JetStreamMaxStore = maxStore, maxStore
	if n.Route == 0 {
		return
	}
	o.Cluster.Name, o.Cluster.Host, o.Cluster.Port = "bench", "127.0.0.1", n.Route
	for _, route := range n.Routes {
		u, err := url.Parse(route)
		if err != nil {
			panic(err) // we wrote it
		}
		o.Routes = append(o.Routes, u)
	}
}
