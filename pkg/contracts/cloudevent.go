package contracts

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
)

// CloudEventDomain is the CloudEvents type of an [Event]. The version is part of the type and changes only with the meaning.
const CloudEventDomain = "io.expediter.domain.event.v1"

const (
	// specVersion is the only version of CloudEvents that is written and read.
	specVersion = "1.0"
	// attributePrefix starts the header of each attribute in binary mode.
	attributePrefix = "ce-"
	// maxExtensions bounds the extension attributes of one event.
	maxExtensions = 64
)

// CloudEvent is a CloudEvents 1.0 envelope. Its data is a message of this package, or any other payload.
type CloudEvent struct {
	// ID identifies the event within its source. Required.
	ID string
	// Source is a URI reference to the system that publishes the event. Required.
	Source string
	// Type is the kind of event, with the version of the data, such as CloudEventDomain. Required.
	Type string
	// Subject names the part of the source that the event is about; optional.
	Subject string
	// Time is the time of the event; optional. Nanoseconds are kept, the time zone becomes UTC.
	Time time.Time
	// DataContentType is the media type of Data; optional.
	DataContentType string
	// DataSchema is the absolute URI of the schema of Data; optional.
	DataSchema string
	// Extensions are attributes that CloudEvents does not define; their names are of a-z and 0-9 only.
	Extensions map[string]string
	// Data is the payload, byte for byte.
	Data []byte
}

// MsgID is the Nats-Msg-Id under which the event is published: "<source>|<id>", which together identify an event by the
// CloudEvents specification. A '|' or '\' in the source is escaped by '\', so that two different pairs never share an id.
func (e CloudEvent) MsgID() string {
	return MsgID(strings.NewReplacer(`\`, `\\`, `|`, `\|`).Replace(e.Source) + "|" + e.ID)
}

// Validate checks that the attributes are as CloudEvents demands, and that their sizes are within bounds.
func (e CloudEvent) Validate() error {
	var c checks
	for _, name := range requiredAttributes {
		c.Add(*e.attribute(name) == "", "/"+name, "is required")
	}
	e.check(&c)
	return c.In("CloudEvent")
}

var requiredAttributes = []string{"id", "source", "type"}

// check checks the attributes that are there.
func (e CloudEvent) check(c *checks) {
	for _, name := range []string{"id", "source", "type", "subject", "datacontenttype", "dataschema"} {
		c.attribute("/"+name, *e.attribute(name))
	}
	_, err := url.Parse(e.Source)
	c.Add(err != nil, "/source", "must be a URI reference")
	if u, err := url.Parse(e.DataSchema); e.DataSchema != "" && (err != nil || !u.IsAbs()) {
		c.add("/dataschema", "must be an absolute URI")
	}
	c.timestamp("/time", e.Time)
	if c.over("", len(e.Extensions), maxExtensions, "extensions") {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(e.Extensions)) {
		if !isAttributeName(name) || isCoreAttribute(name) {
			c.add("/"+clip(name), "is not a name for an extension: want a-z and 0-9, and no defined attribute")
			continue
		}
		c.attribute("/"+name, e.Extensions[name])
	}
}

// Header returns the event's attributes as headers of a NATS message in binary mode, percent-encoded as the
// CloudEvents binding for NATS demands, and its Nats-Msg-Id. The error is that of Validate.
func (e CloudEvent) Header() (nats.Header, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	header := nats.Header{nats.MsgIdHdr: {e.MsgID()}}
	set := func(name, value string) {
		if value != "" {
			header[attributePrefix+name] = []string{percentEncode(value)}
		}
	}
	set("specversion", specVersion)
	for _, name := range []string{"id", "source", "type", "subject", "datacontenttype", "dataschema"} {
		set(name, *e.attribute(name))
	}
	if !e.Time.IsZero() {
		set("time", e.Time.UTC().Format(time.RFC3339Nano))
	}
	for name, value := range e.Extensions {
		// CloudEvents allows no empty attribute, so an empty value is left out as well.
		set(name, value)
	}
	return header, nil
}

// Msg returns a NATS message in binary mode. Make a new one for each attempt to publish it.
func (e CloudEvent) Msg(subject string) (*nats.Msg, error) {
	header, err := e.Header()
	if err != nil {
		return nil, err
	}
	return &nats.Msg{Subject: subject, Header: header, Data: e.Data}, nil
}

// attribute returns a pointer to a defined attribute of type string, or nil.
func (e *CloudEvent) attribute(name string) *string {
	switch name {
	case "id":
		return &e.ID
	case "source":
		return &e.Source
	case "type":
		return &e.Type
	case "subject":
		return &e.Subject
	case "datacontenttype":
		return &e.DataContentType
	case "dataschema":
		return &e.DataSchema
	}
	return nil
}

// set stores one attribute that was read. The problem is empty when the value is valid.
func (e *CloudEvent) set(name, value string) (problem string) {
	if field := e.attribute(name); field != nil {
		*field = value
		return ""
	}
	switch name {
	case "specversion":
		if value != specVersion {
			return "is not " + specVersion
		}
	case "time":
		t, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return "is not an RFC 3339 time"
		}
		e.Time = t.UTC()
	default:
		if !isAttributeName(name) {
			return "is not a name for an attribute: want a-z and 0-9"
		}
		if value == "" {
			// CloudEvents allows no empty attribute.
			return ""
		}
		if e.Extensions == nil {
			e.Extensions = make(map[string]string)
		}
		e.Extensions[name] = value
	}
	return ""
}

// attribute checks the value of an attribute: bounded text without control characters.
func (c *checks) attribute(path, value string) {
	switch {
	case c.over(path, len(value), MaxURL, "bytes"):
	case !utf8.ValidString(value):
		c.add(path, "is not valid UTF-8")
	case strings.ContainsFunc(value, unicode.IsControl):
		c.add(path, "has a control character")
	}
}

func isAttributeName(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && len(name) <= MaxName
}

func isCoreAttribute(name string) bool {
	return slices.Contains([]string{"specversion", "time", "data"}, name) || (&CloudEvent{}).attribute(name) != nil
}

const upperHex = "0123456789ABCDEF"

// percentEncode encodes space, double quote, percent and everything outside U+0021 to U+007E, each byte of its
// UTF-8 as %XY (CloudEvents NATS binding §3.1.3.2).
func percentEncode(value string) string {
	var b strings.Builder
	b.Grow(len(value))
	for i := range len(value) {
		c := value[i]
		if c > ' ' && c < 0x7f && c != '"' && c != '%' {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(upperHex[c>>4])
		b.WriteByte(upperHex[c&15])
	}
	return b.String()
}

// decodeHeaderValue removes quotes, then decodes percent-encoding once. Bytes that are not UTF-8 are refused, overlong
// forms and surrogates among them; text that needed no encoding, or was not encoded, is accepted.
func decodeHeaderValue(raw string) (value, problem string) {
	raw = strings.Trim(raw, " \t")
	if strings.HasPrefix(raw, `"`) {
		if raw, problem = unquote(raw); problem != "" {
			return "", problem
		}
	}
	if strings.IndexByte(raw, '%') >= 0 {
		var err error
		if raw, err = url.PathUnescape(raw); err != nil {
			return "", "has a '%' without two hexadecimal digits"
		}
	}
	if !utf8.ValidString(raw) {
		return "", "is not UTF-8 after percent-decoding"
	}
	return raw, ""
}

// unquote reads a quoted-string of RFC 7230 §3.2.6.
func unquote(raw string) (value, problem string) {
	var b strings.Builder
	for i := 1; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			if i != len(raw)-1 {
				return "", "has text after its closing quote"
			}
			return b.String(), ""
		case '\\':
			i++
			if i == len(raw) {
				return "", "has no closing quote"
			}
		}
		b.WriteByte(raw[i])
	}
	return "", "has no closing quote"
}
