package api

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// testTimeout bounds the call of a channel for a test message.
const testTimeout = 10 * time.Second

// TestMessage is a message that shows what a template makes of a payload. It belongs to no event and no user, and leaves no row.
type TestMessage struct {
	// Channel sends it. Required.
	Channel string `json:"channel"`

	// Locale is the reader's. Defaults to none.
	Locale string `json:"locale,omitempty"`

	// Payload is what the event would have. Defaults to nothing.
	Payload json.RawMessage `json:"payload,omitempty"`

	// Template names the text. Required.
	Template string `json:"template"`

	// TimeZone is the reader's, by its IANA name. Defaults to none.
	TimeZone string `json:"time_zone,omitempty"`

	// To is the address. Required.
	To string `json:"to"`
}

// TestSent is what became of a test message.
type TestSent struct {
	// ID is the message's.
	ID string `json:"id"`

	// Problem is why the far side has not taken it, "" when it has.
	Problem string `json:"problem,omitempty"`

	// ProviderID is what the far side calls it.
	ProviderID string `json:"provider_id,omitempty"`
}

// SendTest sends a test message now, once. Two round trips, and the call of the channel.
func (a *API) SendTest(ctx context.Context, body []byte) (sent TestSent, err error) {
	var m TestMessage
	var problems []contracts.FieldError
	if json.Unmarshal(body, &m) != nil {
		problems = append(problems, contracts.FieldError{Problem: `must be JSON such as {"template":"x","channel":"email","to":"a@example.com"}`})
	} else {
		for _, required := range []struct{ path, value string }{{"/template", m.Template}, {"/to", m.To}} {
			if required.value == "" {
				problems = append(problems, contracts.FieldError{Path: required.path, Problem: "is required"})
			}
		}
		if a.cfg.Tested[m.Channel] == nil {
			problems = append(problems, contracts.FieldError{Path: "/channel", Problem: "must be a channel with texts that the notifier has"})
		}
	}
	if len(problems) > 0 {
		return sent, &contracts.ValidationError{Type: "test message", Fields: problems}
	}
	sent.ID = "test_" + nuid.Next()
	now := time.Now().UTC()
	err = a.cfg.Audit.Do(ctx, "test", "template "+m.Template+" by "+m.Channel, func(ctx context.Context) (int, error) {
		ctx, cancel := context.WithTimeout(ctx, testTimeout)
		defer cancel()
		receipt, err := a.cfg.Tested[m.Channel].Send(ctx, channel.Message{
			Address: m.To, Attempt: 1, CreatedAt: now, EventID: sent.ID, EventType: m.Template, FirstAttempt: now, ID: sent.ID, Locale: m.Locale,
			Payload: m.Payload, Template: m.Template, Test: true, TimeZone: m.TimeZone, UserID: "test",
		})
		if err != nil {
			sent.Problem = fmt.Sprintf("%.500s", err.Error())
			return 0, nil // the far side's answer is what was asked for
		}
		sent.ProviderID = receipt.ID
		return 1, nil
	})
	return sent, err
}
