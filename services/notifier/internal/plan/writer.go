package plan

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// writer collects the recipients of a plan. It holds one page and sixteen bytes of each recipient, by which those that
// come twice are delivered.
type writer struct {
	planner *Planner
	plan    *Plan
	seen    map[[16]byte]struct{}
	page    bytes.Buffer // the entries of the page that is not written yet, with commas
}

// add puts a recipient into the plan, once.
func (w *writer) add(ctx context.Context, r contracts.Recipient) error {
	sum := sha256.Sum256([]byte(string(r.RecipientType) + "\x00" + r.UserID))
	id := [16]byte(sum[:])
	if _, twice := w.seen[id]; twice {
		return nil
	}
	if len(w.seen) >= w.planner.cfg.MaxRecipients {
		return tooLarge("the event concerns more than %d recipients", w.planner.cfg.MaxRecipients)
	}
	data, err := contracts.Encode(r)
	if err != nil {
		return fmt.Errorf("recipient %.80q: %w", r.UserID, err)
	}
	if len(data) > maxEntry {
		return tooLarge("what is known of recipient %.80q has %d bytes, at most %d", r.UserID, len(data), maxEntry)
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
	w.seen[id] = struct{}{}
	w.plan.Recipients++
	w.plan.Rows += len(w.plan.Routes[r.RecipientType].Starts())
	return nil
}

// flush writes the page. Its subject has the name of the try, so nobody else writes there.
func (w *writer) flush(ctx context.Context) error {
	subject, err := contracts.NotifyPageSubject(w.plan.EventID, w.plan.Attempt, w.plan.Pages)
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
	encoder.SetEscapeHTML(false) // it would make some payloads six times as large
	if err := encoder.Encode(w.plan); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if data.Len() > contracts.MaxBody {
		return nil, tooLarge("the plan record has %d bytes, at most %d", data.Len(), contracts.MaxBody)
	}
	return data.Bytes(), nil
}
