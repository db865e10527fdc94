// Package channels lists the channels that a notifier has without code. The notifier, the declarations of consumers, doctor and the
// command line read the list.
package channels

import "slices"

// Channel is a channel of the list.
type Channel struct {
	// Name is the channel's name in rules, subjects and consumers.
	Name string

	// Text is the kind of its text, a template.Kind: mail, push or sms. "" is a channel that sends data and needs no template.
	Text string

	// Title is its name on the page of preferences.
	Title string

	// Variable is the environment variable that sets it up, "" for the channel that is always there.
	Variable string
}

var all = []Channel{
	{Name: "email", Text: "mail", Title: "Email", Variable: "NOTIFIER_EMAIL_SERVER"},
	{Name: "inapp", Title: "In the app"},
	{Name: "sms", Text: "sms", Title: "SMS", Variable: "NOTIFIER_SMS_URL"},
	{Name: "webhook", Title: "Webhook", Variable: "NOTIFIER_WEBHOOK_SECRETS"},
	{Name: "webpush", Text: "push", Title: "Push", Variable: "NOTIFIER_WEBPUSH_KEY"},
}

// All returns the channels, by name.
func All() []Channel { return slices.Clone(all) }

// Names returns the names of the channels.
func Names() (names []string) {
	for _, c := range all {
		names = append(names, c.Name)
	}
	return names
}

// Named returns the channel with a name, the zero value if the list does not have it.
func Named(name string) Channel {
	if i := slices.IndexFunc(all, func(c Channel) bool { return c.Name == name }); i >= 0 {
		return all[i]
	}
	return Channel{}
}
