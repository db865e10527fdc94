package webpush

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/mail"
	"net/netip"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/internal/post"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// Name is the channel's name, unless it is given another.
const Name = "webpush"

// keep is the time for which push services keep a message that they cannot deliver.
const keep = 28 * 24 * time.Hour

// Config configures a [WebPush].
type Config struct {
	// AllowHTTP permits push services without TLS. Defaults to false.
	AllowHTTP bool

	// AllowNetworks may be called although they are not public. Defaults to none.
	AllowNetworks []netip.Prefix

	// PrivateKey is the private key of VAPID, see [GenerateKey]. Browsers subscribe with the public key. Required.
	PrivateKey string

	// RootCAs are the authorities against which certificates are checked. Defaults to the system's.
	RootCAs *x509.CertPool

	// Subject is the contact for the operators of push services: a mailto: or https: URL. Required.
	Subject string

	// Templates make the texts: the subject is the title and the text is the body, unless a JSON file of the template
	// has others. Required.
	Templates *template.Set
}

// WebPush is the channel. It is safe for concurrent use.
type WebPush struct {
	cfg    Config
	client *post.Client
	signer *signer
}

var _ channel.Channel = (*WebPush)(nil)

// New returns the channel. Close it after its last use.
func New(cfg Config) (*WebPush, error) {
	var errs []error
	to, isMail := strings.CutPrefix(cfg.Subject, "mailto:")
	address, err := mail.ParseAddress(to)
	site, siteErr := url.Parse(cfg.Subject)
	if isMail && (err != nil || address.Address != to) || !isMail && (siteErr != nil || site.Scheme != "https" || site.Host == "") {
		errs = append(errs, fmt.Errorf("webpush: Subject is %q: want a URL such as mailto:push@example.com or https://example.com", cfg.Subject))
	}
	if cfg.Templates == nil {
		errs = append(errs, errors.New("webpush: Templates are missing"))
	}
	signer, err := newSigner(cfg.PrivateKey, cfg.Subject)
	if err != nil {
		errs = append(errs, fmt.Errorf("webpush: %w", err))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &WebPush{cfg: cfg, signer: signer, client: post.New(post.Config{
		AllowHTTP: cfg.AllowHTTP, BodyTimeout: time.Second, Channel: Name, Guard: &remote.Guard{Allow: cfg.AllowNetworks},
		RootCAs: cfg.RootCAs,
	})}, nil
}

// Close closes the connections that no call is using.
func (w *WebPush) Close() { w.client.Close() }

// Name implements [channel.Channel].
func (*WebPush) Name() string { return Name }

// PublicKey returns the key that browsers subscribe with, as applicationServerKey.
func (w *WebPush) PublicKey() string { return w.signer.public }

// Send implements [channel.Channel]. One request.
func (w *WebPush) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	if m.Address == "" {
		return channel.Receipt{}, w.client.Fail(channel.KindNoAddress, 0, "", nil)
	}
	to, err := parseSubscription(m.Address)
	if err != nil {
		return channel.Receipt{}, w.client.Fail(channel.KindBounced, 0, err.Error(), nil)
	}
	text, err := w.cfg.Templates.Render(m, Name, "")
	if err != nil {
		return channel.Receipt{}, err
	}
	endpoint, err := w.client.Check(to.endpoint)
	if err != nil {
		return channel.Receipt{}, w.client.Fail(channel.KindBounced, 0, err.Error(), nil)
	}
	authorization, err := w.signer.authorization(endpoint)
	if err != nil {
		return channel.Receipt{}, w.client.Fail(channel.KindMisconfigured, 0, "the key cannot sign", err)
	}
	body, err := to.seal(encode(m, text))
	if err != nil {
		return channel.Receipt{}, w.client.Fail(channel.KindRejected, 0, err.Error(), nil)
	}
	answer, err := w.client.Post(ctx, to.endpoint, http.Header{
		"Authorization": {authorization}, "Content-Encoding": {"aes128gcm"}, "Content-Type": {"application/octet-stream"},
		"Topic": {topic(m.ID)}, "Ttl": {strconv.Itoa(int(keep / time.Second))}, "Urgency": {urgency(m.Priority)},
	}, body, w.judge)
	if err != nil {
		return channel.Receipt{}, err
	}
	return channel.Receipt{ID: redact.Clip(answer.Header.Get("Location"), contracts.MaxURL)}, nil
}

// judge returns the error for an answer. Some statuses have another meaning at push services.
func (w *WebPush) judge(answer *post.Answer) error {
	switch answer.Status {
	case http.StatusNotFound, http.StatusGone:
		return w.client.Failed(channel.KindGone, answer, "the subscription is not there any more")
	case http.StatusUnauthorized, http.StatusForbidden:
		return w.client.Failed(channel.KindMisconfigured, answer, "the push service does not know the key that the browser subscribed with")
	}
	return w.client.Judge(answer)
}

// subscription is the subscription of a browser.
type subscription struct {
	auth     []byte
	browser  *ecdh.PublicKey
	endpoint string
}

// parseSubscription reads an address. Its errors do not repeat the address, which is a secret.
func parseSubscription(address string) (subscription, error) {
	var given struct {
		Endpoint string `json:"endpoint"`
		Keys     struct {
			Auth   string `json:"auth"`
			P256dh string `json:"p256dh"`
		} `json:"keys"`
	}
	if json.Unmarshal([]byte(address), &given) != nil {
		return subscription{}, errors.New("the address is no subscription in JSON")
	}
	auth, err := decode(given.Keys.Auth)
	if err != nil || len(auth) != authSize {
		return subscription{}, errors.New("the subscription's keys.auth is not 16 bytes in base64")
	}
	raw, err := decode(given.Keys.P256dh)
	if err != nil {
		return subscription{}, errors.New("the subscription's keys.p256dh is not base64")
	}
	browser, err := ecdh.P256().NewPublicKey(raw)
	if err != nil {
		return subscription{}, errors.New("the subscription's keys.p256dh is no point of P-256")
	}
	return subscription{auth: auth, browser: browser, endpoint: given.Endpoint}, nil
}

// seal encrypts a message for the browser, with a new key.
func (s subscription) seal(plain []byte) ([]byte, error) {
	ours, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	salt := make([]byte, saltSize)
	if _, err := rand.Read(salt); err != nil {
		return nil, fmt.Errorf("make a salt: %w", err)
	}
	return encrypt(plain, s.browser, s.auth, ours, salt)
}

// notice is the message to the service worker.
type notice struct {
	ID        string `json:"id"`
	Title     string `json:"title"`
	Body      string `json:"body"`
	EventID   string `json:"event_id"`
	EventType string `json:"event_type"`

	URL  string          `json:"url,omitempty"`
	Icon string          `json:"icon,omitempty"`
	Data json.RawMessage `json:"data,omitempty"`
}

// encode returns the message to the service worker. A body that is too long is cut, so that the user is still
// notified.
func encode(m channel.Message, text template.Text) []byte {
	write := func(body string) []byte {
		data, _ := post.JSON(notice{ // texts have no error
			ID: m.ID, Title: text.Subject, Body: body, EventID: m.EventID, EventType: m.EventType, URL: text.URL, Icon: text.Icon, Data: text.Data,
		})
		return data
	}
	whole := write(text.Text)
	if len(whole) <= MaxPlain {
		return whole
	}
	cut := func(keep int) []byte { return write(strings.ToValidUTF8(text.Text[:keep], "") + "…") }
	tooMany := sort.Search(min(len(text.Text), MaxPlain), func(keep int) bool { return len(cut(keep)) > MaxPlain })
	return cut(max(0, tooMany-1))
}

// topic returns the name of the message within the subscription: 32 characters of base64url, as RFC 8030, section
// 5.4, requires.
func topic(id string) string {
	sum := sha256.Sum256([]byte(id))
	return b64.EncodeToString(sum[:24])
}

// urgency returns the urgency of RFC 8030, section 5.3, for a priority.
func urgency(p string) string {
	switch p {
	case channel.UrgencyCritical, channel.UrgencyHigh:
		return "high"
	case channel.UrgencyLow:
		return "low"
	case channel.UrgencyNormal:
	}
	return "normal"
}

const (
	// recordSize is the largest body that push services have to accept (RFC 8030, section 7.2), in bytes.
	recordSize = 4096

	saltSize   = 16
	authSize   = 16
	publicSize = 65

	// overhead is the number of bytes that encryption adds: the header of RFC 8188, the delimiter, and the
	// tag.
	overhead = saltSize + 4 + 1 + publicSize + 1 + 16

	// MaxPlain is the longest message before encryption, in bytes.
	MaxPlain = recordSize - overhead
)

// encrypt makes the body of a push message by RFC 8291, in one record. The key and the salt are for this message
// only.
func encrypt(plain []byte, browser *ecdh.PublicKey, auth []byte, ours *ecdh.PrivateKey, salt []byte) ([]byte, error) {
	if len(plain) > MaxPlain {
		return nil, fmt.Errorf("the message has %d bytes: at most %d", len(plain), MaxPlain)
	}
	shared, err := ours.ECDH(browser)
	if err != nil {
		return nil, fmt.Errorf("agree on a key: %w", err)
	}
	public := ours.PublicKey().Bytes()
	info := "WebPush: info\x00" + string(browser.Bytes()) + string(public)
	secret, err := hkdf.Key(sha256.New, shared, auth, info, 32)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	key, err := hkdf.Key(sha256.New, secret, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	nonce, err := hkdf.Key(sha256.New, secret, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, fmt.Errorf("derive a nonce: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("cipher: %w", err)
	}
	sealer, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("cipher: %w", err)
	}
	body := make([]byte, 0, overhead+len(plain))
	body = append(body, salt...)
	body = binary.BigEndian.AppendUint32(body, recordSize)
	body = append(body, publicSize)
	body = append(body, public...)
	// The byte 2 ends the last record.
	return sealer.Seal(body, nonce, append(slices.Clip(plain), 2), nil), nil
}
