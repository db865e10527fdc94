package notifier

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/email"
	"github.com/expediter-io/expediter/services/notifier/channel/gateway"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// Ways are the channels that the configuration sets up by itself: each that something is said of here, beside [Config.Channels].
type Ways struct {
	// EmailFrom is who sends mail, such as "Expediter <notify@example.com>".
	EmailFrom string `env:"NOTIFIER_EMAIL_FROM"`

	// EmailPassword is that of EmailUser. Defaults to none.
	EmailPassword string `env:"NOTIFIER_EMAIL_PASSWORD"`

	// EmailSecurity is starttls, tls or plain. Defaults to starttls.
	EmailSecurity email.Security `env:"NOTIFIER_EMAIL_SECURITY"`

	// EmailServer is where mail is handed in: host and port. It sets up the channel "email". Defaults to none.
	EmailServer string `env:"NOTIFIER_EMAIL_SERVER"`

	// EmailUser is who sends, to the server. Defaults to nobody.
	EmailUser string `env:"NOTIFIER_EMAIL_USER"`

	// LinkHosts are the hosts that links out of payloads may lead to, see the package template. Defaults to none.
	LinkHosts []string `env:"NOTIFIER_LINK_HOSTS"`

	// SMSBody is what a message to SMSURL looks like, see the package gateway. Defaults to gateway.DefaultBody.
	SMSBody string `env:"NOTIFIER_SMS_BODY"`

	// SMSToken is sent to SMSURL as a bearer token. Defaults to none.
	SMSToken string `env:"NOTIFIER_SMS_TOKEN"`

	// SMSURL is the service that sends SMS. It sets up the channel "sms". Defaults to none.
	SMSURL string `env:"NOTIFIER_SMS_URL"`

	// Templates is the folder of the texts of email, sms and webpush, see the package template. Required by those.
	Templates string `env:"NOTIFIER_TEMPLATES"`

	// UserNetworks may be called for users although they are not public, such as 10.1.0.0/16. Defaults to none.
	UserNetworks []netip.Prefix `env:"NOTIFIER_USER_NETWORKS"`

	// WebhookSecrets sign webhooks, the newest first, see the package webhook. They set up the channel "webhook".
	// Defaults to none.
	WebhookSecrets []string `env:"NOTIFIER_WEBHOOK_SECRETS"`

	// WebPushKey is the private key of VAPID, see webpush.GenerateKey. It sets up the channel "webpush". Defaults to none.
	WebPushKey string `env:"NOTIFIER_WEBPUSH_KEY"`

	// WebPushSubject is whom push services turn to: a mailto: or https: URL.
	WebPushSubject string `env:"NOTIFIER_WEBPUSH_SUBJECT"`
}

// closer is what a channel needs at its end.
type closer interface {
	channel.Channel
	Close()
}

// names are those of the channels that are set up.
func (w Ways) names() []string {
	names := w.textNames()
	if len(w.WebhookSecrets) > 0 {
		names = append([]string{webhook.Name}, names...)
	}
	return names
}

// textNames are those of the channels that have texts.
func (w Ways) textNames() (names []string) {
	for _, c := range []struct{ name, setting string }{
		{email.Name, w.EmailServer}, {smsName, w.SMSURL}, {webpush.Name, w.WebPushKey},
	} {
		if c.setting != "" {
			names = append(names, c.name)
		}
	}
	return names
}

// smsName is the channel of SMSURL.
const smsName = "sms"

// texts reads the templates, or returns nil when no channel needs them.
func (w Ways) texts() (*template.Set, error) {
	if len(w.textNames()) == 0 {
		return nil, nil //nolint:nilnil // there are none, and need not be
	}
	if w.Templates == "" {
		return nil, errors.New("notifier: Templates (NOTIFIER_TEMPLATES) is missing: want the folder of the texts")
	}
	texts, err := template.Load(w.Templates, template.Config{LinkHosts: w.LinkHosts})
	if err != nil {
		return nil, fmt.Errorf("notifier: Templates (NOTIFIER_TEMPLATES): %w", err)
	}
	return texts, nil
}

// open sets the channels up, and reports everything that is wrong at once.
func (w Ways) open(texts *template.Set) (channels []Channel, closers []closer, err error) {
	var errs []error
	add := func(c closer, failed error, how Channel) {
		if failed != nil {
			errs = append(errs, fmt.Errorf("notifier: %w", failed))
			return
		}
		how.Channel = c
		channels, closers = append(channels, how), append(closers, c)
	}
	if texts == nil {
		texts = &template.Set{} // for the sake of all other mistakes
	}
	if len(w.WebhookSecrets) > 0 {
		c, err := webhook.New(webhook.Config{AllowNetworks: w.UserNetworks, Secrets: w.WebhookSecrets})
		add(c, err, Channel{Retries: webhook.Retries()})
	}
	if w.EmailServer != "" {
		c, err := email.New(email.Config{
			Address: w.EmailServer, From: w.EmailFrom, Password: w.EmailPassword, Security: w.EmailSecurity, Templates: texts, User: w.EmailUser,
		})
		add(c, err, Channel{})
	}
	if w.SMSURL != "" {
		c, err := gateway.New(gateway.Config{Body: w.SMSBody, Name: smsName, Templates: texts, Token: w.SMSToken, URL: w.SMSURL})
		add(c, err, Channel{})
	}
	if w.WebPushKey != "" {
		c, err := webpush.New(webpush.Config{
			AllowNetworks: w.UserNetworks, PrivateKey: w.WebPushKey, Subject: w.WebPushSubject, Templates: texts,
		})
		add(c, err, Channel{})
	}
	return channels, closers, errors.Join(errs...)
}
