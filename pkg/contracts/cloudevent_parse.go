package contracts

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"mime"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts/internal/strictjson"
)

// ParseCloudEvent reads the event in a NATS message, in either mode of the CloudEvents binding or without one:
//
//   - With Content-Type application/cloudevents+json it is in structured mode: the body has all attributes.
//   - Otherwise it is in binary mode: attributes are in headers ce-*, in any case, percent-encoded, also in quotes.
//   - Missing attributes are filled in and named in Assumed, so that a plain body without any header works: type and
//     source from the subject, subject from the ids in it, id from Nats-Msg-Id or from the last token where that is an
//     id. The id of a domain event without Nats-Msg-Id stays empty: its body has one.
//
// Extension attributes are kept. The error is a *ValidationError with a path for each attribute.
func ParseCloudEvent(subject string, header nats.Header, data []byte) (CloudEvent, error) {
	event := CloudEvent{Data: data}
	var c checks
	contentType := one(headerValues(header, "content-type"))
	media, _, err := mime.ParseMediaType(contentType)
	structured := err == nil && strings.HasPrefix(media, "application/cloudevents")
	seen := make(map[string]bool)
	switch {
	case structured && media != "application/cloudevents" && media != "application/cloudevents+json":
		c.add("", "has the unsupported Content-Type "+clip(media))
	case structured:
		event.Data = nil
		parseStructured(&c, &event, data, seen)
	default:
		parseBinary(&c, &event, header, seen)
		if !seen["datacontenttype"] && contentType != "" {
			event.DataContentType = contentType
		}
	}
	if err := c.err("CloudEvent"); err != nil {
		return CloudEvent{}, err
	}
	event.assume(subject, header, seen)
	id := event.ID
	if id == "" {
		event.ID = "-" // Validate demands an id, and the message has none.
	}
	err = event.Validate()
	event.ID = id
	if err != nil {
		return CloudEvent{}, err
	}
	return event, nil
}

// parseBinary reads the headers, in alphabetical order so that errors are the same each time.
func parseBinary(c *checks, event *CloudEvent, header nats.Header, seen map[string]bool) {
	var keys []string
	for key := range header {
		if len(key) > len(attributePrefix) && strings.EqualFold(key[:len(attributePrefix)], attributePrefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		name := strings.ToLower(key[len(attributePrefix):])
		path := "/" + clip(name)
		for _, raw := range header[key] {
			if seen[name] {
				c.add(path, "occurs twice")
				continue
			}
			seen[name] = true
			value, problem := decodeHeaderValue(raw)
			if problem == "" {
				problem = event.set(name, value)
			}
			c.refuse(problem != "", path, problem)
		}
	}
	c.refuse(len(event.Extensions) > maxExtensions, "", "has too many extensions")
}

// parseStructured reads the JSON event format.
func parseStructured(c *checks, event *CloudEvent, body []byte, seen map[string]bool) {
	if problem := strictjson.Check(body, strictjson.MaxDepth); problem != nil {
		c.add(problem.Path, problem.Text)
		return
	}
	body = bytes.Clone(bytes.TrimSpace(body))
	if body[0] != '{' {
		c.add("", "must be an object, got "+strictjson.Kind(body))
		return
	}
	var data, encoded []byte
	for _, member := range strictjson.Members(body) {
		switch name := string(member.Name()); {
		case name == "data":
			data = member.Value
		case string(member.Value) == "null":
		case name == "data_base64":
			encoded = member.Value
		default:
			seen[name] = true
			value, problem := attributeValue(name, member.Value)
			if problem == "" {
				problem = event.set(name, value)
			}
			if problem != "" {
				c.add(strictjson.Pointer("", name), problem)
			}
		}
	}
	if data != nil && encoded != nil {
		c.add("/data_base64", "must not be there together with data")
		return
	}
	structuredData(c, event, data, encoded)
}

func structuredData(c *checks, event *CloudEvent, data, encoded []byte) {
	switch {
	case encoded != nil:
		var text string
		if err := json.Unmarshal(encoded, &text); err != nil {
			c.add("/data_base64", "must be a string, got "+strictjson.Kind(encoded))
			return
		}
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			c.add("/data_base64", "is not base64")
			return
		}
		event.Data = raw
	case bytes.HasPrefix(data, []byte{'"'}) && !isJSONType(event.DataContentType):
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			c.add("/data", "is not a JSON string")
			return
		}
		event.Data = []byte(text)
	default:
		event.Data = data
	}
}

// attributeValue returns the canonical string of an attribute in JSON. Attributes that CloudEvents defines are strings;
// extensions may be booleans and whole numbers as well.
func attributeValue(name string, raw []byte) (value, problem string) {
	switch {
	case raw[0] == '"':
		if err := json.Unmarshal(raw, &value); err != nil {
			return "", "is not a JSON string"
		}
		return value, ""
	case isCoreAttribute(name):
		return "", "must be a string, got " + strictjson.Kind(raw)
	case raw[0] == '{', raw[0] == '[', raw[0] != 't' && raw[0] != 'f' && bytes.ContainsAny(raw, ".eE"):
		return "", "must be a string, a boolean or a whole number"
	}
	return string(raw), ""
}

// isJSONType reports whether a media type is of JSON, or empty.
func isJSONType(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	if contentType == "" {
		return true
	}
	return err == nil && (strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json"))
}

// assume fills in attributes that were not in the message.
func (e *CloudEvent) assume(subject string, header nats.Header, seen map[string]bool) {
	defaults := defaultsFor(subject)
	if id := one(headerValues(header, nats.MsgIdHdr)); id != "" {
		defaults.ID = id
	}
	for _, name := range []string{"id", "source", "specversion", "subject", "type"} {
		// A subject has a meaning only within its source.
		if seen[name] || name == "subject" && seen["source"] {
			continue
		}
		field, value := e.attribute(name), defaults.attribute(name)
		if field != nil {
			*field = *value
		}
		if name != "subject" || e.Subject != "" {
			e.Assumed = append(e.Assumed, name)
		}
	}
}

// defaultsFor returns the attributes that a subject implies for an event that was published to it.
func defaultsFor(subject string) CloudEvent {
	for _, known := range []struct {
		prefix, eventType string
		idIsLast          bool
	}{
		{"jobs.enrich.", CloudEventEnrichRequested, false},
		{"jobs.import.", CloudEventImportRequested, true},
		{"events.", CloudEventDomain, false},
		{"notify.plan.", CloudEventDomain, true},
		{"notify.send.", CloudEventNotificationRequested, false},
	} {
		rest, ok := strings.CutPrefix(subject, known.prefix)
		if !ok {
			continue
		}
		tokens := strings.Split(rest, ".")
		for i, token := range tokens {
			if id, err := DecodeToken(token); err == nil {
				tokens[i] = id
			}
		}
		event := CloudEvent{
			Type:    known.eventType,
			Source:  "/" + strings.ReplaceAll(strings.TrimSuffix(known.prefix, "."), ".", "/"),
			Subject: strings.Join(tokens, "/"),
		}
		if known.idIsLast {
			event.ID = tokens[len(tokens)-1]
		}
		return event
	}
	return CloudEvent{Type: subject, Source: "/nats"}
}

func clip(name string) string { return strictjson.Pointer("", name)[1:] }
