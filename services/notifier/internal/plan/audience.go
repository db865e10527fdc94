package plan

import (
	"maps"
	"slices"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// audience returns whom to look for. What the event says goes before the rules: one that is a broadcast is for all whom
// it concerns, one that names a kind is for that kind, and one that names a user with it for that user. An event that
// says nothing is for those that the rules name.
func audience(e contracts.Event, routes map[contracts.RecipientType]rules.Route) []recipient.Query {
	queries := make([]recipient.Query, 0, len(routes))
	for _, kind := range slices.Sorted(maps.Keys(routes)) {
		q := recipient.Query{Event: e, Scope: routes[kind].Scope, Type: kind}
		switch e.RecipientType {
		case kind:
			if e.UserID != "" {
				q.Scope = rules.ScopeUser
			}
		case contracts.RecipientBroadcast:
			if q.Scope == rules.ScopeUser {
				q.Scope = rules.ScopeAggregate
			}
		case "":
		default:
			continue
		}
		queries = append(queries, q)
	}
	return queries
}
