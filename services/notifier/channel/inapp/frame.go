package inapp

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// frame has those fields of an item that it shares with others of its event.
type frame struct {
	category, eventID, eventType, locale, template string

	created  time.Time
	kind     contracts.RecipientType
	payload  *byte // messages of an event share its payload
	size     int
	priority string
}

// maxFrames bounds the frames in memory.
const maxFrames = 16

// Item returns the item of a message as JSON. The items of an event differ in few fields, so it keeps the JSON of the others. The error
// is a *channel.Error.
func (b *Inbox) Item(m channel.Message) (json.RawMessage, error) {
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
			return nil, &channel.Error{Channel: Name, Kind: channel.KindRejected, Cause: err}
		}
		b.mu.Lock()
		if b.frames == nil || len(b.frames) >= maxFrames {
			b.frames = map[frame][]byte{} // those of the events of now come again
		}
		b.frames[of] = shared
		b.mu.Unlock()
	}
	data := make([]byte, 0, len(shared)+len(`,"expires_at":"","id":`)+len(time.RFC3339Nano)+2*len(m.ID))
	data = append(data, shared[:len(shared)-1]...)
	data = time.Now().UTC().Add(b.store.ItemKeep).AppendFormat(data, `,"expires_at":"`+time.RFC3339Nano+`","id":`)
	return append(strconv.AppendQuote(data, m.ID), '}'), nil // see deliveries.MessageID: it has nothing that JSON escapes
}
