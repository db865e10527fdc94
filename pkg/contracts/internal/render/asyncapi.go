package render

import (
	"regexp"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/internal/openapi"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// asyncAPI is the path of the description of all messages.
const asyncAPI = "pkg/contracts/asyncapi.json"

// form is a form of subject that programs in other languages publish or read.
type form struct {
	name, stream, address string

	action  string // of the services: receive or send
	schema  string // of the body; "" for a body that only the services read
	summary string
}

// forms are the forms of subject with a public body. Each other subject of a stream becomes one channel without a schema.
func forms() []form {
	const directory = "KV_" + contracts.BucketDirectory
	return []form{
		{"actions", contracts.StreamAudit, "audit.{source}.operators", "send", "", "Records what an operator did."},
		{"userActions", contracts.StreamAuditUsers, "audit.{source}.users.{action}", "send", "", "Records what another caller did."},
		{"deadLetters", contracts.StreamDead, "dead.{stream}.{subject}", "send", "DeadLetter", "Stores a job that failed for good."},
		{"enrichJobs", contracts.StreamEnrichJobs, "jobs.enrich.{provider}.{place_id}", "receive", "EnrichJob", "Looks a place up."},
		{
			"events", contracts.StreamEvents, "events.{aggregate_type}.{event_type}", "receive", "Event",
			"Notifies the recipients of an event. The body is the event or a CloudEvent; Nats-Msg-Id is its event_id.",
		},
		{
			"routedEvents", contracts.StreamEvents, "events./routed.{event_type}", "receive", "Event",
			"Notifies recipients as the event says, without a rule.",
		},
		{
			"importJobs", contracts.StreamImportJobs, "jobs.import.{priority}.{job_id}", "receive", "ImportJob",
			"Imports a recipe. Nats-Msg-Id is its job_id.",
		},
		{"plans", contracts.StreamNotifications, "notify.plan.{event_id}", "receive", "", "Makes the notifications of an event."},
		{
			"notifications", contracts.StreamNotifications, "notify.send.{channel}.{recipient_type}.{user_id}.{event_id}", "receive", "Notification",
			"Notifies one user on one channel.",
		},
		{
			"profiles", directory, "$KV." + contracts.BucketDirectory + ".{recipient_type}.{user_id}", "receive", "Recipient",
			"Reads a recipient.",
		},
	}
}

// messages returns the description of all messages as AsyncAPI 3, from the declared streams and buckets.
func messages(schemas map[string][]byte) (openapi.Node, error) {
	channels, actions, described := openapi.Node{}, openapi.Node{}, map[string]bool{}
	add := func(f form, description string) {
		described[f.stream] = true
		message := openapi.Node{}
		if f.schema != "" {
			message["payload"] = openapi.Node{"$ref": "#/components/schemas/" + f.schema}
		}
		channel := openapi.Node{
			"address": f.address, "description": description, "messages": openapi.Node{"message": message}, "x-stream": f.stream,
		}
		parameters := openapi.Node{}
		for _, name := range parameter.FindAllStringSubmatch(f.address, -1) {
			parameters[name[1]] = openapi.Node{}
		}
		if len(parameters) > 0 {
			channel["parameters"] = parameters
		}
		channels[f.name] = channel
		if f.action != "" {
			actions[f.name] = openapi.Node{"action": f.action, "channel": openapi.Node{"$ref": "#/channels/" + f.name}, "summary": f.summary}
		}
	}
	all := forms()
	for _, config := range contracts.Assets(contracts.AssetOptions{}) {
		for _, f := range all {
			if f.stream == config.Name {
				add(f, config.Description)
			}
		}
		subjects := slices.Clone(config.Subjects)
		if config.RePublish != nil { // the server repeats each change of a bucket; a change may be lost on the way
			subjects = append(subjects, config.RePublish.Destination)
		}
		for _, subject := range subjects {
			if !slices.ContainsFunc(all, func(f form) bool { return f.stream == config.Name && covers(subject, f.address) }) {
				name := strings.Trim(notName.ReplaceAllString(subject, "-"), "-")
				add(form{name: name, stream: config.Name, address: strings.ReplaceAll(subject, ">", "{key}")}, config.Description)
			}
		}
	}
	doc := openapi.Node{
		"asyncapi": "3.0.0",
		"info": openapi.Node{
			"title": "Messages of Expediter", "version": "1", "license": openapi.Node{"name": "Apache-2.0"},
			"description": "Subjects of the streams and buckets. Each parameter is one token, encoded as contracts.EncodeToken does; " +
				"{key} and {subject} are one token or more. x-stream names the stream of a channel.",
		},
		"defaultContentType": "application/json",
		"servers":            openapi.Node{"nats": openapi.Node{"host": "localhost:4222", "protocol": "nats"}},
		"channels":           channels,
		"operations":         actions,
		"components":         openapi.Node{"schemas": openapi.Node{}},
	}
	return doc, openapi.Bundle(doc, func(name string) ([]byte, error) {
		return schemas["pkg/contracts/schemas/"+name+"."+Version+".json"], nil
	})
}

var parameter = regexp.MustCompile(`\{([a-z_A-Z]+)\}`)

var notName = regexp.MustCompile(`[^A-Za-z0-9_]+`)

// covers reports whether a filter of subjects selects the subjects of a form.
func covers(filter, address string) bool {
	return filter == address || strings.HasSuffix(filter, ">") && strings.HasPrefix(address, strings.TrimSuffix(filter, ">"))
}
