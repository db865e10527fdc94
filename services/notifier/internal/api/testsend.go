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
	return a.sendTest(ctx, "template "+m.Template+" by "+m.Channel, a.cfg.Tested[m.Channel], channel.Message{
		Address: m.To, EventType: m.Template, Locale: m.Locale, Payload: m.Payload, Template: m.Template, TimeZone: m.TimeZone, UserID: "test",
	})
}

// sendTest sends a message as a test, once.
func (a *API) sendTest(ctx context.Context, target string, by channel.Channel, m channel.Message) (sent TestSent, err error) {
	sent.ID = "test_" + nuid.Next()
	now := time.Now().UTC()
	m.Attempt, m.CreatedAt, m.EventID, m.FirstAttempt, m.ID, m.Test = 1, now, sent.ID, now, sent.ID, true
	err = a.cfg.Audit.Do(ctx, "test", target, func(ctx context.Context) (int, error) {
		ctx, cancel := context.WithTimeout(ctx, testTimeout)
		defer cancel()
		receipt, err := by.Send(ctx, m)
		if err != nil {
			sent.Problem = fmt.Sprintf("%.500s", err.Error())
			return 0, nil // the far side's answer is what was asked for
		}
		sent.ProviderID = receipt.ID
		return 1, nil
	})
	return sent, err
}
