package row

import (
	"bytes"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Encoder writes the rows of one plan as contracts.Encode does. Most of them differ from the one before in nothing but the
// user, so what a row has around its user is kept. It is used by one goroutine.
type Encoder struct {
	frames map[frameOf]frame
}

// frameOf is what tells one row of a plan from another, beside the user. Digest, throttle and unread are those of kind and channel.
// So are the channels that are tried in order; a row that follows another has an encoder of its own.
type frameOf struct {
	address   string
	category  string
	channel   string
	kind      contracts.RecipientType
	locale    string
	notBefore time.Time
	priority  contracts.Urgency
	template  string
}

// frame is a row without its user.
type frame struct{ before, after []byte }

// maxFrames bounds what is kept: a plan has few kinds, channels and languages, but a resolver may say anything.
const maxFrames = 64

// encode returns the JSON of a row, whose data may be kept.
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

// keep takes a row apart. The user stands behind the event's id, in which no quotation mark is without a backslash, and
// before everything else in which such a field could be.
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

// plain reports whether an id is valid, and stands in JSON as it is.
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
