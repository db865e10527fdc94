package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// Reader reads plans.
type Reader struct {
	events        events
	notifications *kvrecord.Stream
}

// NewReader returns a reader. No round trip.
func NewReader(records *kvrecord.Client) *Reader {
	return &Reader{events: events{records.Bucket(contracts.BucketDeliveries)}, notifications: records.Stream(contracts.StreamNotifications)}
}

// Decode reads a plan record.
func Decode(data []byte) (*Plan, error) {
	var p Plan
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("%w: plan record: %w", contracts.ErrInvalid, err)
	}
	if p.EventID == "" || p.Attempt == "" || p.Pages < 0 {
		return nil, fmt.Errorf("%w: plan record: it has no event_id, no attempt, or fewer pages than none", contracts.ErrInvalid)
	}
	return &p, nil
}

// Get returns the plan of an event. The error matches [ErrNotFound] when there is none. One round trip.
func (r *Reader) Get(ctx context.Context, eventID string) (*Plan, error) {
	subject, err := keys.Plan(eventID)
	if err != nil {
		return nil, err
	}
	found, err := r.notifications.Get(ctx, subject)
	if err != nil {
		return nil, err
	}
	if len(found.Data) == 0 {
		return nil, fmt.Errorf("%s: %w", subject, ErrNotFound)
	}
	return Decode(found.Data)
}

// Event returns the record of an event. The error matches [ErrNotFound] when it was never seen. One round trip.
func (r *Reader) Event(ctx context.Context, eventID string) (*Event, error) {
	return r.events.get(ctx, eventID)
}

// Cancel records that an event is cancelled. From then on it is not planned, its plan is not expanded, and publishing it again
// changes nothing. The error matches [ErrNotFound] when it was never seen. Two round trips.
func (r *Reader) Cancel(ctx context.Context, eventID string) (*Event, error) {
	return r.events.change(ctx, eventID, func(e *Event) bool {
		open := e.State != StateCancelled
		e.State, e.Reason = StateCancelled, ""
		return open
	})
}

// Expanded records that all notifications of a plan are stored or delivered, unless the event has been cancelled. The planner may write
// the record at the same moment. Usually two round trips.
func (r *Reader) Expanded(ctx context.Context, p *Plan) error {
	_, err := r.events.change(ctx, p.EventID, func(e *Event) bool {
		open := e.State != StateExpanded && e.State != StateCancelled
		if open {
			e.come(StateExpanded, p)
		}
		return open
	})
	return err
}

// Parts returns the number of parts into which the recipients of a plan are divided: its pages, or one.
func (p *Plan) Parts() int { return max(p.Pages, 1) }

// Part returns the recipients of a part of a plan, from 0, always in the same order. One round trip, none for a plan without
// pages.
func (r *Reader) Part(ctx context.Context, p *Plan, n int) ([]contracts.Recipient, error) {
	if p.Pages == 0 {
		return p.Entries, nil
	}
	subject, err := keys.Page(p.EventID, p.Attempt, n)
	if err != nil {
		return nil, err
	}
	found, err := r.notifications.Get(ctx, subject)
	if err == nil && len(found.Data) == 0 {
		err = fmt.Errorf("%s: %w", subject, ErrNotFound)
	}
	var read page
	if err == nil {
		err = json.Unmarshal(found.Data, &read)
	}
	if err != nil {
		return nil, fmt.Errorf("plan of %.80q: page %d of %d: %w", p.EventID, n, p.Pages, err)
	}
	return read.Entries, nil
}

// Notifications yields the notifications of a plan, always in the same order, and an error when they cannot all be read. It holds one
// part of the recipients at a time.
func (r *Reader) Notifications(ctx context.Context, p *Plan) iter.Seq2[contracts.Notification, error] {
	return func(yield func(contracts.Notification, error) bool) {
		for n := range p.Parts() {
			entries, err := r.Part(ctx, p, n)
			if err != nil {
				yield(contracts.Notification{}, err)
				return
			}
			for _, entry := range entries {
				for _, channel := range p.Routes[entry.RecipientType].Starts() {
					if !yield(p.Notification(entry, channel), nil) {
						return
					}
				}
			}
		}
	}
}

// writer collects the recipients of a plan. It holds one page.
type writer struct {
	planner *Planner
	plan    *Plan
	page    bytes.Buffer // the entries of the unwritten page, with commas
}

// add puts a recipient into the plan.
func (w *writer) add(ctx context.Context, r contracts.Recipient) error {
	if w.plan.Recipients >= w.planner.cfg.MaxRecipients {
		return tooLarge("the event concerns more than %d recipients", w.planner.cfg.MaxRecipients)
	}
	data, err := contracts.Encode(r)
	if err != nil {
		return fmt.Errorf("recipient %.80q: %w", r.UserID, err)
	}
	if len(data) > maxEntry {
		return tooLarge("the entry of recipient %.80q has %d bytes, at most %d", r.UserID, len(data), maxEntry)
	}
	if w.page.Len() >= w.planner.cfg.PageBytes {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	if w.page.Len() > 0 {
		w.page.WriteByte(',')
	}
	w.page.Write(data)
	w.plan.Recipients++
	w.plan.Notifications += len(w.plan.Routes[r.RecipientType].Starts())
	return nil
}

// flush writes the page. Its subject has the name of the attempt, so no other planner writes it.
func (w *writer) flush(ctx context.Context) error {
	subject, err := keys.Page(w.plan.EventID, w.plan.Attempt, w.plan.Pages)
	if err != nil {
		return err
	}
	data := make([]byte, 0, w.page.Len()+len(`{"entries":[]}`))
	data = append(data, `{"entries":[`...)
	data = append(data, w.page.Bytes()...)
	data = append(data, `]}`...)
	if _, err := w.planner.notifications.Put(ctx, kvrecord.Write{Subject: subject, Data: data}); err != nil {
		return fmt.Errorf("page %d: %w", w.plan.Pages, err)
	}
	w.page.Reset()
	w.plan.Pages++
	w.planner.cfg.Passed(PointPage)
	return nil
}

// finish returns the plan record, after the last page when there are pages.
func (w *writer) finish(ctx context.Context) ([]byte, error) {
	if w.plan.Pages > 0 {
		if err := w.flush(ctx); err != nil {
			return nil, err
		}
	} else if w.page.Len() > 0 {
		if err := json.Unmarshal([]byte("["+w.page.String()+"]"), &w.plan.Entries); err != nil {
			return nil, fmt.Errorf("entries: %w", err)
		}
	}
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false) // escaping would make some payloads six times as large
	if err := encoder.Encode(w.plan); err != nil {
		return nil, fmt.Errorf("encode: %w: %w", contracts.ErrInvalid, err)
	}
	if data.Len() > contracts.MaxBody {
		return nil, tooLarge("the plan record has %d bytes, at most %d", data.Len(), contracts.MaxBody)
	}
	return data.Bytes(), nil
}
