// Package row makes of a row the message that its stream takes once.
package row

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
)

// Header returns what the headers of all rows of a plan have in common. created is when the plan was made.
func Header(created time.Time) (nats.Header, error) {
	header, err := contracts.CloudEvent{
		ID: "row", Source: "/notifier", Type: contracts.CloudEventNotificationRequested, Time: created,
		DataContentType: "application/json",
	}.Header()
	if err != nil {
		return nil, fmt.Errorf("headers of rows: %w", err)
	}
	header.Del(nats.MsgIdHdr) // the subject says that a row is one
	return header, nil
}

// Message returns the message of a row of the encoder's plan. Its id is the row's key.
func (e *Encoder) Message(n contracts.Notification, common nats.Header) (*nats.Msg, error) {
	id, err := n.Key()
	if err != nil {
		return nil, err
	}
	subject, err := n.Subject()
	if err != nil {
		return nil, err
	}
	data, err := e.encode(n)
	if err != nil {
		return nil, err
	}
	return &nats.Msg{Subject: subject, Data: data, Header: named(common, id)}, nil
}

// Replay returns the message that has a row sent again for the n-th time. It says what the row says, and has an id of its
// own: its dead letter is another.
func Replay(n contracts.Notification, data []byte, number int) (*nats.Msg, error) {
	id, err := n.Key()
	if err != nil {
		return nil, err
	}
	subject, err := n.ReplaySubject(number)
	if err != nil {
		return nil, err
	}
	common, err := Header(n.CreatedAt)
	if err != nil {
		return nil, err
	}
	return &nats.Msg{Subject: subject, Data: data, Header: named(common, id+"."+strconv.Itoa(number))}, nil
}

func named(common nats.Header, id string) nats.Header {
	header := maps.Clone(common)
	header["ce-id"], header[worker.HeaderID] = []string{id}, []string{id}
	return header
}
