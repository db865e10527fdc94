package recipient

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// MaxDocument is the largest record of a recipient, in bytes.
const MaxDocument = 64 << 10

// headerUnlisted marks the record of a recipient who is not in the directory but has preferences, such as one whom an event brought
// and who followed a link to unsubscribe. No list of recipients has it.
const headerUnlisted = "Expediter-Unlisted"

// Document is a recipient as people edit it: the fields of a [contracts.Recipient], and those that the application keeps there.
type Document struct {
	// Body is a JSON object.
	Body json.RawMessage

	// Revision is the revision of the record, 0 when there is none.
	Revision uint64
}

// Edit is a change of a document.
type Edit struct {
	// Adds is called before an edit of the recipient sets an address, replaces a secret or makes a record, maybe more than once, and its
	// error ends the edit. Defaults to no bound.
	Adds func() error

	// Body is the new document, a JSON object.
	Body json.RawMessage

	// Check is called with the recipient before and after the edit, maybe more than once, and its error ends the edit. Defaults to no
	// check.
	Check func(before, after contracts.Recipient) error

	// Merge reports whether Body is a merge patch (RFC 7396): fields that it does not name stay, and null
	// removes.
	Merge bool

	// Own reports whether the recipient made the edit. Such an edit can remove an opt-out, changes addresses and preferences only,
	// and does not add the recipient to the directory. The addresses that it sets are unverified.
	Own bool

	// Revision is the revision of the record that the edit changes: 0 for no record, and [Existing] for any. nil, the
	// default, allows both.
	Revision *uint64
}

// Existing stands for any revision of an existing record.
const Existing = math.MaxUint64

// known are the names of the fields of a [contracts.Recipient].
var known = func() (names []string) {
	for f := range reflect.TypeFor[contracts.Recipient]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}()

// ownFields are the fields that a recipient may change.
var ownFields = []string{"addresses", "digest", "endpoints", "mute", "opt_out", "quiet_hours"}

// person is the content of a record, to be changed.
type person struct {
	contracts.Recipient

	fields map[string]json.RawMessage // those of the application
	listed bool
}

// decode reads a document.
func (p *person) decode(data []byte) error {
	r, err := contracts.Decode[contracts.Recipient](data)
	if err != nil {
		return err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool { return slices.Contains(known, name) })
	p.Recipient, p.fields = r, fields
	return nil
}

// encode returns the document.
func (p *person) encode() (json.RawMessage, error) {
	data, err := contracts.Encode(p.Recipient)
	if err != nil {
		return nil, err
	}
	fields := maps.Clone(p.fields)
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	if err := json.Unmarshal(data, &fields); err != nil { // adds to the map
		return nil, err
	}
	data, err = json.Marshal(fields)
	if err == nil && len(data) > MaxDocument {
		err = ErrTooLarge
	}
	return data, err
}

// patched returns the document after a merge patch, or the patch alone in place of it.
func (p *person) patched(patch json.RawMessage, merge bool) (json.RawMessage, error) {
	base := json.RawMessage("{}")
	ids, err := contracts.Encode(contracts.Recipient{RecipientType: p.RecipientType, UserID: p.UserID})
	if err == nil && merge {
		base, err = p.encode()
	}
	return mergePatch(mergePatch(base, patch), ids), err
}

// alter returns the write that applies a change to the record of a recipient, or nil when it changes nothing.
func alter(over kvrecord.Record, who contracts.Recipient, change func(*person) error) (*kvrecord.Write, error) {
	p := person{Recipient: who}
	if !isAbsent(over) {
		if err := p.decode(over.Data); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrUnreadable, over.Subject, err)
		}
		p.listed = !isUnlisted(over)
	}
	before, err := p.encode()
	listed := p.listed
	if err == nil {
		err = change(&p)
	}
	if err != nil {
		return nil, err
	}
	after, err := p.encode()
	if err != nil || bytes.Equal(before, after) && listed == p.listed {
		return nil, err
	}
	w := &kvrecord.Write{Subject: over.Subject, Data: after, Over: over}
	if !p.listed {
		w.Header = nats.Header{headerUnlisted: {"true"}}
	}
	return w, nil
}

func isUnlisted(r kvrecord.Record) bool { return r.Header.Get(headerUnlisted) != "" }

// Read returns a recipient. The error matches [ErrUnknown] or [ErrForgotten] when the directory does not have the recipient. One
// round trip.
func (d *Directory) Read(ctx context.Context, kind contracts.RecipientType, userID string) (Document, error) {
	r, err := d.read(ctx, kind, userID)
	switch {
	case err != nil:
		return Document{}, err
	case isForgotten(r):
		return Document{}, permanent(ErrForgotten)
	case isAbsent(r):
		return Document{}, permanent(ErrUnknown)
	}
	return Document{Body: r.Data, Revision: r.Revision}, nil
}

// Write changes a recipient. It adds the recipient to the directory, even if the data was erased, unless the edit is the recipient's
// own.
// The error matches [ErrChanged], [ErrKept], [ErrTooLarge], [ErrUnreadable] or [ErrForgotten], or is a [*contracts.ValidationError] with
// all mistakes. Two round trips, more when other processes write at the same time.
func (d *Directory) Write(ctx context.Context, kind contracts.RecipientType, userID string, e Edit) (doc Document, err error) {
	who := contracts.Recipient{RecipientType: kind, UserID: userID}
	if err := who.Validate(); err != nil {
		return Document{}, permanent(err)
	}
	refused, err := e.check(who)
	if err != nil {
		return Document{}, permanent(err)
	}
	stored, err := d.rewriteOf(ctx, who, func(over kvrecord.Record) (*kvrecord.Write, error) {
		if err := unchanged(over, e.Revision); err != nil {
			return nil, err
		}
		if e.Own && isForgotten(over) {
			return nil, ErrForgotten
		}
		return alter(over, who, func(p *person) error {
			adds, err := p.edit(&e, refused)
			if err == nil && e.Own && e.Adds != nil && (adds || isAbsent(over)) {
				err = e.Adds()
			}
			if err == nil {
				doc.Body, err = p.encode()
			}
			return err
		})
	})
	if err != nil {
		return Document{}, err
	}
	if !isAbsent(stored) {
		doc.Revision = stored.Revision
	}
	return doc, nil
}

// edit applies an edit, and reports whether one of the recipient's own sets an address or replaces a secret. refused has the mistakes of
// the edit as such.
func (p *person) edit(e *Edit, refused error) (adds bool, err error) {
	data, err := p.patched(e.Body, e.Merge)
	if err != nil {
		return false, err
	}
	next := person{listed: p.listed || !e.Own}
	if err := withMistakes(next.decode(data), refused); err != nil {
		return false, err
	}
	var body map[string]json.RawMessage
	_ = json.Unmarshal(e.Body, &body) // an object
	if _, named := body["opt_out"]; !e.Own && !named {
		next.OptOut = p.OptOut
	}
	if e.Check != nil {
		if err := e.Check(p.Recipient, next.Recipient); err != nil {
			return false, err
		}
	}
	for category, channels := range p.OptOut {
		for _, channel := range channels {
			if !e.Own && !OptedOut(next.OptOut, category, channel) {
				return false, fmt.Errorf("%w: that of %q on %q, which opt_out leaves out, stays", ErrKept, category, channel)
			}
		}
	}
	if e.Own {
		adds = unverify(p.Recipient, &next.Recipient)
	}
	replaceAddresses(&p.Recipient, next.Recipient)
	next.Addresses, next.Endpoints = p.Addresses, p.Endpoints
	*p = next
	return adds, nil
}

// unchanged returns ErrChanged for a record with another revision than the given one, if any.
func unchanged(r kvrecord.Record, revision *uint64) error {
	is := r.Revision
	if isAbsent(r) {
		is = 0
	}
	if revision == nil || *revision == is || *revision == Existing && is > 0 {
		return nil
	}
	return ErrChanged
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
	data, _ := json.Marshal(fields)
	return data
}

// object is any JSON object.
type object map[string]json.RawMessage

// check returns an error for a body that is no document, and the mistakes of the fields that it names.
func (e *Edit) check(who contracts.Recipient) (refused, err error) {
	if len(e.Body) > MaxDocument {
		return nil, ErrTooLarge
	}
	body, err := contracts.Read[object](e.Body)
	if err != nil {
		return nil, err
	}
	mistakes := make(contracts.Mistakes, 0, len(body))
	for _, name := range slices.Sorted(maps.Keys(body)) {
		problem := e.refuses(name, body[name], who)
		mistakes.Add(problem != "", "/"+name, problem)
	}
	return append(mistakes, unknownOfEndpoints(body["endpoints"])...).In("Recipient"), nil
}

// refuses returns the reason why an edit cannot have a field, "" when it can.
func (e *Edit) refuses(name string, value json.RawMessage, who contracts.Recipient) string {
	if id, isID := map[string]string{"recipient_type": string(who.RecipientType), "user_id": who.UserID}[name]; isID {
		var said string
		if json.Unmarshal(value, &said) != nil || said != id {
			return "is not that of the user"
		}
		return ""
	}
	switch {
	case name == "memberships":
		return "are not in the document of a user: they are added and removed one by one"
	case e.Own && !slices.Contains(ownFields, name):
		return "is not for the user to change, only addresses and preferences are"
	}
	return ""
}

// endpointFields are the fields of an endpoint.
var endpointFields = []string{"address", "disabled", "events", "generation", "name", "previous", "rotated_at", "unverified"}

// unknownOfEndpoints returns the fields that endpoints do not have. With a misspelt "disabled" an endpoint would
// still get all messages.
func unknownOfEndpoints(body json.RawMessage) (wrong []contracts.FieldError) {
	var all map[string]map[string]map[string]json.RawMessage
	_ = json.Unmarshal(body, &all) // a value of another kind is a separate mistake
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
