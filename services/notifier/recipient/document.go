package recipient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// Part names a part of a recipient that has a record of its own.
type Part string

// The parts.
const (
	Profile     Part = "profile"
	Addresses   Part = "addresses"
	Preferences Part = "preferences"
)

// MaxDocument is the largest record of a part, in bytes.
const MaxDocument = 64 << 10

// Document is a part of a recipient as people edit it: a [contracts.Recipient] with the fields of that part; a profile also has
// the application's own fields.
type Document struct {
	// Body is a JSON object.
	Body json.RawMessage

	// Revision is the revision of the record, 0 when there is none.
	Revision uint64
}

// Edit is a change of a document.
type Edit struct {
	// Body is the new document, a JSON object.
	Body json.RawMessage

	// Merge reports whether Body is a merge patch (RFC 7396): fields that it does not name stay, and null
	// removes.
	Merge bool

	// Own reports whether the recipient made the edit. Only such an edit can remove an opt-out.
	Own bool

	// Revision is the revision of the record that the edit changes: 0 for no record, and [Existing] for any. nil, the
	// default, allows both.
	Revision *uint64

	refused error // names the fields that the part does not have
}

// Existing stands for any revision of an existing record.
const Existing = math.MaxUint64

// Read returns a part of a recipient. The error matches [ErrUnknown] or [ErrForgotten] when the directory does not have the
// recipient. One round trip, and a write when the profile has new addresses or preferences.
func (d *Directory) Read(ctx context.Context, kind contracts.RecipientType, userID string, part Part) (Document, error) {
	f, err := d.read(ctx, kind, userID)
	if err != nil {
		return Document{}, err
	}
	at := slices.IndexFunc(sections, func(s section) bool { return s.part == part })
	switch {
	case f.forgotten:
		return Document{}, permanent(ErrForgotten)
	case at < 0 && f.absent, f.unknown():
		return Document{}, permanent(ErrUnknown)
	case at < 0:
		fields, _ := profileFields(f.record)
		return document(fields, f.who, f.record)
	}
	s := sections[at]
	w, err := s.alter(f, func(kvrecord.Record, *contracts.Recipient) (bool, error) { return false, nil })
	if err == nil && w != nil { // adopts the section, for the revision
		f.own[at], err = d.records.Put(ctx, *w)
		if f.own[at].Data, f.own[at].Header = w.Data, w.Header; errors.Is(err, kvrecord.ErrConflict) {
			return d.Read(ctx, kind, userID, part)
		}
	}
	if err != nil {
		return Document{}, err
	}
	r, _, err := s.read(f)
	if err != nil {
		return Document{}, err
	}
	return document(s.document(r), f.who, f.own[at])
}

// Write changes a part of a recipient. A write of the profile adds the recipient to the directory, even if its data was erased. A
// recipient's own preferences need no profile. The error matches [ErrChanged], [ErrKept], [ErrTooLarge], [ErrUnknown] or
// [ErrForgotten], or is a [*contracts.ValidationError] with all mistakes. Two or three round trips, more when other processes
// write at the same time.
func (d *Directory) Write(ctx context.Context, kind contracts.RecipientType, userID string, part Part, e Edit) (Document, error) {
	who := contracts.Recipient{RecipientType: kind, UserID: userID}
	if err := who.Validate(); err != nil {
		return Document{}, permanent(err)
	}
	if err := e.check(who, part); err != nil {
		return Document{}, permanent(err)
	}
	at := slices.IndexFunc(sections, func(s section) bool { return s.part == part })
	if at < 0 {
		return d.writeProfile(ctx, who, &e)
	}
	s := sections[at]
	found, err := d.read(ctx, kind, userID)
	if err != nil {
		return Document{}, err
	}
	if found.unknown() && !found.forgotten && !(e.Own && part == Preferences) {
		return Document{}, permanent(ErrUnknown)
	}
	var result contracts.Recipient
	stored, _, err := d.changeFound(ctx, s, found, false, func(own kvrecord.Record, r *contracts.Recipient) (changed bool, err error) {
		if err := unchanged(own, e.Revision); err != nil {
			return false, err
		}
		changed, err = s.edit(r, who, &e)
		result = *r
		return changed, err
	})
	switch {
	case err != nil:
		return Document{}, err
	case found.forgotten:
		return Document{}, permanent(ErrForgotten)
	}
	return document(s.document(result), who, stored)
}

func (d *Directory) writeProfile(ctx context.Context, who contracts.Recipient, e *Edit) (Document, error) {
	key, err := contracts.DirectoryKey(who.RecipientType, who.UserID)
	if err != nil {
		return Document{}, permanent(err)
	}
	var data []byte
	stored, changed, err := d.rewrite(ctx, d.records.Key(key), func(over kvrecord.Record) (*kvrecord.Write, error) {
		if err := unchanged(over, e.Revision); err != nil {
			return nil, err
		}
		w, err := alterProfile(over, who, e)
		if data = over.Data; w != nil {
			data = w.Data
		}
		return w, err
	})
	if err != nil {
		return Document{}, err
	}
	if stored.Data = data; changed {
		stored.Header = nil
	}
	fields, _ := profileFields(stored)
	return document(fields, who, stored)
}

// unchanged returns ErrChanged for a record with another revision than the given one, if any.
func unchanged(r kvrecord.Record, revision *uint64) error {
	is := revisionOf(r)
	if revision == nil || *revision == is || *revision == Existing && is > 0 {
		return nil
	}
	return ErrChanged
}

func revisionOf(r kvrecord.Record) uint64 {
	if isAbsent(r) {
		return 0
	}
	return r.Revision
}

// document returns the fields of a record as a document.
func document(fields map[string]json.RawMessage, who contracts.Recipient, r kvrecord.Record) (Document, error) {
	_, body, err := merged(fields, who, nil, true)
	return Document{Body: body, Revision: revisionOf(r)}, err
}

// apart has the fields that a profile may have from earlier versions and from other programs, and that belong to
// other records.
var apart = []string{"addresses", "digest", "endpoints", "mute", "opt_out"}

// profileFields returns the fields of a profile, and separately the fields that belong to other records. A missing record, or one
// that is no JSON object, has no fields.
func profileFields(r kvrecord.Record) (fields, old map[string]json.RawMessage) {
	fields, old = map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if isAbsent(r) || json.Unmarshal(r.Data, &fields) != nil || fields == nil {
		return map[string]json.RawMessage{}, old
	}
	for _, name := range apart {
		if value, found := fields[name]; found {
			old[name] = value
			delete(fields, name)
		}
	}
	return fields, old
}

// alterProfile returns the write that applies an edit to a profile, or nil when it changes nothing. Fields that earlier
// versions kept in the profile stay: they may not be in their own records yet.
func alterProfile(over kvrecord.Record, who contracts.Recipient, e *Edit) (*kvrecord.Write, error) {
	fields, old := profileFields(over)
	next, data, err := merged(fields, who, e.Body, e.Merge)
	if err != nil {
		return nil, err
	}
	if _, err := e.decode(data); err != nil {
		return nil, err
	}
	if !isAbsent(over) && reflect.DeepEqual(fields, next) {
		return nil, nil //nolint:nilnil // nothing is to be written
	}
	maps.Copy(next, old)
	data, err = json.Marshal(next)
	if len(data) > MaxDocument && err == nil {
		err = ErrTooLarge
	}
	return &kvrecord.Write{Subject: over.Subject, Data: data, Over: over}, err
}

// merged returns fields with a body merged in, and the same as JSON. Without merge it returns the body alone.
func merged(
	fields map[string]json.RawMessage, who contracts.Recipient, body json.RawMessage, merge bool,
) (next map[string]json.RawMessage, data json.RawMessage, err error) {
	base := json.RawMessage("{}")
	if merge {
		if base, err = json.Marshal(fields); err != nil {
			return nil, nil, err //nolint:wrapcheck // by the caller
		}
	}
	if data, err = contracts.Encode(who); err != nil {
		return nil, nil, err
	}
	data = mergePatch(mergePatch(base, body), data)
	err = json.Unmarshal(data, &next)
	return next, data, err //nolint:wrapcheck // by the caller
}

// mergePatch applies a merge patch (RFC 7396) to JSON. An empty patch changes nothing.
func mergePatch(target, patch json.RawMessage) json.RawMessage {
	var changes, fields map[string]json.RawMessage
	if len(patch) > 0 && (json.Unmarshal(patch, &changes) != nil || changes == nil) {
		return patch
	}
	if json.Unmarshal(target, &fields) != nil || fields == nil {
		fields = map[string]json.RawMessage{}
	}
	for name, value := range changes {
		if string(value) == "null" {
			delete(fields, name)
		} else {
			fields[name] = mergePatch(fields[name], value)
		}
	}
	data, _ := json.Marshal(fields) //nolint:errcheck,errchkjson // it was decoded
	return data
}

// object is any JSON object.
type object struct{}

// Validate implements [contracts.Message].
func (object) Validate() error { return nil }

// check returns the mistakes of the body as such, and records the fields that the part does not have.
func (e *Edit) check(who contracts.Recipient, part Part) error {
	if len(e.Body) > MaxDocument {
		return ErrTooLarge
	}
	if _, err := contracts.Decode[object](e.Body); err != nil {
		return err
	}
	var body map[string]json.RawMessage
	_ = json.Unmarshal(e.Body, &body) //nolint:errcheck // an object
	mistakes := &contracts.ValidationError{Type: string(part)}
	for _, name := range slices.Sorted(maps.Keys(body)) {
		if problem := part.refuses(name, body[name], who); problem != "" {
			mistakes.Fields = append(mistakes.Fields, contracts.FieldError{Path: "/" + name, Problem: problem})
		}
	}
	mistakes.Fields = append(mistakes.Fields, unknownOfEndpoints(body["endpoints"])...)
	if len(mistakes.Fields) > 0 {
		e.refused = mistakes
	}
	return nil
}

// endpointFields are the fields of an endpoint.
var endpointFields = []string{"address", "disabled", "events", "generation", "name", "previous", "rotated_at"}

// unknownOfEndpoints returns the fields that endpoints do not have. With a misspelt "disabled" an endpoint would
// still get all messages.
func unknownOfEndpoints(body json.RawMessage) (wrong []contracts.FieldError) {
	var all map[string]map[string]map[string]json.RawMessage
	_ = json.Unmarshal(body, &all) //nolint:errcheck // a value of another kind is a mistake of its own
	for channel, byID := range all {
		for id, fields := range byID {
			for name := range fields {
				if !slices.Contains(endpointFields, name) {
					wrong = append(wrong, contracts.FieldError{
						Path: "/endpoints/" + channel + "/" + id + "/" + name, Problem: "is no part of an address: want address, disabled, events or name",
					})
				}
			}
		}
	}
	slices.SortFunc(wrong, func(a, b contracts.FieldError) int { return strings.Compare(a.Path, b.Path) })
	return wrong
}

// decode returns the recipient after an edit, or all mistakes.
func (e *Edit) decode(data []byte) (contracts.Recipient, error) {
	r, err := contracts.Decode[contracts.Recipient](data)
	return r, withMistakes(err, e.refused)
}

// refuses returns the reason why a document cannot have a field, "" when it can.
func (p Part) refuses(name string, value json.RawMessage, who contracts.Recipient) string {
	if id, isID := map[string]string{"recipient_type": string(who.RecipientType), "user_id": who.UserID}[name]; isID {
		var said string
		if json.Unmarshal(value, &said) != nil || said != id {
			return "is not that of the user"
		}
		return ""
	}
	if p == Profile && name != "memberships" && !slices.Contains(apart, name) {
		return ""
	}
	for _, s := range sections {
		if s.part == p && slices.Contains(s.fields, name) {
			return ""
		}
	}
	return "is no part of the " + string(p)
}

// document returns the fields of a section.
func (s section) document(r contracts.Recipient) map[string]json.RawMessage {
	fields := map[string]json.RawMessage{}
	data, _ := json.Marshal(r)        //nolint:errcheck,errchkjson // texts
	_ = json.Unmarshal(data, &fields) //nolint:errcheck // it was encoded
	maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool { return !slices.Contains(s.fields, name) })
	return fields
}

// edit changes the section of r, and reports whether it has changed.
func (s section) edit(r *contracts.Recipient, who contracts.Recipient, e *Edit) (changed bool, err error) {
	before := s.document(*r)
	_, data, err := merged(before, who, e.Body, e.Merge)
	if err != nil {
		return false, err
	}
	n, err := e.decode(data)
	switch {
	case err != nil:
		return false, err
	case len(data) > MaxDocument:
		return false, ErrTooLarge
	case s.part == Addresses:
		replaceAddresses(r, n)
		return !reflect.DeepEqual(before, s.document(*r)), nil
	}
	var body map[string]json.RawMessage
	_ = json.Unmarshal(e.Body, &body) //nolint:errcheck // an object
	if _, named := body["opt_out"]; !e.Own && !named {
		n.OptOut = r.OptOut
	}
	for category, channels := range r.OptOut {
		for _, channel := range channels {
			if !e.Own && !slices.Contains(n.OptOut[category], channel) {
				return false, fmt.Errorf("%w: that of %q on %q, which opt_out leaves out, stays", ErrKept, category, channel)
			}
		}
	}
	r.Digest, r.Mute, r.OptOut, r.QuietHours = n.Digest, n.Mute, n.OptOut, n.QuietHours
	return !reflect.DeepEqual(before, s.document(*r)), nil
}
