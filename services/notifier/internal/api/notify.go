package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// aNotification is the default event type and aggregate type of a notification.
const aNotification = "NOTIFICATION"

// ReadNotification reads a notification as an event with a route: event_id, event_type, not_before, payload and recipients are members
// of the event, and all others are the route, as in rules. key takes the place of a missing event_id. The error is a
// [*contracts.ValidationError] with all mistakes.
func (a *API) ReadNotification(body []byte, key string) (recipient.Event, error) {
	type Notification map[string]json.RawMessage
	members, err := contracts.Read[Notification](body)
	if err != nil {
		return recipient.Event{}, err
	}
	event, route := map[string]any{"aggregate_type": aNotification, "event_type": aNotification}, map[string]any{}
	if key != "" {
		event["event_id"] = key
	}
	for name, value := range members {
		switch name {
		case "event_id", "event_type", "not_before", "payload", "recipients":
			event[name] = value
		default:
			route[name] = value
		}
	}
	event["route"] = route
	data, err := json.Marshal(event)
	if err != nil {
		return recipient.Event{}, err
	}
	e, err := contracts.Decode[recipient.Event](data)
	var all contracts.ValidationError
	if wrong, ok := errors.AsType[*contracts.ValidationError](err); ok {
		all = *wrong
	}
	if key != "" && err == nil && e.EventID != key {
		all.Fields = append(all.Fields, contracts.FieldError{
			Path: "/event_id", Problem: "is not that of the header Idempotency-Key: leave one of them out",
		})
	}
	if data, err = json.Marshal(route); err == nil {
		err = a.cfg.Planner.CheckRoute(e.EventType, data)
	}
	if wrong, ok := errors.AsType[*rules.Error](err); ok {
		for _, m := range wrong.Mistakes {
			path := strings.NewReplacer(".", "/", "[", "/", "]", "").Replace("." + strings.TrimPrefix(m.Path, "."))
			all.Fields = append(all.Fields, contracts.FieldError{Path: strings.TrimSuffix(path, "/"), Problem: m.Problem})
		}
	} else if err != nil {
		return e, err
	}
	if len(all.Fields) > 0 {
		all.Type = "Notification"
		return e, &all
	}
	return e, nil
}

// testTimeout bounds the call of a channel for a test message.
const testTimeout = 10 * time.Second

// TestMessage is a message that shows the text of a template for a payload. It belongs to no event and no user, and leaves no
// notification.
type TestMessage struct {
	// Channel is the channel that sends the message. Required.
	Channel string `json:"channel"`

	// Locale is the locale of the reader. Defaults to none.
	Locale string `json:"locale,omitempty"`

	// Payload is the payload of the event. Defaults to none.
	Payload json.RawMessage `json:"payload,omitempty"`

	// Template names the text. Required.
	Template string `json:"template"`

	// TimeZone is the IANA name of the reader's time zone. Defaults to none.
	TimeZone string `json:"time_zone,omitempty"`

	// To is the address. Required.
	To string `json:"to"`
}

// TestSent is the outcome of a test message.
type TestSent struct {
	// ID is the id of the message.
	ID string `json:"id"`

	// Problem is the reason why the remote service has not taken the message, "" when it has. For callers who are no operators it is the
	// kind of failure only.
	Problem string `json:"problem,omitempty"`

	// ProviderID is the provider's id of the message, for operators.
	ProviderID string `json:"provider_id,omitempty"`
}

// SendTest sends a test message now, once. Two round trips, and the call of the channel.
func (a *API) SendTest(ctx context.Context, m TestMessage) (sent TestSent, err error) {
	var wrong contracts.Mistakes
	wrong.Add(m.Template == "", "/template", "is required")
	wrong.Add(m.To == "", "/to", "is required")
	wrong.Add(a.cfg.Tested[m.Channel] == nil, "/channel", wantChannel("texts", a.cfg.Tested))
	if err := wrong.In("test message"); err != nil {
		return sent, err
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
			if isBounded(ctx) { // the error may have hosts, addresses and texts of the inner network
				a.cfg.Logger.InfoContext(ctx, "notifier: a user's test message failed", "id", sent.ID, "target", target, "error", sent.Problem)
				failure := channel.Of(by.Name(), err)
				sent.Problem = (&channel.Error{Channel: by.Name(), Kind: failure.Kind, Status: failure.Status}).Error()
			}
			return 0, nil // a failure is an answer, too
		}
		if !isBounded(ctx) {
			sent.ProviderID = receipt.ID // in the provider's words
		}
		return 1, nil
	})
	return sent, err
}
