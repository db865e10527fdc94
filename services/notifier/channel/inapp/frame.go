package inapp

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// frame has those fields of an item that it shares with others of its event.
type frame struct {
	category, eventID, eventType, locale, template string

	created  time.Time
	kind     contracts.RecipientType
	payload  *byte // messages of an event share its payload
	size     int
	priority contracts.Urgency
}

// maxFrames bounds the frames in memory.
const maxFrames = 16

// encode returns a new item as put writes it. The items of an event differ in few fields, so it keeps the JSON of the others.
func (b *Inbox) encode(m channel.Message, sent *deliveries.ItemAttempt) ([]byte, error) {
	of := frame{
		category: m.Category, eventID: m.EventID, eventType: m.EventType, locale: m.Locale, template: m.Template, created: m.CreatedAt,
		kind: m.RecipientType, size: len(m.Payload), priority: m.Priority,
	}
	if of.size > 0 {
		of.payload = &m.Payload[0]
	}
	b.mu.Lock()
	shared, ok := b.frames[of]
	b.mu.Unlock()
	if !ok {
		var err error
		shared, err = json.Marshal(struct {
			Item

			ExpiresAt bool `json:"expires_at,omitempty"` // not those of Item
			ID        bool `json:"id,omitempty"`
		}{Item: Item{
			Category: m.Category, CreatedAt: m.CreatedAt.UTC(), EventID: m.EventID, EventType: m.EventType, Locale: m.Locale, Payload: m.Payload,
			Priority: m.Priority, RecipientType: m.RecipientType, State: Unread, StateAt: m.CreatedAt.UTC(), Template: m.Template,
		}})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errEncode, err)
		}
		b.mu.Lock()
		if b.frames == nil || len(b.frames) >= maxFrames {
			b.frames = map[frame][]byte{} // those of the events of now come again
		}
		b.frames[of] = shared
		b.mu.Unlock()
	}
	own, err := json.Marshal(struct {
		ID   string                  `json:"id"`
		Sent *deliveries.ItemAttempt `json:"sent,omitempty"`
	}{m.ID, sent})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errEncode, err)
	}
	data := make([]byte, 0, len(shared)+len(own)+len(`,"expires_at":"",`)+len(time.RFC3339Nano))
	data = append(data, shared[:len(shared)-1]...)
	data = time.Now().UTC().Add(b.cfg.Keep).AppendFormat(data, `,"expires_at":"`+time.RFC3339Nano+`",`)
	return append(data, own[1:]...), nil
}
