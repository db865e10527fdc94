package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// The points that a planner passes, in order: between any two of them its process may die.
const (
	PointSeen    = "plan.seen"    // only the event's record was written
	PointPage    = "plan.page"    // a page was written
	PointRecord  = "plan.record"  // the plan is committed
	PointPlanned = "plan.planned" // the event's record has the state planned
)

// Outcome is the outcome of planning an event.
type Outcome string

// The outcomes.
const (
	// Planned means: this call committed the plan.
	Planned Outcome = "planned"
	// Duplicate means: the event had a plan.
	Duplicate Outcome = "duplicate"
	// Ignored means: no rule applies to the event. No record of it was kept.
	Ignored Outcome = "ignored"
)

// Config configures a [Planner].
type Config struct {
	// MaxRecipients is the largest number of recipients of one event. Defaults to 1,000,000.
	MaxRecipients int

	// PageBytes bounds a page without its last entry, in bytes. A plan that is no larger is complete in its record.
	// Defaults to 128 KiB, which is also the maximum.
	PageBytes int

	// Passed is called at each point, in tests. Defaults to nothing.
	Passed func(point string)

	// Resolver finds the recipients, each once: see [recipient.Once]. Required.
	Resolver recipient.Resolver

	// Route reads the route of an event with its own route. The error is a [*rules.Error] with the mistakes. Required for such
	// events.
	Route func(eventType string, route []byte) (rules.Route, error)

	// Rules returns the rules to plan by. Required.
	Rules func() *rules.Rules
}

// Planner plans events. It is safe for concurrent use, also by several processes.
type Planner struct {
	cfg           Config
	events        events
	notifications *kvrecord.Stream
}

// New returns a planner. No round trip.
func New(records *kvrecord.Client, cfg Config) *Planner {
	cfg.MaxRecipients = cmp.Or(cfg.MaxRecipients, 1_000_000)
	cfg.PageBytes = min(cmp.Or(cfg.PageBytes, pageBytes), pageBytes)
	if cfg.Passed == nil {
		cfg.Passed = func(string) {}
	}
	return &Planner{
		cfg: cfg, events: events{records.Bucket(contracts.BucketDeliveries)}, notifications: records.Stream(contracts.StreamNotifications),
	}
}

// routing has the routes of an event.
type routing struct {
	queries []recipient.Query
	routes  map[contracts.RecipientType]rules.Route
	rules   string // the version of the rules that have the routes
}

// routing returns the routes of an event: its own route, or the routes of the rules.
func (p *Planner) routing(e recipient.Event) (routing, error) {
	current := p.cfg.Rules()
	r := routing{routes: current.For(e.EventType), rules: current.Version()}
	if len(e.Route) > 0 {
		route, err := p.cfg.Route(e.EventType, e.Route)
		if err != nil {
			return r, fmt.Errorf("event %.80q: route: %w", e.EventID, err)
		}
		r.routes = map[contracts.RecipientType]rules.Route{}
		for _, known := range e.Recipients {
			r.routes[known.RecipientType] = route
		}
	}
	r.queries = audience(e, r.routes)
	return r, nil
}

// CheckRoute returns a [*rules.Error] with the mistakes of the route of an event.
func (p *Planner) CheckRoute(eventType string, route []byte) error {
	_, err := p.cfg.Route(eventType, route)
	return err
}

// Concerns reports whether an event has its own route, or a rule applies to it.
func (p *Planner) Concerns(e recipient.Event) bool {
	r, err := p.routing(e)
	return err != nil || len(r.queries) > 0
}

// Accept records that an event has been published, before it is planned, and reports whether that is new. From then on the
// error for another event with its id is ErrMismatch. One round trip.
func (p *Planner) Accept(ctx context.Context, e recipient.Event) (kept *Event, news bool, err error) {
	r, err := p.routing(e)
	if err == nil {
		err = r.fits(e)
	}
	if err != nil {
		return nil, false, err
	}
	seen, err := p.events.see(ctx, e)
	if err != nil {
		return nil, false, fmt.Errorf("event %.80q: %w", e.EventID, err)
	}
	return seen, !seen.again, nil
}

func (r routing) fits(e recipient.Event) error {
	var longest time.Duration
	for _, route := range r.routes {
		longest = max(longest, route.Longest())
	}
	if ahead := time.Until(e.NotBefore); ahead > rules.MaxDelay-longest {
		return fmt.Errorf("event %.80q: %w: not_before is %s, which is %s ahead, at most %s", e.EventID, ErrTooFar,
			e.NotBefore.Format(time.RFC3339), ahead.Round(time.Second), rules.MaxDelay-longest)
	}
	if len(e.Payload) > MaxPayload {
		return fmt.Errorf("event %.80q: %w", e.EventID, tooLarge("the payload has %d bytes, at most %d", len(e.Payload), MaxPayload))
	}
	return nil
}

// Plan commits the plan of an event, unless it has one. It may be called again after any error and any crash: in the end
// there is one plan, of one resolution, and it does not change. ErrMismatch, ErrTooFar, ErrTooLarge, and a permanent
// *recipient.Error are final. Three round trips for an audience that fits into a page.
func (p *Planner) Plan(ctx context.Context, e recipient.Event) (Outcome, error) {
	routing, err := p.routing(e)
	switch {
	case err != nil:
		return "", err
	case len(routing.queries) == 0:
		return Ignored, nil
	}
	if err := routing.fits(e); err != nil {
		return "", err
	}
	seen, err := p.events.see(ctx, e)
	if err != nil {
		return "", fmt.Errorf("event %.80q: %w", e.EventID, err)
	}
	if !seen.Unplanned() {
		return Duplicate, nil
	}
	p.cfg.Passed(PointSeen)
	plan, outcome, err := p.commit(ctx, e, seen, routing)
	if err != nil {
		return "", fmt.Errorf("event %.80q: plan: %w", e.EventID, err)
	}
	p.cfg.Passed(PointRecord)
	seen.come(StatePlanned, plan)
	if err := p.events.note(ctx, seen); err != nil {
		return "", fmt.Errorf("event %.80q: %w", e.EventID, err)
	}
	p.cfg.Passed(PointPlanned)
	return outcome, nil
}

// Reopen records that a refused event is in the stream again. A record that another process has changed since it was read
// stays unchanged. One round trip.
func (p *Planner) Reopen(ctx context.Context, e *Event) error {
	e.State, e.Reason = StateSeen, ""
	return p.events.note(ctx, e)
}

// Refuse records that an event is no longer tried to be planned, with the reason in at most [MaxReason] bytes. The record
// stays unchanged when the event has a plan, is cancelled, was never seen, or is another event with that id. Refuse writes
// even an unchanged refusal, so that a concurrent [Planner.Reopen] fails. Two round trips.
func (p *Planner) Refuse(ctx context.Context, e recipient.Event, reason string) error {
	mark, err := e.Fingerprint()
	if err != nil {
		return err
	}
	if len(reason) > MaxReason {
		reason = redact.Clip(reason, MaxReason)
	}
	_, err = p.events.change(ctx, e.EventID, func(e *Event) bool {
		if !e.Unplanned() || e.Fingerprint != mark {
			return false
		}
		e.State, e.Reason = StateRefused, reason
		return true
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// commit writes the plan, unless there is one.
func (p *Planner) commit(ctx context.Context, e recipient.Event, seen *Event, r routing) (*Plan, Outcome, error) {
	subject, err := keys.Plan(e.EventID)
	if err != nil {
		return nil, "", err
	}
	if seen.again { // the process that saw it first may have advanced it
		found, err := p.notifications.Get(ctx, subject)
		if err != nil {
			return nil, "", err
		}
		if len(found.Data) > 0 {
			return existing(found.Data, seen)
		}
	}
	plan, data, err := p.resolve(ctx, e, seen.Fingerprint, r)
	if err != nil {
		return nil, "", err
	}
	_, err = p.notifications.Put(ctx, kvrecord.Write{Subject: subject, Data: data})
	if conflict, ok := errors.AsType[*kvrecord.ConflictError](err); ok {
		return existing(conflict.Found.Data, seen)
	}
	if err != nil {
		return nil, "", err
	}
	return plan, Planned, nil
}

// existing reads the existing plan. It belongs to the same event, because the event's record was checked. Only if that
// record was lost could it belong to another event.
func existing(data []byte, seen *Event) (*Plan, Outcome, error) {
	plan, err := Decode(data)
	if err == nil && plan.Fingerprint != seen.Fingerprint {
		err = ErrMismatch
	}
	return plan, Duplicate, err
}

// resolve finds the recipients, and writes all pages of the plan but not its record.
func (p *Planner) resolve(ctx context.Context, e recipient.Event, fingerprint string, r routing) (*Plan, []byte, error) {
	plan := &Plan{
		Attempt: nuid.Next(), CreatedAt: time.Now().UTC(), EventID: e.EventID, EventType: e.EventType, Fingerprint: fingerprint,
		NotBefore: e.NotBefore, Payload: e.Payload, Routes: map[contracts.RecipientType]rules.Route{}, Rules: r.rules,
	}
	w := writer{planner: p, plan: plan}
	for _, q := range r.queries {
		plan.Routes[q.Type] = r.routes[q.Type]
		for r, err := range p.cfg.Resolver.Resolve(ctx, q) {
			if err == nil {
				err = w.add(ctx, r)
			}
			if err != nil {
				return nil, nil, err
			}
		}
	}
	data, err := w.finish(ctx)
	return plan, data, err
}

// audience returns the queries for the recipients of an event. The event overrides the rules: a broadcast is for all
// whom it concerns, an event that names a kind is for that kind, and an event that also names a user is for that user.
// Any other event is for the recipients that the rules name.
func audience(e recipient.Event, routes map[contracts.RecipientType]rules.Route) []recipient.Query {
	queries := make([]recipient.Query, 0, len(routes))
	for _, kind := range slices.Sorted(maps.Keys(routes)) {
		q := recipient.Query{Event: e, Scope: routes[kind].Scope, Type: kind}
		switch e.RecipientType {
		case kind:
			if e.UserID != "" {
				q.Scope = rules.ScopeUser
			}
		case "BROADCAST":
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
