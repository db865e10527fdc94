package httpapi

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	d := servicetest.Described(t, Docs)
	d.Routes(t, func(r *service.Router) { Add(Config{Router: r}) })
	type eventState struct {
		api.Event
		api.Page
	}
	type inboxPage struct {
		inapp.Page

		Next string `json:"next,omitempty"`
	}
	d.Types(t, map[string]any{
		"Accepted": api.Accepted{}, "AddressSecrets": api.AddressSecrets{}, "Attempt": deliveries.Attempt{}, "Cancelled": api.Cancelled{},
		"CloudEvent": nil, "Counts": inapp.Counts{}, "EndpointName": api.EndpointName{}, "EventState": eventState{},
		"FailingEndpoint": health.Endpoint{}, "FailingEndpoints": api.EndpointPage{}, "FieldError": contracts.FieldError{}, "Frame": frame{},
		"Imported": api.Imported{}, "InboxPage": inboxPage{}, "Item": inapp.Item{}, "Mark": mark{}, "Marked": nil, "Members": api.Members{}, "Membership": recipient.Member{}, "MembersRequest": api.MembersRequest{},
		"Notify": nil, "Problem": service.Problem{}, "Profile": nil, "Replayed": api.Replayed{}, "Row": api.Notification{}, "RowPage": api.Page{},
		"TestMessage": api.TestMessage{}, "TestSent": api.TestSent{}, "UserLine": nil, "UserPage": api.UserPage{},
	})
}
