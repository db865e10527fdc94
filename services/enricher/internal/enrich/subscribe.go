package enrich

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// ErrTooManySubscriptions is returned when this process has as many as Config.MaxSubscriptions.
var ErrTooManySubscriptions = errors.New("enricher: too many subscriptions in this process")

// The types of events of a Subscription.
const (
	// TypeSnapshot is the first event of a new subscription: the states of all places of the request.
	TypeSnapshot = "snapshot"
	// TypeReset is the first event when the id to resume after is unknown: forget what you have, a snapshot follows.
	TypeReset = "reset"
	// TypeComplete is the last event: the subscriber has received something about every place.
	TypeComplete = "complete"
)

// Update is one event of a Subscription.
type Update struct {
	// ID is the id with which Subscribe continues after this event; "" after a reset, which starts over.
	ID string

	// Type is TypeSnapshot, TypeReset, TypeComplete or contracts.TypeResultPatch.
	Type string

	// Body is the content of the event: a Snapshot, a contracts.ResultPatch or a Notice.
	Body any
}

// Notice is the body of an event without other content.
type Notice struct {
	Type      string `json:"type"      jsonschema:"enum=reset,enum=complete"`
	RequestID string `json:"requestId"`
}

// Snapshot has the states of all places of a request.
type Snapshot struct {
	Type      string          `json:"type"      jsonschema:"enum=snapshot"`
	RequestID string          `json:"requestId"`
	Places    []SnapshotPlace `json:"places"`
	// Pending is the number of states that are PENDING and not final.
	Pending int `json:"pending"`
}

// SnapshotPlace is the state of one place, in the form of a patch.
type SnapshotPlace struct {
	PlaceID string `json:"placeId"`

	contracts.Patch //nolint:embeddedstructfieldcheck // in this order on the wire
}

// Patches returns the snapshot's settled places as patches, for clients that accept only patches.
func (s Snapshot) Patches() []contracts.ResultPatch {
	var patches []contracts.ResultPatch
	for _, place := range s.Places {
		settled := false
		for _, state := range place.Providers {
			settled = settled || state.Status != contracts.StatusPending || state.Reason != ""
		}
		if settled {
			patches = append(patches, contracts.ResultPatch{
				Type: contracts.TypeResultPatch, RequestID: s.RequestID, PlaceID: place.PlaceID, Patch: place.Patch,
			})
		}
	}
	return patches
}

// Subscription delivers the results of one request. One goroutine uses it, and closes it.
type Subscription struct {
	service   *Service
	requestID string
	lookups   []*lookup
	places    map[*lookup]int // their positions
	progress  progress
	watch     *watch
	queue     []Update // known and not returned by Next yet
	over      bool
}

// Subscribe starts to deliver the results of a request. A new subscription begins with a snapshot. A subscription that
// resumes after the event with id lastEventID gets only the later patches; the id may come from any process. When the id
// does not belong to this request, the subscription begins with a reset and a snapshot. A subscription that resumes after
// the last event gets nothing.
//
// It returns [ErrUnknownRequest] and [ErrTooManySubscriptions]. Two round trips.
func (s *Service) Subscribe(ctx context.Context, requestID, lastEventID string) (*Subscription, error) {
	select {
	case s.subscriptions <- struct{}{}:
	default:
		return nil, fmt.Errorf("%w: the limit is %d", ErrTooManySubscriptions, s.cfg.MaxSubscriptions)
	}
	sub, err := s.subscribe(ctx, requestID, lastEventID)
	if err != nil {
		<-s.subscriptions
		return nil, err
	}
	return sub, nil
}

func (s *Service) subscribe(ctx context.Context, requestID, lastEventID string) (*Subscription, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StoreTimeout)
	defer cancel()
	record, err := s.load(ctx, requestID)
	if err != nil {
		return nil, err
	}
	sub := &Subscription{
		service: s, requestID: requestID, places: map[*lookup]int{},
		progress: progress{nonce: record.Nonce, published: make([]published, len(record.Jobs))},
	}
	for i, job := range record.Jobs {
		t := new(lookup)
		err := t.init(job)
		if err != nil {
			return nil, fmt.Errorf("enricher: record of request %q: %w", requestID, err)
		}
		sub.lookups, sub.places[t] = append(sub.lookups, t), i
	}
	if sub.watch, err = s.startWatch(sub.lookups); err != nil {
		return nil, fmt.Errorf("enricher: subscribe to request %q: %w", requestID, err)
	}
	if err := sub.begin(ctx, lastEventID); err != nil {
		sub.watch.close()
		return nil, err
	}
	return sub, nil
}

// begin queues the first events of a subscription.
func (sub *Subscription) begin(ctx context.Context, lastEventID string) error {
	resumed := lastEventID != "" && sub.resume(lastEventID)
	if err := sub.watch.first(ctx); err != nil {
		return fmt.Errorf("enricher: subscribe to request %q: %w", sub.requestID, err)
	}
	switch {
	case resumed:
		for i := range sub.lookups {
			sub.patch(i)
		}
	case lastEventID == "":
		sub.snapshot()
	default:
		// Without an id: a client that is cut off now has to start over, because the snapshot is still missing.
		sub.queue = append(sub.queue, Update{Type: TypeReset, Body: Notice{Type: TypeReset, RequestID: sub.requestID}})
		sub.snapshot()
	}
	sub.finish()
	return nil
}

// resume continues after the event with an id, and reports whether the id belongs to this request.
func (sub *Subscription) resume(eventID string) bool {
	if !sub.progress.resume(eventID) {
		return false
	}
	sub.over = sub.progress.complete()
	for i, t := range sub.lookups {
		t.published = sub.progress.published[i] != publishedNothing
	}
	return true
}

// Close ends the subscription.
func (sub *Subscription) Close() {
	sub.watch.close()
	<-sub.service.subscriptions
}

// Over reports whether Next has returned the last event.
func (sub *Subscription) Over() bool { return sub.over && len(sub.queue) == 0 }

// Next waits for the next event. The error is io.EOF after the last one.
func (sub *Subscription) Next(ctx context.Context) (Update, error) {
	for len(sub.queue) == 0 {
		if sub.Over() {
			return Update{}, io.EOF
		}
		news, err := sub.watch.next(ctx)
		if err != nil {
			return Update{}, err
		}
		for _, t := range news {
			sub.patch(sub.places[t])
		}
		sub.finish()
	}
	update := sub.queue[0]
	sub.queue = sub.queue[1:]
	return update, nil
}

// patch queues the state of place i unless the subscriber has received it.
func (sub *Subscription) patch(i int) {
	t := sub.lookups[i]
	if !sub.advance(i) {
		return
	}
	sub.service.count(func(c *Stats) { c.Patches++ })
	sub.publish(contracts.TypeResultPatch,
		newResultPatch(sub.requestID, t.job.PlaceID, t.job.Provider, t.state, sub.service.cfg.Deprecated))
}

// advance records that the subscriber receives the state of place i, and reports whether the state is new to it.
func (sub *Subscription) advance(i int) bool {
	t, rank := sub.lookups[i], publishedNothing
	switch {
	case t.answered():
		rank = publishedAnswer
	case t.settled:
		rank = publishedUnresolved
	}
	if rank <= sub.progress.published[i] {
		return false
	}
	sub.progress.published[i], t.published = rank, true
	return true
}

func (sub *Subscription) snapshot() {
	body := Snapshot{Type: TypeSnapshot, RequestID: sub.requestID}
	places := map[string]int{}
	for i, t := range sub.lookups {
		sub.advance(i)
		if !t.settled {
			body.Pending++
		}
		patch := newResultPatch(sub.requestID, t.job.PlaceID, t.job.Provider, t.state, sub.service.cfg.Deprecated).Patch
		at, known := places[t.job.PlaceID]
		if !known {
			places[t.job.PlaceID] = len(body.Places)
			body.Places = append(body.Places, SnapshotPlace{PlaceID: t.job.PlaceID, Patch: patch})
			continue
		}
		body.Places[at].Providers[t.job.Provider] = t.state
		if patch.Wolt != nil {
			body.Places[at].Wolt = patch.Wolt
		}
	}
	sub.publish(TypeSnapshot, body)
}

// finish queues the last event when the subscriber has received something about every place.
func (sub *Subscription) finish() {
	if sub.over || !sub.progress.complete() {
		return
	}
	sub.over = true
	sub.publish(TypeComplete, Notice{Type: TypeComplete, RequestID: sub.requestID})
}

func (sub *Subscription) publish(kind string, body any) {
	sub.queue = append(sub.queue, Update{ID: sub.progress.eventID(), Type: kind, Body: body})
}
