package alerts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// stuck is a provider that ignores the end of its context.
type stuck struct{}

func (stuck) Name() string { return "stuck" }

func (stuck) Search(context.Context, match.Place) ([]provider.Venue, error) { select {} }

// stuckEnricher asks only a provider that is stuck.
var stuckEnricher = crash.Role[string]{Name: "stuck enricher", Run: func(ctx context.Context, url string) error {
	base := service.BaseConfig{Listen: "127.0.0.1:0", Logger: service.NewLogger(os.Stdout, 0), NATSConfig: service.NATSConfig{NATSURL: url}}
	return enricher.Run(ctx, enricher.Config{BaseConfig: base, Enabled: true, Providers: []provider.Provider{stuck{}}})
}}

// fill takes all room of a disk, and returns the file to remove.
func (s *site) fill(disk string) (path string) {
	s.Helper()
	f, err := os.Create(filepath.Join(disk, "filler"))
	check.OK(s, err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err = f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		s.Fatal(err)
	}
	return f.Name()
}

// diskFaults are those of a disk, of an account's storage, of a consumer, and of a handler.
func diskFaults(s *site) {
	disk := s.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64m"); err != nil {
		s.Skipf("a disk to fill cannot be mounted: %v (run as root)", err)
	}
	s.Cleanup(func() { check.Is(s, syscall.Unmount(disk, syscall.MNT_DETACH), nil) })
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
			filler = s.fill(disk)
		}, []string{"StoreTakesNoWrites", "HandlersStuck of stuck"}, func() {
			check.OK(s, os.Remove(filler))
			stands.Kill()
		}},
	)
}
