package row

import (
	"bytes"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Decoder reads rows as contracts.Decode does. What the rows of a plan have around their users is read once: see [Encoder]. It may be
// used by many at once. What it returns shares memory, and is not changed.
type Decoder struct {
	mu     sync.RWMutex
	frames map[string]contracts.Notification // by what is around the user
}

// maxFrame bounds the rows that are kept, in bytes.
const maxFrame = 16 << 10

// Decode reads the row in a message.
func (d *Decoder) Decode(header nats.Header, data []byte) (contracts.Notification, error) {
	frame, user, framed := split(data)
	if framed {
		d.mu.RLock()
		n, known := d.frames[string(frame)]
		d.mu.RUnlock()
		if n.UserID = user; known {
			return n, nil
		}
	}
	event, err := contracts.ParseCloudEvent(contracts.NotifySendsSubjects, header, data)
	if err != nil {
		return contracts.Notification{}, err
	}
	n, err := contracts.Decode[contracts.Notification](event.Data)
	if err == nil && framed && n.Recipient == nil { // rows with a profile differ in more than the user
		d.keep(string(frame), n)
	}
	return n, err
}

func (d *Decoder) keep(frame string, n contracts.Notification) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.frames == nil || len(d.frames) >= maxFrames {
		d.frames = map[string]contracts.Notification{} // those of the plans of now come again
	}
	d.frames[frame] = n
}

// split takes a row apart, if its user stands directly behind the event's id, as contracts.Encode writes it, and as it is. No other
// field can be taken for it: nothing stands before these two.
func split(data []byte) (frame []byte, user string, ok bool) {
	const first, second = `{"event_id":"`, `","user_id":"`
	if len(data) > maxFrame || !bytes.HasPrefix(data, []byte(first)) {
		return nil, "", false
	}
	at := len(first) + max(bytes.IndexByte(data[len(first):], '"'), 0)
	if !bytes.HasPrefix(data[at:], []byte(second)) {
		return nil, "", false
	}
	at += len(second)
	end := at + max(bytes.IndexByte(data[at:], '"'), 0)
	user = string(data[at:end])
	frame = append(make([]byte, 0, len(data)), data[:at]...)
	return append(frame, data[end:]...), user, plain(user)
}
