package api

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// aNotification is the type of the event, and of the aggregate, of a notification that names none.
const aNotification = "NOTIFICATION"

// ReadNotification reads a notification as an event with a route: event_id, event_type, not_before, payload and recipients are those of
// the event, and all else is the route, as rules have it. key goes before an event_id that is missing. The error is a
// [*contracts.ValidationError] with all mistakes.
func (a *API) ReadNotification(body []byte, key string) (contracts.Event, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return contracts.Event{}, invalidNotification("", `must be JSON such as {"recipients":[{"recipient_type":"CUSTOMER","user_id":"42"}],`+
			`"channels":["inapp"],"template":"welcome"}`)
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
		return contracts.Event{}, err //nolint:wrapcheck // cannot fail
	}
	e, err := contracts.Decode[contracts.Event](data)
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

func invalidNotification(path, problem string) error {
	return &contracts.ValidationError{Type: "Notification", Fields: []contracts.FieldError{{Path: path, Problem: problem}}}
}

// Notify is [API.ReadNotification] and [API.Publish].
func (a *API) Notify(ctx context.Context, body []byte, key string) (Accepted, error) {
	e, err := a.ReadNotification(body, key)
	if err != nil {
		return Accepted{}, err
	}
	return a.Publish(ctx, e)
}
