package contracts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
)

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
