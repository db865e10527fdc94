package natsrun_test

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// BenchmarkStart measures from nothing to a server that has answered a client,
// and back to nothing.
func BenchmarkStart(b *testing.B) {
	for name, cfg := range map[string]natsrun.Config{
		"InProcess": {},
		"Memory":    {Memory: true},
		"Listen":    {Listen: true},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				srv, err := natsrun.Start(cfg)
				check.OK(b, err)

				nc, err := srv.Connect()
				check.OK(b, err)

				check.OK(b, check.Err(nc.RTT()))

				b.StopTimer()
				nc.Close()
				srv.Stop()
				b.StartTimer()
			}
		})
	}
}

// BenchmarkRestart measures how long there is no server.
func BenchmarkRestart(b *testing.B) {
	srv := natstest.Server(b, func(c *natsrun.Config) { c.Memory = true })

	for b.Loop() {
		check.OK(b, srv.Restart(b.Context()))
	}
}

// BenchmarkStartCluster measures from nothing to streams with three replicas.
func BenchmarkStartCluster(b *testing.B) {
	for name, mutate := range map[string]func(*natsrun.ClusterConfig){
		"InProcess": func(*natsrun.ClusterConfig) {},
		"Processes": natstest.Processes,
	} {
		b.Run(name, func(b *testing.B) {
			cfg := natsrun.ClusterConfig{}
			mutate(&cfg)

			for b.Loop() {
				c, err := natsrun.StartCluster(b.Context(), cfg)
				check.OK(b, err)

				b.StopTimer()
				c.Stop()
				b.StartTimer()
			}
		})
	}
}
