package contracts

import (
	"mime"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/strictjson"
)

// ParseCloudEvent reads the event in a NATS message, in binary mode: its attributes are in headers ce-*, in any case, percent-encoded, also
// in quotes. Attributes that the message does not have stay empty, so that a plain body without any header is an event with nothing but
// Data. Extension attributes are kept. The error is a *ValidationError with a path for each attribute.
func ParseCloudEvent(header nats.Header, data []byte) (CloudEvent, error) {
	event := CloudEvent{Data: data}
	var c checks
	contentType := header.Get("content-type") // in any case, of which this is the usual one
	for key, values := range header {
		if contentType == "" && len(values) > 0 && strings.EqualFold(key, "content-type") {
			contentType = values[0]
		}
	}
	media, _, err := mime.ParseMediaType(contentType)
	c.Add(err == nil && strings.HasPrefix(media, "application/cloudevents"), "",
		"must be the data of the event, with its attributes in headers ce-*: other modes of CloudEvents are not read")
	seen := parseBinary(&c, &event, header)
	if !seen["datacontenttype"] && contentType != "" {
		event.DataContentType = contentType
	}
	if len(c.Mistakes) == 0 {
		for _, name := range requiredAttributes {
			c.Add(seen[name] && *event.attribute(name) == "", "/"+name, "is required")
		}
		event.check(&c)
	}
	if err := c.In("CloudEvent"); err != nil {
		return CloudEvent{}, err
	}
	return event, nil
}

// parseBinary reads the headers, in alphabetical order so that errors are the same each time. It returns the names of the attributes.
func parseBinary(c *checks, event *CloudEvent, header nats.Header) map[string]bool {
	seen := make(map[string]bool)
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
			c.Add(problem != "", path, problem)
		}
	}
	return seen
}

func clip(name string) string { return strictjson.Pointer("", name)[1:] }
