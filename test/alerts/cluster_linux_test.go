package alerts

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// server is a NATS server with a configuration.
type server struct {
	Config, Folder, Name string
	Port                 int // 0 for any
}

// natsServer runs a server, and says where.
var natsServer = crash.Role[server]{Name: "configured server", Run: func(ctx context.Context, task server) error {
	file := filepath.Join(task.Folder, "nats.conf")
	if err := os.WriteFile(file, []byte("jetstream {max_file_store: 1GB}\n"+task.Config), 0o600); err != nil {
		return err
	}
	srv, err := natsrun.Start(natsrun.Config{
		ConfigFile: file, Dir: filepath.Join(task.Folder, "data"), Listen: true, Port: task.Port,
		ReadyTimeout: crash.Patience, ServerName: task.Name,
	})
	if err != nil {
		return err
	}
	defer srv.Stop()
	fmt.Println(srv.URL()) //nolint:forbidigo // to the test
	<-ctx.Done()
	return nil
}}

// clusterFaults are those of one node of three.
func clusterFaults(s *site) {
	place := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(256))
	routes := []string{place + "1:6222", place + "2:6222", place + "3:6222"}
	// The first node has a network of its own to the others, and from them.
	toFirst, fromFirst := crash.NewNetwork(s, routes[0]), crash.NewNetwork(s, routes[1]+","+routes[2])
	nodes, tasks, urls := make([]*crash.Process, 3), make([]server, 3), make([]string, 3)
	for i := range nodes {
		dial := toFirst.URLs + "," + routes[1] + "," + routes[2]
		if i == 0 {
			dial = fromFirst.URLs
		}
		// What a node tells the others of itself is no way around the networks.
		tasks[i] = server{Folder: s.TempDir(), Name: fmt.Sprint("n", i+1), Config: fmt.Sprintf(
			"cluster {name: c, listen: %q, advertise: \"%s9:6222\", routes: [nats://%s]}\n",
			routes[i], place, strings.ReplaceAll(dial, ",", ", nats://"))}
		nodes[i] = natsServer.Start(s, tasks[i])
	}
	for i, node := range nodes {
		urls[i] = node.Line()
	}
	check.OK(s, check.Err(fmt.Sscanf(urls[0], "nats://127.0.0.1:%d", &tasks[0].Port)))
	_, js := natstest.ConnectURL(s, urls[1])
	s.until("there are three nodes", func() bool {
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "OTHERS", Replicas: 3})
		return err == nil
	})
	s.apply(urls[1], "--replicas", "3")
	far := s.provider()
	at, beside := s.enricher(far, urls[0]), s.enricher(far, urls[1])
	s.watch(map[string][]*program{"enricher": {at, beside}})
	start := func() {
		nodes[0].Kill()
		nodes[0] = natsServer.Start(s, tasks[0])
		nodes[0].Line()
	}
	s.suffer(
		fault{"a node is cut off from the others", func() {
			toFirst.Cut(crash.ToServer, crash.ToClient)
			fromFirst.Cut(crash.ToServer, crash.ToClient)
		}, []string{"NodeAway", "StoreTakesNoWrites of " + at.address}, func() {
			toFirst.Heal()
			fromFirst.Heal()
		}},
		fault{"a node is killed", func() { nodes[0].Kill() }, []string{"NodeAway"}, start},
		fault{"a node is frozen", func() { nodes[0].Pause() }, []string{"NodeAway"}, start},
	)
}
