// Package template makes the texts of messages. A folder holds one folder for each template, and in that one file for each
// locale and part:
//
//	reservation.requested/default.subject
//	reservation.requested/default.txt
//	reservation.requested/default.html      optional
//	reservation.requested/he.subject        he-IL is told in he-IL, else in he, else in default
//	reservation.requested/he.txt
//
// Parts are Go templates over [Data]: "{{.Payload.guests}} guests". What the payload does not have is an error, unless the
// template asks: {{with index .Payload "note"}}…{{end}}.
//
// Payloads are written by strangers, so nothing that they hold can become markup, a header, or a link: in HTML it is escaped
// for where it stands, in subjects it has no line breaks, and what mail programs would make a link of is broken by an invisible
// space. A link is made of it on purpose only: {{link .Payload.url}} is empty unless it leads to one of [Config.LinkHosts] over
// https, and {{path .Payload.id}} is one segment of a path, for use in a link of the template's own.
package template
