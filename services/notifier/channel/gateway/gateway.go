package gateway

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/internal/post"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// DefaultBody is the body of a message unless another one is configured.
const DefaultBody = `{"to":"$to","text":"$text","id":"$id"}`

// PushBody is a body for services that show more than a text.
const PushBody = `{"to":"$to","title":"$subject","text":"$text","url":"$url","data":"$data","id":"$id"}`

// Config configures a [Gateway].
type Config struct {
	// Body is a JSON document. In its texts $to, $text, $subject, $url, $id, $user and $locale stand for the user's address, parts of
	// the template, the message's id, the user's id and the user's locale; a text $data is replaced by the data of a push, or null.
	// Defaults to [DefaultBody].
	Body string

	// Name is the channel's name, such as "sms". Required.
	Name string

	// RootCAs are the authorities against which certificates are checked. Defaults to the system's.
	RootCAs *x509.CertPool

	// Templates make the texts. Required.
	Templates *template.Set

	// Token is sent as "Authorization: Bearer <token>". Defaults to none.
	Token string

	// Unsubscribe returns the URL, for templates, at which a user switches a category off, or "". Defaults to no URL.
	Unsubscribe func(m channel.Message) string

	// URL is the address to which messages are sent. It may be in a network that is not public. Required.
	URL string
}

// Gateway is the channel. It is safe for concurrent use.
type Gateway struct {
	body   any
	cfg    Config
	client *post.Client
}

var _ channel.Channel = (*Gateway)(nil)

// New returns the channel. Close it after its last use.
func New(cfg Config) (*Gateway, error) {
	g := &Gateway{cfg: cfg, client: post.New(post.Config{Channel: cfg.Name, RootCAs: cfg.RootCAs})}
	if g.cfg.Unsubscribe == nil {
		g.cfg.Unsubscribe = func(channel.Message) string { return "" }
	}
	var errs []error
	if cfg.Name == "" {
		errs = append(errs, errors.New("gateway: Name is missing"))
	}
	if _, err := g.client.Check(cfg.URL); err != nil {
		errs = append(errs, fmt.Errorf("gateway %s: URL: %w", cfg.Name, err))
	}
	if strings.ContainsAny(cfg.Token, "\r\n") {
		errs = append(errs, fmt.Errorf("gateway %s: Token has a line break", cfg.Name))
	}
	if cfg.Templates == nil {
		errs = append(errs, fmt.Errorf("gateway %s: Templates are missing", cfg.Name))
	}
	decoder := json.NewDecoder(strings.NewReader(cmp.Or(cfg.Body, DefaultBody)))
	decoder.UseNumber()
	if err := decoder.Decode(&g.body); err != nil {
		errs = append(errs, fmt.Errorf("gateway %s: Body is not JSON: %w", cfg.Name, err))
	} else if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		errs = append(errs, fmt.Errorf("gateway %s: Body is more than one JSON document", cfg.Name))
	}
	return g, errors.Join(errs...)
}

// Close closes the connections that no call is using.
func (g *Gateway) Close() { g.client.Close() }

// Name implements [channel.Channel].
func (g *Gateway) Name() string { return g.cfg.Name }

// Send implements [channel.Channel]. The address has any form that the service takes. One request.
func (g *Gateway) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	if m.Address == "" {
		return channel.Receipt{}, g.client.Fail(channel.KindNoAddress, 0, "", nil)
	}
	text, err := g.cfg.Templates.Render(m, g.cfg.Name, g.cfg.Unsubscribe(m))
	if err != nil {
		return channel.Receipt{}, err
	}
	values := strings.NewReplacer(
		"$to", m.Address, "$text", text.Text, "$subject", text.Subject, "$url", text.URL, "$id", m.ID, "$user", m.UserID, "$locale", m.Locale,
	)
	filled, err := template.Fill(g.body, func(leaf any) (any, error) {
		if leaf == "$data" {
			return text.Data, nil // JSON or nil
		}
		if said, ok := leaf.(string); ok {
			return values.Replace(said), nil
		}
		return leaf, nil
	})
	var body []byte
	if err == nil {
		body, err = post.JSON(filled)
	}
	if err != nil {
		return channel.Receipt{}, g.client.Fail(channel.KindMisconfigured, 0, "the body cannot be written", err)
	}
	header := http.Header{
		"Accept": {"application/json"}, "Content-Type": {"application/json"}, "Idempotency-Key": {m.ID}, "User-Agent": {"Expediter"},
	}
	if g.cfg.Token != "" {
		header.Set("Authorization", "Bearer "+g.cfg.Token)
	}
	answer, err := g.client.Post(ctx, g.cfg.URL, header, body, func(a *post.Answer) error { return g.judge(a, m.Address) })
	if err != nil {
		return channel.Receipt{}, err
	}
	return channel.Receipt{ID: idOf(answer.Body)}, nil
}

// judge returns the error for an answer. A status about the called URL concerns the service, and not the user. Only an answer that
// names the user's address as gone concerns that address.
func (g *Gateway) judge(answer *post.Answer, address string) error {
	var said struct {
		Gone string `json:"gone"`
	}
	if answer.Status == http.StatusGone && json.Unmarshal(answer.Body, &said) == nil && said.Gone == address {
		return g.client.Judge(answer)
	}
	switch answer.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		return g.client.Failed(channel.KindMisconfigured, answer, "the service does not take messages from us there")
	case http.StatusConflict: // the same key, while the first call is under way
		return g.client.Failed(channel.KindUnknown, answer, "the service has a call with the same key")
	}
	return g.client.Judge(answer)
}

// idOf returns the service's id of the message, if the answer has it in one of the usual fields.
func idOf(body []byte) string {
	var said map[string]any
	if json.Unmarshal(body, &said) != nil {
		return ""
	}
	for _, name := range []string{"id", "sid", "message_id", "messageId"} {
		if id, ok := said[name].(string); ok && len(id) <= contracts.MaxID {
			return id
		}
	}
	return ""
}
