package main

import (
	"context"
	"time"
)

// statistics prints the content of the cache, and how this process used it.
func (p *processor) statistics(ctx context.Context) error {
	all, err := p.flight.Survey(ctx, "")
	if err != nil {
		return err
	}
	usage, err := p.flight.Usage(ctx)
	if err != nil {
		return err
	}
	oldest := time.Duration(0)
	if !all.Oldest.IsZero() {
		oldest = time.Since(all.Oldest).Round(time.Millisecond)
	}
	s := p.flight.Stats()
	p.sayf("Total entries:    %d (%d being computed), the oldest %s old", all.Done, all.Pending, oldest)
	p.sayf("Expiring in 24h:  %d", all.Expiring)
	p.sayf("Total size:       %.3f MB stored, %.3f MB on disk", float64(all.Bytes)/1e6, float64(usage.Bytes)/1e6)
	for _, kind := range processes() {
		of, err := p.flight.Survey(ctx, kind.name)
		if err != nil {
			return err
		}
		p.sayf("  %-14s  %d, kept for %s", kind.name, of.Done, kind.keep)
	}
	p.sayf("This process:     %d hits, %d misses, %d waits, %d take-overs", s.Hits, s.Misses, s.Waits, s.TakeOvers)
	p.sayf("                  %d cached, %d coalesced, %d computed, %d failed", s.Cached, s.Coalesced, s.Computed, s.Errors)
	return nil
}
