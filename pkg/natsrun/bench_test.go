package natsrun_test

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun"
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
				if err != nil {
					b.Fatal(err)
				}

				nc, err := srv.Connect()
				if err != nil {
					b.Fatal(err)
				}

				if _, err := nc.RTT(); err != nil {
					b.Fatal(err)
				}

				b.StopTimer()
				nc.Close()
				srv.Stop()
				b.StartTimer()
			}
		})
	}
}
