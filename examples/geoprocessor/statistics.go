package main

import (
	"context"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// statistics prints the content of the cache, and how this process used it.
func (p *processor) statistics(ctx context.Context) error {
	var results, pending, expiring, size int
	var oldest time.Duration
	of := map[string]int{} // results, by process
	for entry, err := range p.flight.List(ctx, "") {
		switch {
		case err != nil:
			return err
		case entry.State == flight.Pending:
			pending++
		case entry.State == flight.Done:
			results++
			of[entry.Key[:strings.LastIndexByte(entry.Key, '.')]]++
			size += len(entry.Value)
			oldest = max(oldest, entry.Age())
			if entry.TTL-entry.Age() < 24*time.Hour {
				expiring++
			}
		}
	}
	s := p.flight.Stats()
	p.sayf("Total entries:    %d (%d being computed), the oldest %s old", results, pending, oldest.Round(time.Millisecond))
	p.sayf("Expiring in 24h:  %d", expiring)
	p.sayf("Total size:       %.3f MB", float64(size)/1e6)
	for _, kind := range processes() {
		p.sayf("  %-14s  %d, kept for %s", kind.name, of[kind.name], kind.keep)
	}
	p.sayf("This process:     %d hits, %d misses, %d waits, %d take-overs", s.Hits, s.Misses, s.Waits, s.TakeOvers)
	p.sayf("                  %d cached, %d coalesced, %d computed, %d failed", s.Cached, s.Coalesced, s.Computed, s.Errors)
	return nil
}
