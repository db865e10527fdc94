package enrich

import (
	"context"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// limits returns the limits of the jobs of those providers that have some.
func limits(providers []provider.Provider) []worker.Limit {
	var all []worker.Limit
	for _, p := range providers {
		limited, ok := p.(provider.Limited)
		if !ok {
			continue
		}
		l := limited.Limits()
		all = append(all, worker.Limit{
			Burst: l.Burst, Concurrency: l.Searches, Name: limitName(p.Name()), Per: l.Gap, Rate: 1,
			Subjects: strings.TrimSuffix(contracts.EnrichJobsSubjects, ">") + p.Name() + ".>", Turns: true,
		})
	}
	return all
}

func limitName(providerName string) string { return "provider-" + providerName }

// Turn returns what a provider waits for before each call of a search.
func Turn(providerName string) func(context.Context) error {
	return func(ctx context.Context) error { return worker.Turn(ctx, limitName(providerName)) }
}
