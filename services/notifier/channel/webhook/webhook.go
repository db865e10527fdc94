package webhook

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/internal/post"
)

// Name is the channel's name.
const Name = "webhook"

// maxSecrets is the largest number of secrets that sign a message. A rotation needs no more.
const maxSecrets = 4

// Config configures a [Webhook].
type Config struct {
	// AllowHTTP permits addresses without TLS. Defaults to false.
	AllowHTTP bool

	// AllowNetworks may be called although they are not public. Defaults to none.
	AllowNetworks []netip.Prefix

	// RootCAs are the authorities against which certificates are checked. Defaults to the system's.
	RootCAs *x509.CertPool

	// Secrets are the secrets of the service, from which the secrets of users are derived, see [Webhook.Secrets]: "whsec_" and base64 of
	// 24 to 64 bytes. Up to four, the newest first. All sign: keep an old secret for as long as users check signatures with it.
	// Required.
	Secrets []string
}

// Webhook is the channel. It is safe for concurrent use.
type Webhook struct {
	client *post.Client
	keys   [][]byte
}

var _ channel.Channel = (*Webhook)(nil)

// New returns the channel. Close it after its last use.
func New(cfg Config) (*Webhook, error) {
	keys, err := parseSecrets(cfg.Secrets)
	if err != nil {
		return nil, fmt.Errorf("webhook: Secrets: %w", err)
	}
	return &Webhook{keys: keys, client: post.New(post.Config{
		AllowHTTP: cfg.AllowHTTP, BodyTimeout: time.Second, Channel: Name, Guard: &remote.Guard{Allow: cfg.AllowNetworks},
		RootCAs: cfg.RootCAs,
		Refused: channel.KindUnavailable, // receivers refuse messages that they cannot process yet, and expect more attempts
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

// Retries returns the waits between attempts that Standard Webhooks gives as an example: about three days in all.
func Retries() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
		20 * time.Hour, 24 * time.Hour,
	}
}

// Close closes the connections that no call is using.
func (w *Webhook) Close() { w.client.Close() }

// Name implements [channel.Channel].
func (*Webhook) Name() string { return Name }

// Send implements [channel.Channel]. The address is a URL. One request.
func (w *Webhook) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	if m.Address == "" {
		return channel.Receipt{}, w.client.Fail(channel.KindNoAddress, 0, "", nil)
	}
	body, err := encode(m)
	if err != nil {
		return channel.Receipt{}, w.client.Fail(channel.KindRejected, 0, "the payload is not JSON", nil)
	}
	keys, now := w.keysOf(m.RecipientType, m.UserID, m.EndpointID, m.Endpoint), time.Now()
	_, err = w.client.Post(ctx, m.Address, http.Header{
		"Content-Type":      {"application/json"},
		"User-Agent":        {"Expediter"},
		"Webhook-Id":        {m.ID},
		"Webhook-Signature": {sign(keys, m.ID, now, body)},
		"Webhook-Timestamp": {strconv.FormatInt(now.Unix(), 10)},
	}, body, w.client.Judge)
	if err != nil {
		return channel.Receipt{}, err
	}
	return channel.Receipt{Delivered: true}, nil
}

// notice is the body of a message.
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
	Priority      string                  `json:"priority,omitempty"`
	Payload       json.RawMessage         `json:"payload,omitempty"`
}

// encode returns the body, the same bytes in every attempt.
func encode(m channel.Message) ([]byte, error) {
	return post.JSON(notice{Type: m.EventType, Timestamp: m.CreatedAt.UTC(), Data: data{
		EventID: m.EventID, RecipientType: m.RecipientType, UserID: m.UserID, Category: m.Category, Priority: m.Priority, Payload: m.Payload,
	}})
}

const (
	// secretPrefix starts secrets in text.
	secretPrefix = "whsec_"

	// The specification's bounds of a key, in bytes.
	minKey = 24
	maxKey = 64
)

func keyed(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// Overlap is the time after a rotation for which messages are also signed with the previous secret.
const Overlap = 24 * time.Hour

// Secrets returns the secrets that sign the messages to an address of a user: first the secret to check signatures with, then
// others that sign for a while. id is the id of the address, and e its endpoint.
func (w *Webhook) Secrets(kind contracts.RecipientType, userID, id string, e contracts.Endpoint) (secrets []string) {
	for _, key := range w.keysOf(kind, userID, id, e) {
		secrets = append(secrets, secretPrefix+base64.StdEncoding.EncodeToString(key))
	}
	return secrets
}

// keysOf returns the keys that sign the messages to an address, the newest first.
func (w *Webhook) keysOf(kind contracts.RecipientType, userID, id string, e contracts.Endpoint) (keys [][]byte) {
	generations := []int64{e.Generation}
	if !e.RotatedAt.IsZero() && time.Since(e.RotatedAt) < Overlap {
		generations = append(generations, e.Previous)
	}
	id = cmp.Or(id, contracts.MainEndpoint)
	for _, generation := range generations {
		for _, key := range w.keys {
			if id == contracts.MainEndpoint && generation == 0 {
				keys = append(keys, keyed(key, "webhook\x00"+string(kind)+"\x00"+userID)) // a kind has no zero byte
				continue
			}
			// The parts before the user have no zero byte.
			text := strings.Join([]string{"webhook-endpoint", string(kind), id, strconv.FormatInt(generation, 10), userID}, "\x00")
			keys = append(keys, keyed(key, text))
		}
	}
	return keys
}

func parseSecret(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, secretPrefix))
	switch {
	case err != nil || !strings.HasPrefix(text, secretPrefix): // the decoder's error would reveal a position in the secret
		return nil, errors.New("a secret must be whsec_ and base64")
	case len(key) < minKey || len(key) > maxKey:
		return nil, fmt.Errorf("a secret has %d bytes: want %d to %d", len(key), minKey, maxKey)
	}
	return key, nil
}

// sign returns the header of a message: one signature for each key.
func sign(keys [][]byte, id string, at time.Time, body []byte) string {
	signatures := make([]string, len(keys))
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(signatures, " ")
}
