package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
)

// EndpointQuery selects endpoints that do not work. Fields that are empty select all.
type EndpointQuery struct {
	Channel string       `json:"channel"`
	Cursor  string       `json:"cursor"` // where the page before has ended
	Limit   int          `json:"limit"`  // at most MaxLimit; defaults to 100
	State   health.State `json:"state"`
}

// EndpointPage is a part of what a query selects.
type EndpointPage struct {
	// Endpoints are in the order in which they came into their states.
	Endpoints []health.Endpoint `json:"endpoints"`

	// Next is the cursor of the page behind, "" when there is none. A page may be empty and have a next one.
	Next string `json:"next,omitempty"`
}

// EndpointName names one.
type EndpointName struct {
	Channel string `json:"channel"`
	ID      string `json:"id"`
}

// Endpoints returns the endpoints that do not work. One round trip.
func (a *API) Endpoints(ctx context.Context, q EndpointQuery) (EndpointPage, error) {
	from, err := parse(q.Cursor)
	if err != nil {
		return EndpointPage{}, err
	}
	var problems []contracts.FieldError
	if q.Channel != "" && !isToken(q.Channel) {
		problems = append(problems, contracts.FieldError{Path: "?channel", Problem: "is none that there can be"})
	}
	if q.Limit < 0 || q.Limit > MaxLimit {
		problems = append(problems, contracts.FieldError{Path: "?limit", Problem: fmt.Sprintf("must be 1 to %d", MaxLimit)})
	}
	if q.State != "" && q.State != health.Failing && q.State != health.Disabled {
		problems = append(problems, contracts.FieldError{Path: "?state", Problem: "must be failing or disabled"})
	}
	if len(problems) > 0 {
		return EndpointPage{}, &contracts.ValidationError{Type: "query", Fields: problems}
	}
	found, next, err := a.cfg.Health.List(ctx, q.Channel, q.State, from.revision, cmp.Or(q.Limit, defaultLimit))
	if err != nil {
		return EndpointPage{}, err
	}
	return EndpointPage{Endpoints: append([]health.Endpoint{}, found...), Next: at(next).String()}, nil
}

// Enable puts an endpoint back to work that is named by JSON, and returns how it was. Four round trips.
func (a *API) Enable(ctx context.Context, body []byte) (health.Endpoint, error) {
	var name EndpointName
	if err := json.Unmarshal(body, &name); err != nil || !isToken(name.Channel) || !isToken(name.ID) {
		return health.Endpoint{}, &contracts.ValidationError{Type: "request", Fields: []contracts.FieldError{
			{Problem: `must be JSON such as {"channel":"webhook","id":"0f…"}, as the list of endpoints has them`},
		}}
	}
	var was health.Endpoint
	err := a.cfg.Audit.Do(ctx, "enable", "endpoint "+name.ID+" of "+name.Channel, func(ctx context.Context) (n int, err error) {
		if was, err = a.cfg.Health.Enable(ctx, name.Channel, name.ID); err == nil {
			n = 1
		}
		return n, err
	})
	return was, err
}

func isToken(s string) bool {
	token, err := contracts.EncodeToken(s)
	return err == nil && token == s
}
