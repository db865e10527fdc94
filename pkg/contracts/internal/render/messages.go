package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// jsonSchema is the format of the schemas that the descriptions of messages refer to.
const jsonSchema = "application/schema+json;version=draft-2020-12"

// messages makes the description of a service's messages from the YAML that people write, in the form of pkg/service/asyncapi.yaml. api is
// the description of the service's HTTP API, which has the same schemas.
func messages(root, folder string, api node, schemas map[string][]byte) (node, error) {
	doc, err := read(root, folder+"asyncapi.yaml")
	if err != nil {
		return nil, err
	}
	shared, err := read(root, "pkg/service/asyncapi.yaml")
	if err != nil {
		return nil, err
	}
	merge(doc, shared)
	a := async{api: api, doc: doc, operations: node{}, schemas: schemas}
	channels := object(doc["channels"])
	for _, name := range slices.Sorted(maps.Keys(channels)) {
		a.channel(name, object(channels[name]))
	}
	requests := object(doc["requests"])
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		a.request(name, object(requests[name]))
	}
	for _, message := range object(object(doc["components"])["messages"]) {
		a.message(object(message))
	}
	delete(doc, "requests")
	doc["operations"] = a.operations
	return doc, a.err
}

type async struct {
	api, doc, operations node
	err                  error // the first mistake
	schemas              map[string][]byte
}

func reference(names ...string) node { return node{"$ref": "#/" + strings.Join(names, "/")} }

// channel completes a channel, and adds its operations.
func (a *async) channel(name string, channel node) {
	for key, action := range map[string]string{"takes": "receive", "gives": "send"} {
		if summary := channel[key]; summary != nil {
			a.operations[action+"-"+name] = node{"action": action, "channel": reference("channels", name), "summary": summary}
			delete(channel, key)
		}
	}
	if channel["servers"] == nil {
		channel["servers"] = []any{reference("servers", "nats")}
	}
	parameters := node{}
	address, _ := channel["address"].(string)
	for _, part := range parameter.FindAllStringSubmatch(address, -1) {
		parameters[part[1]] = reference("components", "parameters", part[1])
	}
	if len(parameters) > 0 {
		channel["parameters"] = parameters
	}
	for _, message := range object(channel["messages"]) {
		a.message(object(message))
	}
}

// request adds the channels of a request and of its answers.
func (a *async) request(name string, r node) {
	request := node{"traits": append([]any{"request"}, list(r["traits"])...), "contentType": "application/octet-stream"}
	if r["takes"] != nil {
		delete(request, "contentType")
		request["payload"] = r["takes"]
		request["examples"] = []any{node{"name": "one", "payload": r["example"]}}
	}
	of, back := "request-"+name, "answer-"+name
	channel := node{"address": r["subject"], "messages": node{"request": request}}
	answers := node{
		"address": nil, "messages": node{"answer": node{"payload": r["gives"]}, "refusal": reference("components", "messages", "refusal")},
	}
	a.channel(of, channel)
	a.channel(back, answers)
	channels := object(a.doc["channels"])
	channels[of], channels[back] = channel, answers
	a.operations[name] = node{
		"action": "receive", "channel": reference("channels", of), "reply": node{"channel": reference("channels", back)}, "summary": r["summary"],
	}
}

// message replaces the short names of a payload's schema and of traits with references.
func (a *async) message(message node) {
	for i, trait := range list(message["traits"]) {
		list(message["traits"])[i] = reference("components", "messageTraits", fmt.Sprint(trait))
	}
	switch name, ok := message["payload"].(string); {
	case !ok:
	case name == "any":
		message["payload"] = node{}
	case name == "Lines":
		message["payload"], message["contentType"] = node{"type": "string"}, "application/x-ndjson"
	default:
		message["payload"] = node{"schemaFormat": jsonSchema, "schema": node{"$ref": a.schema(name)}}
	}
}

// schema returns the address of a schema: of package contracts, of the HTTP API, or of the description itself.
func (a *async) schema(name string) string {
	file := strings.ToLower(strings.TrimPrefix(capital.ReplaceAllString(name, "-$0"), "-"))
	switch {
	case a.schemas["pkg/contracts/schemas/"+file+"."+contracts.SchemaVersion+".json"] != nil:
		return "schemas/" + contracts.SchemaVersion + "/" + file + ".json"
	case object(object(a.doc["components"])["schemas"])[name] != nil:
		return "#/components/schemas/" + name
	case object(object(a.api["components"])["schemas"])[name] == nil && a.err == nil:
		a.err = fmt.Errorf("render: there is no schema %s", name)
	}
	return "openapi.json#/components/schemas/" + name
}
