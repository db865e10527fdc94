// Package template makes the texts of messages. A folder holds one folder for each template, and in that one file for each
// locale and part:
//
//	reservation.requested/default.subject
//	reservation.requested/default.txt
//	reservation.requested/default.html      optional
//	reservation.requested/he.subject        he-IL is notified in he-IL, else in he, else in default
//	reservation.requested/he.txt
//
// Parts are Go templates over [Data]: "{{.Payload.guests}} guests". What the payload does not have is an error, unless the
// template asks: {{with index .Payload "note"}}…{{end}}.
//
// A digest of several events has a template too, reservations.digest for the category reservations unless the rules say
// otherwise, and without one it is a plain list in English. Its payload is {"count", "items", "more"}: items are the first
// 100 events, each with event_id, event_type, created_at, template and payload, and more is how many there are behind them.
// The payload of an item is null when it has more than 2 KiB, so that templates ask: {{range .Payload.items}}{{with
// .payload}}{{.guests}} guests{{end}}{{end}}. A digest of one event is that event's message, by its own template.
//
// Payloads are written by strangers, so nothing that they hold can become markup, a header, or a link: in HTML it is escaped
// for where it stands, in subjects it has no line breaks, and what mail programs would make a link of is broken by an invisible
// space. A link is made of it on purpose only: {{link .Payload.url}} is empty unless it leads to one of [Config.LinkHosts] over
// https, and {{path .Payload.id}} is one segment of a path, for use in a link of the template's own.
package template
