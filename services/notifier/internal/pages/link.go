package pages

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// The paths of links, after the public URL.
const (
	PathPreferences = "/v1/preferences"
	PathUnsubscribe = "/v1/unsubscribe"
)

const (
	// minSecret bounds the bytes of each secret, and maxSecrets the number of secrets.
	minSecret  = 32
	maxSecrets = 4

	// maxToken bounds the token of a link that is read, in bytes.
	maxToken = 4096
)

// ErrLink is returned for a link that was not made here, or that was signed by a secret that is no longer known. It
// does not reveal which.
var ErrLink = errors.New("this link is not valid")

var b64 = base64.RawURLEncoding.Strict()

// Subject is the user of a link, and the category and channel that a link to unsubscribe switches off.
type Subject struct {
	Kind     contracts.RecipientType `json:"t"`
	UserID   string                  `json:"u"`
	Category string                  `json:"c,omitempty"` // contracts.Anything is every category
	Channel  string                  `json:"h,omitempty"`
}

// Links makes links and reads them. It is safe for concurrent use.
type Links struct {
	base string
	keys [][]byte
}

// New returns links to a public URL, signed by the first secret, and read by any. Errors do not repeat secrets.
func New(publicURL string, secrets []string) (*Links, error) {
	var errs []error
	u, err := url.Parse(publicURL)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		errs = append(errs, errors.New("PublicURL (NOTIFIER_PUBLIC_URL): want an https URL such as https://notify.example.com, without a query"))
	}
	l := &Links{base: strings.TrimSuffix(publicURL, "/")}
	if len(secrets) == 0 || len(secrets) > maxSecrets {
		errs = append(errs, fmt.Errorf("LinkSecrets (NOTIFIER_LINK_SECRETS): there are %d: want 1 to %d", len(secrets), maxSecrets))
	}
	for i, secret := range secrets {
		if len(secret) < minSecret {
			errs = append(errs, fmt.Errorf("LinkSecrets (NOTIFIER_LINK_SECRETS): number %d has %d bytes: want at least %d, by chance",
				i+1, len(secret), minSecret))
		}
		l.keys = append(l.keys, []byte(secret))
	}
	return l, errors.Join(errs...)
}

// Unsubscribe returns a function that returns the link for a message on a channel. The link switches off the message's
// category, or everything for a message without a category. Critical messages, which cannot be switched off, and test
// messages have no link.
func (l *Links) Unsubscribe(name string) func(m channel.Message) string {
	return func(m channel.Message) string {
		if m.Priority == channel.UrgencyCritical || m.Test {
			return ""
		}
		s := Subject{Kind: m.RecipientType, UserID: m.UserID, Category: m.Category, Channel: name}
		s.Category = cmp.Or(s.Category, contracts.Anything)
		return l.to(PathUnsubscribe, s)
	}
}

// Preferences returns the link to the preferences of a user.
func (l *Links) Preferences(kind contracts.RecipientType, userID string) string {
	return l.to(PathPreferences, Subject{Kind: kind, UserID: userID})
}

func (l *Links) to(path string, s Subject) string {
	return l.base + path + "?token=" + l.Token(path, s)
}

// Token returns the token of a link to a path: the subject, readable to everybody with the link, and a signature, which is not
// valid for another path.
func (l *Links) Token(path string, s Subject) string {
	data, err := json.Marshal(s)
	if err != nil {
		return "" // strings can always be encoded
	}
	return b64.EncodeToString(data) + "." + b64.EncodeToString(sign(l.keys[0], path, data))
}

// Read returns the subject of a token that was signed for a path by one of the secrets, or else ErrLink.
func (l *Links) Read(path, token string) (s Subject, err error) {
	head, tail, found := strings.Cut(token, ".")
	if !found || len(token) > maxToken {
		return s, ErrLink
	}
	data, dataErr := b64.DecodeString(head)
	given, givenErr := b64.DecodeString(tail)
	if dataErr != nil || givenErr != nil {
		return s, ErrLink
	}
	signed := false
	for _, key := range l.keys {
		signed = hmac.Equal(given, sign(key, path, data)) || signed
	}
	if !signed || json.Unmarshal(data, &s) != nil {
		return Subject{}, ErrLink
	}
	return s, nil
}

func sign(key []byte, path string, data []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("expediter " + strings.TrimPrefix(path, "/v1/") + " v1\x00"))
	mac.Write(data)
	return mac.Sum(nil)
}
