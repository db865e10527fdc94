package recipient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// readProfile decodes a recipient whom another program describes. A field that is invalid counts as absent, so that one of them
// does not cost the recipient every notification, and is returned in wrong. An opt-out that cannot be read is an error, as is
// anything but a JSON object: what the recipient refuses is not known then. who has the ids, if these are known.
func readProfile(data []byte, who contracts.Recipient) (r contracts.Recipient, wrong []contracts.FieldError, err error) {
	r, err = contracts.Decode[contracts.Recipient](data)
	invalid, ok := errors.AsType[*contracts.ValidationError](err)
	var fields map[string]json.RawMessage
	if !ok || json.Unmarshal(data, &fields) != nil {
		return r, nil, err
	}
	for _, field := range invalid.Fields {
		name, _, _ := strings.Cut(strings.TrimPrefix(field.Path, "/"), "/")
		switch name {
		case "opt_out":
			return r, nil, err
		case "addresses":
			fields[name] = validAddresses(fields[name])
		default:
			delete(fields, name)
		}
	}
	if ids, err := contracts.Encode(who); err == nil {
		_ = json.Unmarshal(ids, &fields) //nolint:errcheck // adds to the map what was encoded
	}
	mended, err := json.Marshal(fields)
	if err != nil {
		return r, nil, err //nolint:wrapcheck // by the caller
	}
	if r, err = contracts.Decode[contracts.Recipient](mended); err != nil {
		return r, nil, invalid
	}
	return r, invalid.Fields, nil
}

// validAddresses returns the addresses without those that are invalid.
func validAddresses(data json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	valid := map[string]json.RawMessage{}
	_ = json.Unmarshal(data, &all) //nolint:errcheck // not an object: no addresses
	for name, address := range all {
		one := map[string]any{"user_id": "u", "recipient_type": "t", "addresses": map[string]json.RawMessage{name: address}}
		if text, err := json.Marshal(one); err == nil {
			if _, err := contracts.Decode[contracts.Recipient](text); err == nil {
				valid[name] = address
			}
		}
	}
	data, _ = json.Marshal(valid) //nolint:errcheck,errchkjson // it was decoded
	return data
}

// warnEvery bounds the log: of all that is wrong with profiles, one line is written in this time.
const warnEvery = time.Minute

// warner logs what is wrong with profiles, and little of it: a program may write the same mistake for every recipient.
type warner struct {
	logger *slog.Logger
	some   rate.Sometimes
}

func newWarner(logger *slog.Logger) *warner {
	logger = cmp.Or(logger, slog.Default())
	return &warner{logger: logger, some: rate.Sometimes{Interval: warnEvery}}
}

// ignored logs which fields of a recipient are ignored, if any.
func (w *warner) ignored(ctx context.Context, r contracts.Recipient, wrong []contracts.FieldError) {
	if len(wrong) > 0 {
		w.warn(ctx, "fields of a recipient are ignored because they are invalid", r, &contracts.ValidationError{Type: "Recipient", Fields: wrong})
	}
}

func (w *warner) warn(ctx context.Context, text string, r contracts.Recipient, err error) {
	w.some.Do(func() {
		w.logger.WarnContext(ctx, "notifier: "+text, //nolint:sloglint // begins with the service's name
			"recipient_type", r.RecipientType, "user_id", r.UserID, "error", err, "silent_for", warnEvery)
	})
}
