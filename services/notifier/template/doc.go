// Package template makes the texts of messages. A folder holds one folder for each template, and in that one file for each
// locale and part, for all channels or for one:
//
//	reservation.requested/default.subject
//	reservation.requested/default.txt
//	reservation.requested/default.html              optional; mails alone show it
//	reservation.requested/default.sms.txt           an SMS says less
//	reservation.requested/default.email.subject
//	reservation.requested/default.webpush.json      title, body, url, icon and data of a push
//	reservation.requested/he.subject                he-IL is notified in he-IL, else in he, else in default; nn in nb
//	reservation.requested/he.txt
//
// The locale is chosen first, of those that have all that the channel shows, and within it a part for the channel goes before the
// same part for all channels: a push in he has he.webpush.json, and he.subject and he.txt for a title and a body that this lacks; if
// there is no text in he, it has those of default. No message has parts of two locales. A mail shows a subject, a text and HTML; an SMS a
// text; a push a title and a body, or a subject and a text. A channel that [Config.Channels] does not name shows the parts of a
// mail, and has none of its own. [Parse] reports every mistake with its file and line: a locale without the parts that a channel
// shows, a field that [Data] does not have, a template that is not defined, an unknown channel.
//
// Parts are Go templates over [Data]: "{{.Payload.guests}} guests". A field that the payload does not have is an error, unless the
// template asks: {{with index .Payload "note"}}…{{end}}. Times are written as the reader's language does, in the reader's zone:
// {{.Date .Payload.at}}, {{.Time .Payload.at}}, {{.DateTime .CreatedAt}}, and within a range {{$.Date .at}}. A file of JSON is one
// object, whose texts are templates:
//
//	{"title": "Table for {{.Payload.guests}}", "body": "{{.DateTime .Payload.at}}", "url": "/reservations/{{.Payload.id}}",
//	 "icon": "https://static.example.com/table.png", "data": {"reservation": "{{.Payload.id}}"}}
//
// Numbers are written as the reader's language does, {{.Number .Payload.price}}, and words for them in the form that the language of
// the text wants, "#" being the number: {{.Plural .Payload.guests "one" "# guest" "other" "# guests"}}. The forms are those of CLDR:
// zero, one, two, few, many, other. Texts in default are in [Config.Language].
//
// The folder _shared has texts that all templates call by name: {{template "footer" .}} is _shared/default.footer.txt in texts,
// subjects and pushes, and _shared/default.footer.html in HTML, also for one channel as default.sms.footer.txt. They are chosen by the
// locale of the file that calls them, before the channel. One of the name layout stands around every text or HTML, which it calls by
// {{template "content" .}}; usually that is default.layout.html and default.email.layout.txt. A file with <html> is a whole document,
// and has no layout.
//
// A digest of several events has a template too, reservations.digest for the category reservations unless the rules say
// otherwise, and without one it is a plain list in English. Its payload is {"count", "items", "more"}: items are the first
// 100 events, each with event_id, event_type, created_at, template and payload, and more is how many there are behind them.
// The payload of an item is null when it has more than 2 KiB, so that templates ask: {{range .Payload.items}}{{with
// .payload}}{{.guests}} guests{{end}}{{end}}. A digest of one event is that event's message, by its own template.
//
// A template has an end: after [MaxSteps], [MaxText] or [MaxTime] of one part it fails, and so does the notification whose text it is.
//
// Payloads are written by strangers, so nothing that they hold can become markup, a header, or a link: in HTML it is escaped
// for where it stands, in subjects it has no line breaks, in JSON it stays within its text, in a url it is one segment of a path. A
// text that mail programs would turn into a link, because it could be a host or has "://", is broken by an invisible space, and in
// an SMS by a space. Texts of the template itself, and of a push, are not broken. A link is made of a value on purpose only: {{link
// .Payload.url}} is empty unless it leads to one of [Config.LinkHosts] over https, and {{path .Payload.id}} is one segment of a
// path, for use in a link of the template's own.
package template
