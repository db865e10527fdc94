package alerts

import (
	"context"
	"os"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/smalldisk"
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
