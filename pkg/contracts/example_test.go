package contracts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// A restaurant leaves as it came, but for the links that were found.
func ExampleRestaurant() {
	request, err := contracts.Decode[contracts.EnrichRequest]([]byte(
		`{"results":[{"rating":4.50,"placeId":"ChIJ123","name":"Pizza House","wolt":{"status":"PENDING","url":null}}]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	restaurant := request.Results[0]
	before, _ := restaurant.State(contracts.ProviderWolt)
	fmt.Println(before.Status)
	restaurant.SetState(contracts.ProviderWolt, contracts.ProviderState{Status: contracts.StatusFound, URL: new("https://wolt.com/x")}, true)
	raw, err := contracts.Encode(restaurant)
	fmt.Println(string(raw), err)
	// Output:
	// PENDING
	// {"rating":4.50,"placeId":"ChIJ123","name":"Pizza House","wolt":{"status":"FOUND","url":"https://wolt.com/x"},"providers":{"wolt":{"status":"FOUND","url":"https://wolt.com/x"}}} <nil>
}

func ExampleDecode() {
	_, err := contracts.Decode[contracts.ImportJob]([]byte(`{"job_id":"../etc/passwd","url":"file:///etc/passwd"}`))
	fmt.Println(err)

	if invalid, ok := errors.AsType[*contracts.ValidationError](err); ok {
		for _, field := range invalid.Fields {
			fmt.Println(field.Path)
		}
	}
	// Output:
	// contracts: invalid ImportJob: /job_id must not contain "/", "\", ".." or control characters; /owner_id is required; /url must be an absolute http or https URL without user name and password
	// /job_id
	// /owner_id
	// /url
}

func ExampleCloudEvent() {
	msg, err := contracts.CloudEvent{
		ID: "evt-001", Source: "/reservations", Type: "com.example.reservation.requested.v1", Subject: "Café 7",
		Data: []byte(`{"event_id":"evt-001","event_type":"RESERVATION_REQUESTED","aggregate_type":"RESTAURANT"}`),
	}.Msg("events.RESTAURANT.RESERVATION_REQUESTED")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(msg.Header["Nats-Msg-Id"], msg.Header["ce-subject"])

	event, err := contracts.ParseCloudEvent(msg.Header, msg.Data)
	fmt.Println(event.Subject, err)
	// Output:
	// [/reservations|evt-001] [Caf%C3%A9%207]
	// Café 7 <nil>
}

// An event is published until the stream has acknowledged it. A caller that calls again, after a crash or a lost
// answer, publishes the same event once.
func ExamplePublisher() { //nolint:testableexamples // needs a server
	var js jetstream.JetStream // of a connection
	publish := func(ctx context.Context) error {
		publisher, err := contracts.NewPublisher(js, contracts.PublisherConfig{Source: "/reservations"})
		if err != nil {
			return err
		}
		done, err := publisher.Publish(ctx, contracts.Event{
			EventID: "evt-001", EventType: "RESERVATION_REQUESTED", AggregateType: "RESTAURANT",
			Payload: json.RawMessage(`{"guests":4}`), Extra: map[string]json.RawMessage{"recipientType": json.RawMessage(`"BROADCAST"`)},
		})
		if errors.Is(err, contracts.ErrEventMismatch) {
			return fmt.Errorf("evt-001 means something else: %w", err)
		}
		fmt.Println(done.Sequence, done.Duplicate)
		return err
	}
	_ = publish
}
