package notifier

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/internal/channels"
	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/email"
	"github.com/expediter-io/expediter/services/notifier/channel/gateway"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush"
	"github.com/expediter-io/expediter/services/notifier/internal/pages"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// ChannelConfig has the settings of the channels that need no code. Each channel whose setting is present is set up, in
// addition to [Config.Channels].
type ChannelConfig struct {
	// EmailFrom is the sender of mails, such as "Expediter <notify@example.com>".
	EmailFrom string `env:"NOTIFIER_EMAIL_FROM"`

	// EmailPassword is the password of EmailUser. Defaults to none.
	EmailPassword string `env:"NOTIFIER_EMAIL_PASSWORD"`

	// EmailSecurity is starttls, tls or plain. Defaults to starttls.
	EmailSecurity email.Security `env:"NOTIFIER_EMAIL_SECURITY"`

	// EmailServer is the host and port of the server that takes mail. It sets up the channel "email". Defaults to none.
	EmailServer string `env:"NOTIFIER_EMAIL_SERVER"`

	// EmailUser is the name to authenticate with at EmailServer. Defaults to none.
	EmailUser string `env:"NOTIFIER_EMAIL_USER"`

	// Gateways are further channels by name, and the services that send for them, such as fcm:https://adapter.example.com/fcm. The
	// body of a message is gateway.PushBody. Defaults to none.
	Gateways map[string]string `env:"NOTIFIER_GATEWAYS"`

	// GatewaysToken is sent to all Gateways as a bearer token. Defaults to none.
	GatewaysToken string `env:"NOTIFIER_GATEWAYS_TOKEN"`

	// LinkSecrets sign the links to users' preferences and the links that switch mail and SMS off. The first, newest secret signs;
	// keep the others for as long as links that they have signed are in use. Each has 32 bytes or more. They require PublicURL.
	// Defaults to none: there are no such links.
	LinkSecrets []string `env:"NOTIFIER_LINK_SECRETS"`

	// LinkHosts are the hosts to which links from payloads may lead, see the package template. Defaults to none.
	LinkHosts []string `env:"NOTIFIER_LINK_HOSTS"`

	// PublicURL is the https URL at which users reach /v1/unsubscribe and /v1/preferences of the API. No other part of the API is
	// for them. Defaults to none.
	PublicURL string `env:"NOTIFIER_PUBLIC_URL"`

	// RootCAs is a file with the certificates, as PEM, of authorities that are trusted beside the system's: by webhook, email,
	// sms, and webpush. Defaults to none.
	RootCAs string `env:"NOTIFIER_ROOT_CAS"`

	// SMSBody is the body of a message to SMSURL, see the package gateway. Defaults to gateway.DefaultBody.
	SMSBody string `env:"NOTIFIER_SMS_BODY"`

	// SMSToken is sent to SMSURL as a bearer token. Defaults to none.
	SMSToken string `env:"NOTIFIER_SMS_TOKEN"`

	// SMSURL is the service that sends SMS. It sets up the channel "sms". Defaults to none.
	SMSURL string `env:"NOTIFIER_SMS_URL"`

	// Templates is the folder of the texts of email, sms and webpush, see the package template. Required by these
	// channels.
	Templates string `env:"NOTIFIER_TEMPLATES"`

	// TemplatesLanguage is the language of the texts in default, and of their plurals. Defaults to en.
	TemplatesLanguage string `env:"NOTIFIER_TEMPLATES_LANGUAGE"`

	// UserNetworks may be called for users although they are not public, such as 10.1.0.0/16. Defaults to none.
	UserNetworks []netip.Prefix `env:"NOTIFIER_USER_NETWORKS"`

	// WebhookSecrets sign webhooks, the newest first, see the package webhook. They set up the channel "webhook".
	// Defaults to none.
	WebhookSecrets []string `env:"NOTIFIER_WEBHOOK_SECRETS"`

	// WebPushKey is the private key of VAPID, see webpush.GenerateKey. It sets up the channel "webpush". Defaults to none.
	WebPushKey string `env:"NOTIFIER_WEBPUSH_KEY"`

	// WebPushSubject is the contact for the operators of push services: a mailto: or https: URL.
	WebPushSubject string `env:"NOTIFIER_WEBPUSH_SUBJECT"`
}

// closer is a channel that has to be closed.
type closer interface {
	channel.Channel
	Close()
}

// names returns the names of the channels that are set up.
func (cfg ChannelConfig) names() []string {
	names := cfg.textNames()
	if len(cfg.WebhookSecrets) > 0 {
		names = append([]string{webhook.Name}, names...)
	}
	return names
}

// textNames returns the names of the channels that have texts.
func (cfg ChannelConfig) textNames() (names []string) {
	settings := textSettings(&cfg)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if *settings[name] != "" {
			names = append(names, name)
		}
	}
	return append(names, slices.Sorted(maps.Keys(cfg.Gateways))...)
}

// textSettings returns the settings that set up the channels with texts.
func textSettings(cfg *ChannelConfig) map[string]*string {
	return map[string]*string{email.Name: &cfg.EmailServer, smsName: &cfg.SMSURL, webpush.Name: &cfg.WebPushKey}
}

// Assume sets up those of the channels that have texts, as far as [CheckRules] looks, and returns the names of the others.
func Assume(cfg *ChannelConfig, names ...string) (others []string) {
	settings := textSettings(cfg)
	for _, name := range names {
		if setting := settings[name]; setting != nil {
			*setting = "-" // CheckRules does not look at the value
		} else {
			others = append(others, name)
		}
	}
	return others
}

// smsName is the channel of SMSURL.
const smsName = "sms"

// texts reads the templates, or returns nil when no channel needs them.
func (cfg ChannelConfig) texts() (*template.Set, error) {
	if len(cfg.textNames()) == 0 {
		return nil, nil
	}
	if cfg.Templates == "" {
		return nil, errors.New("notifier: Templates (NOTIFIER_TEMPLATES) is missing: want the folder of the texts")
	}
	if _, err := language.Parse(cmp.Or(cfg.TemplatesLanguage, "en")); err != nil {
		return nil, fmt.Errorf("notifier: TemplatesLanguage (NOTIFIER_TEMPLATES_LANGUAGE) is %q: want a language tag such as de",
			cfg.TemplatesLanguage)
	}
	texts, err := template.Load(cfg.Templates, template.Config{
		Channels: template.Channels(slices.Collect(maps.Keys(cfg.Gateways))...), Language: cfg.TemplatesLanguage, LinkHosts: cfg.LinkHosts,
	})
	if err != nil {
		return nil, fmt.Errorf("notifier: Templates (NOTIFIER_TEMPLATES): %w", err)
	}
	return texts, nil
}

// links returns the maker of the links with which users switch channels off, nil when there are to be none.
func (cfg ChannelConfig) links() (*pages.Links, error) {
	if cfg.PublicURL == "" && len(cfg.LinkSecrets) == 0 {
		return nil, nil
	}
	links, err := pages.New(cfg.PublicURL, cfg.LinkSecrets)
	if err != nil {
		return nil, fmt.Errorf("notifier: %w", err)
	}
	return links, nil
}

// roots returns the trusted authorities, nil for the system's.
func (cfg ChannelConfig) roots() (*x509.CertPool, error) {
	if cfg.RootCAs == "" {
		return nil, nil
	}
	data, err := private.ReadFile(cfg.RootCAs, private.MaxPEM)
	if err != nil {
		return nil, fmt.Errorf("notifier: RootCAs (NOTIFIER_ROOT_CAS): %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("notifier: RootCAs (NOTIFIER_ROOT_CAS): those of the system: %w", err)
	}
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("notifier: RootCAs (NOTIFIER_ROOT_CAS): %s has no certificate: want PEM", cfg.RootCAs)
	}
	return roots, nil
}

// tools has the parts that channels share.
type tools struct {
	links *pages.Links // nil when there are to be none
	roots *x509.CertPool
	texts *template.Set // nil when there are none
}

// off returns the function that returns the URL at which a channel can be switched off.
func (t tools) off(name string) func(channel.Message) string {
	if t.links == nil {
		return nil
	}
	return t.links.Unsubscribe(name)
}

// open sets up the channels, and reports every mistake at once.
func (cfg ChannelConfig) open(with tools) (opened []Channel, closers []closer, err error) {
	var errs []error
	add := func(c closer, failed error, how Channel) {
		if failed != nil {
			errs = append(errs, fmt.Errorf("notifier: %w", failed))
			return
		}
		how.Channel = c
		opened, closers = append(opened, how), append(closers, c)
	}
	if with.texts == nil {
		with.texts = &template.Set{} // so that all other mistakes are found
	}
	if len(cfg.WebhookSecrets) > 0 {
		c, err := webhook.New(webhook.Config{AllowNetworks: cfg.UserNetworks, RootCAs: with.roots, Secrets: cfg.WebhookSecrets})
		add(c, err, Channel{Endpoints: true, Retries: webhook.Retries()})
	}
	if cfg.EmailServer != "" {
		c, err := email.New(email.Config{
			Address: cfg.EmailServer, From: cfg.EmailFrom, Password: cfg.EmailPassword, RootCAs: with.roots, Security: cfg.EmailSecurity,
			Templates: with.texts, Unsubscribe: with.off(email.Name), User: cfg.EmailUser,
		})
		add(c, err, Channel{})
	}
	var gateways []gateway.Config
	if cfg.SMSURL != "" {
		gateways = append(gateways, gateway.Config{Body: cfg.SMSBody, Name: smsName, Token: cfg.SMSToken, URL: cfg.SMSURL})
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Gateways)) {
		if token, err := contracts.EncodeToken(name); err != nil || token != name || slices.Contains(channels.Names(), name) {
			errs = append(errs, fmt.Errorf("notifier: Gateways (NOTIFIER_GATEWAYS): %q is the name of no gateway: "+
				"want letters, digits, '_' and '-', and none of %s", name, strings.Join(channels.Names(), ", ")))
			continue
		}
		gateways = append(gateways, gateway.Config{Body: gateway.PushBody, Name: name, Token: cfg.GatewaysToken, URL: cfg.Gateways[name]})
	}
	for _, g := range gateways {
		g.RootCAs, g.Templates, g.Unsubscribe = with.roots, with.texts, with.off(g.Name)
		c, err := gateway.New(g)
		add(c, err, Channel{})
	}
	if cfg.WebPushKey != "" {
		c, err := webpush.New(webpush.Config{
			AllowNetworks: cfg.UserNetworks, PrivateKey: cfg.WebPushKey, RootCAs: with.roots, Subject: cfg.WebPushSubject, Templates: with.texts,
		})
		add(c, err, Channel{Endpoints: true})
	}
	return opened, closers, errors.Join(errs...)
}

// inboxTimeout bounds one write of the inbox.
const inboxTimeout = 5 * time.Second
