package natsotel

import (
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// Carrier reads and writes trace context in the headers of a NATS message: it is a TextMapCarrier of OpenTelemetry over
// nats.Header. Names are written in lower case, as the W3C defines traceparent and tracestate, and read in any case.
// nats.Header itself is case-sensitive, so readers of a NATS message do not find the names that OpenTelemetry's
// HeaderCarrier writes.
type Carrier nats.Header

// Get returns the first value of a header, or "". Among names that differ only in case it prefers the exact one, else
// the first in alphabetical order.
func (c Carrier) Get(key string) string {
	values, ok := c[key]
	if !ok {
		var name string
		for existing := range c {
			if strings.EqualFold(existing, key) && (name == "" || existing < name) {
				name = existing
			}
		}
		values = c[name]
	}
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// Set replaces a header, in any case.
func (c Carrier) Set(key, value string) {
	for existing := range c {
		if strings.EqualFold(existing, key) {
			delete(c, existing)
		}
	}
	c[strings.ToLower(key)] = []string{value}
}

// Keys returns the names of all headers, in alphabetical order.
func (c Carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
