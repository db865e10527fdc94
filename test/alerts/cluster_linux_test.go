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
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/smalldisk"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
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
		// The address that a node advertises does not lead around the networks.
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

// stuck is a provider that ignores the end of its context.
type stuck struct{}

func (stuck) Name() string { return "stuck" }

func (stuck) Search(context.Context, match.Place) ([]provider.Venue, error) { select {} }

// stuckEnricher asks only a provider that is stuck.
var stuckEnricher = crash.Role[string]{Name: "stuck enricher", Run: func(ctx context.Context, url string) error {
	base := service.BaseConfig{Listen: "127.0.0.1:0", Logger: service.NewLogger(os.Stdout, 0), NATSConfig: service.NATSConfig{NATSURL: url}}
	return enricher.Run(ctx, enricher.Config{BaseConfig: base, Enabled: true, Providers: []provider.Provider{stuck{}}})
}}

// diskFaults are those of a disk, of an account's storage, of a consumer, and of a handler.
func diskFaults(s *site) {
	disk := s.TempDir()
	if err := smalldisk.Mount(s, disk); err != nil {
		s.Skipf("a disk to fill cannot be mounted: %v (run as root)", err)
	}
	url := natsServer.Start(s, server{Folder: disk, Name: "bounded", Config: `
accounts {A {jetstream {max_file: 32MB}, users: [{user: a, password: a}]}}
no_auth_user: a
`}).Line()
	_, js := natstest.ConnectURL(s, url)
	s.apply(url)
	other := crash.StartServer(s).URL
	s.apply(other)
	stands := &program{Process: stuckEnricher.Start(s, other)}
	stands.address = stands.Await(serves)[1]
	s.watch(map[string][]*program{"enricher": {s.enricher(s.provider(), url)}, "stuck": {stands}})
	var filler string
	s.suffer(
		fault{"an account's storage is nearly used up, and a consumer is gone", func() {
			check.OK(s, check.Err(js.CreateStream(s.Context(), jetstream.StreamConfig{Name: "OTHERS", Subjects: []string{"others"}})))
			for range 31 {
				check.OK(s, check.Err(js.Publish(s.Context(), "others", make([]byte, 1_000_000))))
			}
			s.post(stands.address+"/v1/enrich", s.places(1))
			check.OK(s, js.DeleteConsumer(s.Context(), jobs, "enricher"))
		}, []string{"StorageFull", "NoWorkerReady"}, func() {
			check.OK(s, js.DeleteStream(s.Context(), "OTHERS"))
			s.apply(url)
		}},
		fault{"the disk is full, and a handler goes on after its time", func() {
			filler = smalldisk.Fill(s, disk)
		}, []string{"StoreTakesNoWrites", "HandlersStuck of stuck"}, func() {
			check.OK(s, os.Remove(filler))
			stands.Kill()
		}},
	)
}
