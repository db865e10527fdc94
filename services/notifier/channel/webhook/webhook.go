package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/guardeddial"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/internal/post"
)

// Name is the channel's name, unless it is given another.
const Name = "webhook"

// maxSecrets is how many secrets sign a message: more are no rotation.
const maxSecrets = 4

// Config says how users are called.
type Config struct {
	// AllowHTTP permits addresses without TLS. Defaults to false.
	AllowHTTP bool

	// AllowNetworks may be called although they are not public. Defaults to none.
	AllowNetworks []netip.Prefix

	// Name is the channel's name. Defaults to [Name].
	Name string

	// RootCAs are the authorities that certificates are checked against. Defaults to the system's.
	RootCAs *x509.CertPool

	// Secrets are the service's, of which those of users derive, see [Secret]: "whsec_" and base64 of 24 to 64 bytes. All sign,
	// up to four: the newest first, and the others for as long as users check with them. Required.
	Secrets []string
}

// Webhook is the channel. It may be used by many at once.
type Webhook struct {
	client *post.Client
	keys   [][]byte
	name   string
}

var _ channel.Channel = (*Webhook)(nil)

// New returns the channel. Close it after its last use.
func New(cfg Config) (*Webhook, error) {
	keys, err := parseSecrets(cfg.Secrets)
	if err != nil {
		return nil, fmt.Errorf("webhook: Secrets: %w", err)
	}
	name := cmp.Or(cfg.Name, Name)
	return &Webhook{name: name, keys: keys, client: post.New(post.Config{
		AllowHTTP: cfg.AllowHTTP, Channel: name, Guard: &guardeddial.Guard{Allow: cfg.AllowNetworks}, RootCAs: cfg.RootCAs,
	})}, nil
}

func parseSecrets(texts []string) ([][]byte, error) {
	if len(texts) == 0 || len(texts) > maxSecrets {
		return nil, fmt.Errorf("there are %d: want 1 to %d", len(texts), maxSecrets)
	}
	keys := make([][]byte, len(texts))
	var errs []error
	for i, text := range texts {
		key, err := parseSecret(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("number %d: %w", i+1, err))
		}
		keys[i] = key
	}
	return keys, errors.Join(errs...)
}

// Retries are the waits between tries that Standard Webhooks gives as an example: about three days together.
func Retries() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
		20 * time.Hour, 24 * time.Hour,
	}
}

// Close closes the connections that no call is using.
func (w *Webhook) Close() { w.client.Close() }

// Name implements [channel.Channel].
func (w *Webhook) Name() string { return w.name }

// Send implements [channel.Channel]. The address is a URL, or, for a user with secrets of its own, JSON:
// {"url":"https://…","secrets":["whsec_…"]}. One request.
func (w *Webhook) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	if m.Address == "" {
		return channel.Receipt{}, w.fail(channel.KindNoAddress, "")
	}
	address, keys, err := w.endpoint(m)
	if err != nil {
		return channel.Receipt{}, w.fail(channel.KindBounced, err.Error())
	}
	body, err := encode(m)
	if err != nil {
		return channel.Receipt{}, w.fail(channel.KindRejected, "the payload is not JSON")
	}
	now := time.Now()
	answer, err := w.client.Post(ctx, address, http.Header{
		"Content-Type":      {"application/json"},
		"User-Agent":        {"Expediter"},
		"Webhook-Id":        {m.ID},
		"Webhook-Signature": {sign(keys, m.ID, now, body)},
		"Webhook-Timestamp": {strconv.FormatInt(now.Unix(), 10)},
	}, body)
	if err == nil {
		err = w.client.Judge(answer)
	}
	if err != nil {
		return channel.Receipt{}, err
	}
	return channel.Receipt{Delivered: true}, nil
}

func (w *Webhook) fail(kind channel.Kind, detail string) error {
	return &channel.Error{Channel: w.name, Detail: detail, Kind: kind}
}

// endpoint reads an address. Its errors do not repeat it: it may hold secrets.
func (w *Webhook) endpoint(m channel.Message) (address string, keys [][]byte, err error) {
	if !strings.HasPrefix(m.Address, "{") {
		keys = make([][]byte, len(w.keys))
		for i, key := range w.keys {
			keys[i] = derive(key, m.RecipientType, m.UserID)
		}
		return m.Address, keys, nil
	}
	var own struct {
		URL     string   `json:"url"`
		Secrets []string `json:"secrets"`
	}
	if json.Unmarshal([]byte(m.Address), &own) != nil {
		return "", nil, errors.New(`the address is not a URL, and not {"url":…,"secrets":[…]}`)
	}
	if keys, err = parseSecrets(own.Secrets); err != nil {
		return "", nil, fmt.Errorf("the secrets of the address: %w", err)
	}
	return own.URL, keys, nil
}

// notice is the body.
type notice struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      data      `json:"data"`
}

type data struct {
	EventID       string                  `json:"event_id"`
	RecipientType contracts.RecipientType `json:"recipient_type"`
	UserID        string                  `json:"user_id"`
	Category      string                  `json:"category,omitempty"`
	Priority      contracts.Urgency       `json:"priority,omitempty"`
	Payload       json.RawMessage         `json:"payload,omitempty"`
}

// encode writes the body: the same bytes in every try.
func encode(m channel.Message) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(notice{Type: m.EventType, Timestamp: m.CreatedAt.UTC(), Data: data{
		EventID: m.EventID, RecipientType: m.RecipientType, UserID: m.UserID, Category: m.Category, Priority: m.Priority, Payload: m.Payload,
	}})
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}
