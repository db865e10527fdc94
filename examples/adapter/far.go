package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	josejwt "github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"
)

// said is an answer of a remote service.
type said struct {
	body   []byte
	header http.Header
}

// post sends JSON. refused is not nil when the answer is not a success; the caller sets its reason.
func post(ctx context.Context, client *http.Client, to string, header http.Header, body any) (got said, refused *refusal, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return got, nil, fmt.Errorf("the message: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(data)) //nolint:gosec // as below
	if err != nil {
		return got, nil, fmt.Errorf("the address: %w", err)
	}
	request.Header = header
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request) //nolint:gosec // FCM, APNs, and URLs with the prefix of Slack's webhooks
	if err != nil {
		return got, nil, fmt.Errorf("no answer: %w", err)
	}
	defer response.Body.Close()
	got.header = response.Header
	if got.body, err = io.ReadAll(io.LimitReader(response.Body, maxBody)); err != nil {
		return got, nil, fmt.Errorf("half an answer: %w", err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		refused = &refusal{status: response.StatusCode, retryAfter: response.Header.Get("Retry-After")}
	}
	return got, refused, nil
}

// fcm sends by the HTTP v1 API of Firebase Cloud Messaging. The address is a registration token.
type fcm struct {
	client *http.Client
	tokens oauth2.TokenSource
	url    string
}

// newFCM reads the file with the key of a service account.
func newFCM(ctx context.Context, file, base string, client *http.Client) (*fcm, error) {
	var account struct {
		ClientEmail  string `json:"client_email"`
		PrivateKey   string `json:"private_key"`
		PrivateKeyID string `json:"private_key_id"`
		ProjectID    string `json:"project_id"`
		TokenURI     string `json:"token_uri"`
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("FCM_CREDENTIALS: %w", err)
	}
	if json.Unmarshal(data, &account) != nil || account.ProjectID == "" || account.PrivateKey == "" {
		return nil, fmt.Errorf("FCM_CREDENTIALS: %s: want the JSON key of a service account", file)
	}
	cfg := jwt.Config{
		Email: account.ClientEmail, PrivateKey: []byte(account.PrivateKey), PrivateKeyID: account.PrivateKeyID,
		Scopes: []string{"https://www.googleapis.com/auth/firebase.messaging"}, TokenURL: account.TokenURI,
	}
	tokens := cfg.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, client))
	return &fcm{client, tokens, base + "/v1/projects/" + url.PathEscape(account.ProjectID) + "/messages:send"}, nil
}

func (f *fcm) send(ctx context.Context, m message) (string, error) {
	token, err := f.tokens.Token()
	if err != nil {
		return "", &refusal{status: http.StatusUnauthorized, reason: "no access token"}
	}
	out := map[string]any{"token": m.To, "notification": map[string]string{"title": m.Title, "body": m.Text}}
	data := map[string]string{"message_id": m.ID, "url": m.URL} // texts only
	var more map[string]any
	if json.Unmarshal(m.Data, &more) == nil {
		for name, value := range more {
			data[name] = fmt.Sprint(value)
		}
	}
	out["data"] = data
	header := http.Header{"Authorization": {"Bearer " + token.AccessToken}}
	got, refused, err := post(ctx, f.client, f.url, header, map[string]any{"message": out})
	if err != nil {
		return "", err
	}
	var answer struct {
		Error struct {
			Details []struct {
				ErrorCode string `json:"errorCode"`
			} `json:"details"`
			Status string `json:"status"`
		} `json:"error"`
		Name string `json:"name"`
	}
	_ = json.Unmarshal(got.body, &answer) // a page of an outage is not JSON
	if refused == nil {
		return answer.Name, nil
	}
	refused.reason = answer.Error.Status
	for _, d := range answer.Error.Details {
		if d.ErrorCode == "UNREGISTERED" && refused.status == http.StatusNotFound {
			return "", errGone
		}
		if d.ErrorCode != "" {
			refused.reason = d.ErrorCode
		}
	}
	return "", refused
}

// apns sends by the Apple Push Notification service, over HTTP/2. The address is a device token.
type apns struct {
	client        *http.Client
	key           *ecdsa.PrivateKey
	keyID, teamID string
	topic, base   string
	mu            sync.Mutex // guards the fields below
	token         string
	made          time.Time
}

// tokenAge is the time for which a provider token is used: Apple accepts a token for an hour, and no new one within 20 minutes.
const tokenAge = 45 * time.Minute

// maxCollapse bounds the id, in bytes, by which a phone shows a message only once if it comes twice.
const maxCollapse = 64

// newAPNs reads the file with the key (.p8) of a provider.
func newAPNs(file, keyID, teamID, topic, base string, client *http.Client) (*apns, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("APNS_KEY: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("APNS_KEY: %s: want a key as PEM", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok {
		return nil, fmt.Errorf("APNS_KEY: %s: want a key for ES256", file)
	}
	if keyID == "" || teamID == "" || topic == "" {
		return nil, errors.New("APNS_KEY_ID, APNS_TEAM_ID and APNS_TOPIC belong to APNS_KEY")
	}
	return &apns{client: client, key: key, keyID: keyID, teamID: teamID, topic: topic, base: base}, nil
}

// bearer returns the provider token, a JWT that is signed with ES256.
func (a *apns) bearer(now time.Time) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token != "" && now.Sub(a.made) < tokenAge {
		return a.token, nil
	}
	key := jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: a.key, KeyID: a.keyID}}
	signer, err := jose.NewSigner(key, nil)
	if err != nil {
		return "", fmt.Errorf("sign a provider token: %w", err)
	}
	token, err := josejwt.Signed(signer).Claims(map[string]any{"iss": a.teamID, "iat": now.Unix()}).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign a provider token: %w", err)
	}
	a.token, a.made = token, now
	return token, nil
}

func (a *apns) send(ctx context.Context, m message) (string, error) {
	token, err := a.bearer(time.Now())
	if err != nil {
		return "", err
	}
	body := map[string]any{"aps": map[string]any{"alert": map[string]string{"title": m.Title, "body": m.Text}}, "url": m.URL, "data": m.Data}
	header := http.Header{
		"Authorization": {"bearer " + token}, "Apns-Topic": {a.topic}, "Apns-Push-Type": {"alert"},
		"Apns-Collapse-Id": {m.ID[:min(len(m.ID), maxCollapse)]},
	}
	got, refused, err := post(ctx, a.client, a.base+"/3/device/"+url.PathEscape(m.To), header, body)
	if err != nil {
		return "", err
	}
	if refused == nil {
		return got.header.Get("Apns-Id"), nil
	}
	var answer struct {
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal(got.body, &answer) // as above
	refused.reason = answer.Reason
	switch {
	case refused.status == http.StatusGone, answer.Reason == "BadDeviceToken":
		return "", errGone
	case answer.Reason == "ExpiredProviderToken":
		a.mu.Lock()
		a.token = ""
		a.mu.Unlock()
	}
	return "", refused
}

// slack sends by incoming webhooks. The address is the URL of a webhook, which is a secret.
type slack struct {
	client *http.Client
	prefix string
}

func (s *slack) send(ctx context.Context, m message) (string, error) {
	if !strings.HasPrefix(m.To, s.prefix) { // callers that may set addresses cannot have another URL called
		return "", &refusal{status: http.StatusUnprocessableEntity, reason: "the address is no webhook of Slack"}
	}
	text := "*" + escape.Replace(m.Title) + "*\n" + escape.Replace(m.Text)
	if m.URL != "" {
		text += "\n" + escape.Replace(m.URL)
	}
	got, refused, err := post(ctx, s.client, m.To, http.Header{}, map[string]string{"text": text})
	if err != nil || refused == nil {
		return "", err
	}
	reason := strings.TrimSpace(string(got.body))
	refused.reason = fmt.Sprintf("%.60q", reason)
	switch reason {
	case "no_service", "no_team", "channel_not_found", "channel_is_archived", "team_disabled":
		return "", errGone
	}
	return "", refused
}

// escape keeps a text from being markup: <!channel> would disturb everybody.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
