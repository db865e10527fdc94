package deliveries

import (
	"bytes"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

// cloudEventType is the CloudEvents type of a notification.
const cloudEventType = "io.expediter.notification.requested.v1"

// Header returns the headers that all notifications of a plan share. created is the time at which the plan was made.
func Header(created time.Time) (nats.Header, error) {
	header, err := contracts.CloudEvent{
		ID: "row", Source: "/notifier", Type: cloudEventType, Time: created,
		DataContentType: "application/json",
	}.Header()
	if err != nil {
		return nil, fmt.Errorf("headers of notifications: %w", err)
	}
	header.Del(nats.MsgIdHdr) // the subject identifies a notification
	return header, nil
}

// Encoder writes the notifications of one plan as contracts.Encode does. Most notifications differ from the one before only in the
// user, so it keeps the bytes around the user. It is not safe for concurrent use.
type Encoder struct {
	frames map[frameOf]frame
}

// frameOf has the fields other than the user in which notifications of a plan differ. Digest, throttle, unread and fallback depend on
// kind and channel. A notification that follows another has its own encoder.
type frameOf struct {
	address   string
	category  string
	channel   string
	kind      contracts.RecipientType
	locale    string
	notBefore time.Time
	priority  string
	template  string
}

// frame is a notification without its user.
type frame struct{ before, after []byte }

// maxFrames bounds the frames in memory: a plan has few kinds, channels and languages, but a resolver may
// return any number.
const maxFrames = 64

// Write returns the write that stores a notification of the encoder's plan. The message id is the notification's key.
func (e *Encoder) Write(n contracts.Notification, common nats.Header) (w kvrecord.Write, err error) {
	id, err := keys.Of(&n)
	if err != nil {
		return w, err
	}
	subject, err := keys.Send(&n)
	if err != nil {
		return w, err
	}
	data, err := e.encode(n)
	return kvrecord.Write{Subject: subject, Data: data, Header: named(common, id)}, err
}

// Write returns the write that stores a notification by itself.
func Write(n contracts.Notification) (kvrecord.Write, error) {
	header, err := Header(n.CreatedAt)
	if err != nil {
		return kvrecord.Write{}, err
	}
	return new(Encoder).Write(n, header)
}

// Replay returns the write that sends a notification again for the n-th time. It has the data of the notification, and an id of its
// own, so that it gets its own dead letter.
func Replay(n contracts.Notification, data []byte, number int) (w kvrecord.Write, err error) {
	id, err := keys.Of(&n)
	if err != nil {
		return w, err
	}
	subject, err := keys.Replay(&n, number)
	if err != nil {
		return w, err
	}
	common, err := Header(n.CreatedAt)
	return kvrecord.Write{Subject: subject, Data: data, Header: named(common, id+"."+strconv.Itoa(number))}, err
}

func named(common nats.Header, id string) nats.Header {
	header := maps.Clone(common)
	header["ce-id"], header[worker.HeaderID] = []string{id}, []string{id}
	return header
}

// Decoder reads notifications as contracts.Decode does. It parses the bytes around the user once for all notifications of a plan: see
// [Encoder]. It may be used by many goroutines at once. The returned notifications share memory, and must not be changed.
type Decoder struct {
	mu     sync.RWMutex
	frames map[string]contracts.Notification // by the bytes around the user
}

// maxFrame bounds a notification whose frame is kept, in bytes.
const maxFrame = 16 << 10

// DecodeArgs reads the notification in a message into args, as a worker.Policy takes it.
func (d *Decoder) DecodeArgs(_ nats.Header, data []byte, args any) (err error) {
	n := args.(*contracts.Notification) //nolint:forcetypeassert // registered with this type
	frame, user, framed := split(data)
	if framed {
		// Nearly all notifications of a plan take this way, so it has the read lock only.
		d.mu.RLock()
		known, found := d.frames[string(frame)]
		d.mu.RUnlock()
		if found {
			*n, n.UserID = known, user
			return nil
		}
	}
	if *n, err = contracts.Decode[contracts.Notification](data); err != nil || !framed || n.Recipient != nil {
		// Notifications with a profile differ in more than the user.
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// A full map starts over: the frames of present plans are soon added again.
	if d.frames == nil || len(d.frames) >= maxFrames {
		d.frames = map[string]contracts.Notification{}
	}
	d.frames[string(frame)] = *n
	return nil
}

// split splits a notification around its user, if the user directly follows the event's id, as contracts.Encode writes notifications,
// and has no escapes. No other field can be taken for the user, because only the event's id precedes it.
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

// encode returns the JSON of a notification. The caller may keep the data.
func (e *Encoder) encode(n contracts.Notification) ([]byte, error) {
	if n.Recipient != nil || !plain(n.UserID) {
		return contracts.Encode(n)
	}
	of := frameOf{
		address: n.Address, category: n.Category, channel: n.Channel, kind: n.RecipientType, locale: n.Locale, notBefore: n.NotBefore,
		priority: n.Priority, template: n.Template,
	}
	f, ok := e.frames[of]
	if !ok {
		data, err := contracts.Encode(n)
		if err != nil {
			return nil, err
		}
		e.keep(of, data, n.UserID)
		return data, nil
	}
	data := make([]byte, 0, len(f.before)+len(n.UserID)+len(f.after))
	data = append(data, f.before...)
	data = append(data, n.UserID...)
	return append(data, f.after...), nil
}

// keep splits a notification around its user and keeps the parts. The user follows the event's id, in which each quotation mark
// is escaped, and precedes all other fields, so that the first match is the user.
func (e *Encoder) keep(of frameOf, data []byte, userID string) {
	const field = `,"user_id":"`
	at := bytes.Index(data, []byte(field+userID+`"`))
	if at < 0 || len(e.frames) >= maxFrames {
		return
	}
	at += len(field)
	if e.frames == nil {
		e.frames = map[frameOf]frame{}
	}
	e.frames[of] = frame{before: data[:at:at], after: data[at+len(userID):]}
}

// plain reports whether an id is valid, and unchanged in JSON.
func plain(id string) bool {
	if id == "" || len(id) > contracts.MaxID {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
