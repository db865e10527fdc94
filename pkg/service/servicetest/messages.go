package servicetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
)

// channel is a channel of a description, with its messages in full.
type channel struct {
	node

	literals int // the number of bytes that do not belong to parameters
	messages map[string]*message
	name     string
	subject  *regexp.Regexp // nil for that of answers
}

// message is a message of a channel. Its headers are those of its traits.
type message struct {
	node

	headers  node
	required []any
}

var wildcardToken = regexp.MustCompile(`\\\{([a-zA-Z_]+)\\\}`)

// serverOwn are the subjects of the server's and of its clients' own protocols.
var serverOwn = regexp.MustCompile(`^(_INBOX|\$JS|\$SRV|\$SYS)\.`)

// readChannels reads the channels, and compiles the schemas of package contracts to which they refer.
func (d *document) readChannels() error {
	for _, name := range contracts.SchemaNames() {
		data, err := contracts.Schema(name)
		if err != nil {
			return fmt.Errorf("servicetest: %w", err)
		}
		schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err == nil {
			err = d.compiler.AddResource("schemas/"+contracts.SchemaVersion+"/"+name+".json", schema)
		}
		if err != nil {
			return fmt.Errorf("servicetest: %w", err)
		}
	}
	for name, described := range at(d.messages, "channels") {
		c := &channel{node: object(described), messages: map[string]*message{}, name: name}
		if address := word(c.node["address"]); address != "" {
			parameters := at(d.messages, "components", "parameters")
			pattern := wildcardToken.ReplaceAllStringFunc(regexp.QuoteMeta(address), func(part string) string {
				if at(parameters, strings.Trim(part, `\{}`))["x-many"] == true {
					return ".+"
				}
				return "[^.]+"
			})
			c.subject = regexp.MustCompile("^" + pattern + "$")
			c.literals = len(wildcard.ReplaceAllString(address, ""))
		}
		for key, one := range at(c.node, "messages") {
			m := &message{node: d.resolve(one), headers: node{}}
			traits, _ := m.node["traits"].([]any)
			for _, trait := range traits {
				headers := at(d.resolve(trait), "headers")
				maps.Copy(m.headers, at(headers, "properties"))
				required, _ := headers["required"].([]any)
				m.required = append(m.required, required...)
			}
			c.messages[key] = m
		}
		d.channels = append(d.channels, c)
	}
	slices.SortFunc(d.channels, func(a, b *channel) int { return b.literals - a.literals })
	return nil
}

// channelOf returns the channel of a subject: of several, the one with the most literal tokens.
func (d *document) channelOf(subject string, library bool) *channel {
	for _, c := range d.channels {
		if c.subject != nil && (library || c.node["x-library"] == nil) && c.subject.MatchString(subject) {
			return c
		}
	}
	return nil
}

// validate returns an error with the differences of a message from all messages that the channel describes.
func (c *channel) validate(d *document, header nats.Header, data []byte) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(c.messages)) {
		err := c.messages[name].validate(d, header, data)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("message %s of channel %s: %w", name, c.name, err))
	}
	return errors.Join(errs...)
}

func (m *message) validate(d *document, header nats.Header, data []byte) error {
	for name, values := range header {
		schema := object(m.headers[name])
		if schema == nil {
			return fmt.Errorf("header %s is not described", name)
		}
		if len(schema) > 2 { // it has rules, apart from its type and description
			if err := d.validate(schema, strings.Join(values, ", ")); err != nil {
				return fmt.Errorf("header %s: %w", name, err)
			}
		}
	}
	for _, name := range m.required {
		if header.Get(word(name)) == "" {
			return fmt.Errorf("header %s is missing", name)
		}
	}
	payload := object(m.node["payload"])
	bodiless := header.Get("KV-Operation") + header.Get(micro.ErrorCodeHeader) + header.Get("Nats-Msg-Size") // only its headers are read
	if payload["schema"] == nil || len(data) == 0 && bodiless != "" {
		return nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err //nolint:wrapcheck // says where
	}
	ref := word(object(payload["schema"])["$ref"])
	if strings.HasPrefix(ref, "#") {
		ref = "asyncapi.json" + ref
	}
	return d.validate(node{"$ref": ref}, value)
}

// entry matches the prefix of a subject on its way into a partition of a stream. The stream removes the prefix.
var entry = regexp.MustCompile(`^[A-Z_]+-[0-9]+\.`)

// Messages reports, until the test ends, every message on the server whose subject, headers or body are not described, and every answer to
// a request. The connection must be allowed to read everything. With library, the messages of a program's own jobs are checked, too.
func (d *Description) Messages(t testing.TB, nc *nats.Conn, library bool) {
	t.Helper()
	answers := map[string]asked{} // by the subjects of answers
	done := make(chan struct{}, 1)
	sub, err := nc.Subscribe(">", func(m *nats.Msg) {
		if m.Subject == "servicetest.end" {
			select {
			case done <- struct{}{}:
			default: // another reader of this server has ended
			}
			return
		}
		question, isAnswer := answers[m.Subject]
		c := question.answer
		if !isAnswer {
			c = d.channelOf(entry.ReplaceAllString(m.Subject, ""), library)
		}
		if c == nil && serverOwn.MatchString(m.Subject) {
			return
		}
		if c == nil {
			t.Errorf("subject %s is not described", m.Subject)
			return
		}
		err := c.validate(d.document, m.Header, m.Data)
		back := d.answerOf(c)
		if back != nil {
			answers[m.Reply] = asked{back, err}
			return
		}
		if question.wrong != nil && m.Header.Get(micro.ErrorCodeHeader) == "" {
			t.Errorf("a request was taken that is not as described: %v", question.wrong)
		}
		if err != nil {
			t.Errorf("%s: %.1000s with %v is not as described: %v", m.Subject, m.Data, m.Header, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	gone := nc.StatusChanged(nats.CLOSED, nats.RECONNECTING)
	t.Cleanup(func() {
		if nc.IsConnected() && nc.Publish("servicetest.end", nil) == nil {
			select {
			case <-done:
			case <-gone: // the test has ended the server
			}
		}
		_ = sub.Unsubscribe() //nolint:errcheck // the subscription ends with the connection at the latest
	})
}

// Frame reports a frame of the service's WebSocket that is not as described.
func (d *Description) Frame(t testing.TB, data []byte) {
	t.Helper()
	all, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Errorf("the frame %.1000s is no JSON: %v", data, err)
		return
	}
	var schema any = node{"$ref": "#/components/schemas/Frame"}
	frame := at(d.messages, "components", "schemas", "Frame")
	if parts, _ := frame["allOf"].([]any); len(parts) == 1 { // all are strict, so the frame's own schema checks its members
		for name, own := range at(frame, "properties") {
			if value, found := object(all)[name]; found {
				delete(object(all), name)
				err = errors.Join(err, d.validate(own, value))
			}
		}
		schema = parts[0]
	}
	if err = errors.Join(err, d.validate(schema, all)); err != nil {
		t.Errorf("the frame %.1000s is not as described: %v", data, err)
	}
}

// asked is a request whose answer is to come, and the error when the request is not as described: the service may refuse it.
type asked struct {
	answer *channel
	wrong  error
}

// answerOf returns the channel of the answers to the requests of a channel, nil for none.
func (d *document) answerOf(of *channel) *channel {
	name, ok := strings.CutPrefix(of.name, "request-")
	if !ok {
		return nil
	}
	at := slices.IndexFunc(d.channels, func(c *channel) bool { return c.name == "answer-"+name })
	return d.channels[at]
}

// Requests sends the example of every described request to a service: the requests in first in that order, then the others. Each must be
// answered. It reports each endpoint that is not described, and each request without an endpoint.
func (d *Description) Requests(t *testing.T, nc *nats.Conn, endpoints []service.Endpoint, first ...string) {
	t.Helper()
	described := map[string]string{}
	for name := range at(d.messages, "operations") {
		c := at(d.messages, "channels", "request-"+name)
		if c != nil && !strings.HasPrefix(word(c["address"]), "worker.") {
			described[name] = word(c["address"])
		}
	}
	answered := map[string]string{}
	for _, e := range endpoints {
		answered[e.Name] = e.Subject
	}
	same(t, "requests", described, answered)
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(described)), func(name string) bool { return slices.Contains(first, name) })
	for _, name := range slices.Concat(first, rest) {
		examples, _ := at(d.messages, "channels", "request-"+name, "messages", "request")["examples"].([]any)
		for _, example := range examples {
			payload := object(example)["payload"]
			data := []byte(word(payload))
			if len(data) == 0 {
				var err error
				if data, err = json.Marshal(payload); err != nil {
					t.Fatal(err)
				}
			}
			answer, err := nc.RequestWithContext(t.Context(), described[name], data)
			if err != nil || answer.Header.Get(micro.ErrorCodeHeader) != "" {
				t.Errorf("%s with the example %s is answered %+v, %v", name, data, answer, err)
			}
		}
	}
}
