package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/worker/token"
)

// ErrNoWorker is returned when no worker answers: none runs, or the user has no permission to ask.
var ErrNoWorker = errors.New("inspect: no worker answers")

// stall is how long Workers waits for one more answer after the last one.
const stall = 250 * time.Millisecond

// Workers asks all workers of the account, and of the accounts from which it imports the subject. It waits for the first answer
// until ctx ends, and 250 ms for each further one. Answers that cannot be read are in the error, beside the others.
func Workers(ctx context.Context, nc *nats.Conn) (all []Info, err error) {
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("inspect: subscribe: %w", err)
	}
	defer func() { err = errors.Join(err, answers.Unsubscribe()) }()
	if err := nc.PublishRequest(SubjectInfo, inbox, nil); err != nil {
		return nil, fmt.Errorf("inspect: ask: %w", err)
	}
	msg, err := answers.NextMsgWithContext(ctx)
	if err != nil || len(msg.Data) == 0 { // then the server says that nobody listens
		return nil, fmt.Errorf("%w: %w", ErrNoWorker, errors.Join(err, ctx.Err()))
	}
	var unread []error
	for {
		var info Info
		if err := json.Unmarshal(msg.Data, &info); err != nil {
			unread = append(unread, fmt.Errorf("inspect: an answer: %w", err))
		} else {
			all = append(all, info)
		}
		once, cancel := context.WithTimeout(ctx, stall)
		msg, err = answers.NextMsgWithContext(once)
		cancel()
		if err != nil {
			return all, errors.Join(unread...)
		}
	}
}

// RecentOf asks an instance of Info for its last attempts. One round trip.
func RecentOf(ctx context.Context, nc *nats.Conn, instance string) (Recent, error) {
	return ask[Recent](ctx, nc, SubjectRecent, instance)
}

// StacksOf asks an instance of Info for the attempts that it runs. One round trip. It stops the worker's process for a moment.
func StacksOf(ctx context.Context, nc *nats.Conn, instance string) (Stacks, error) {
	return ask[Stacks](ctx, nc, SubjectStacks, instance)
}

func ask[T any](ctx context.Context, nc *nats.Conn, subject, instance string) (answer T, err error) {
	if !token.IsSafe(instance) {
		return answer, fmt.Errorf("inspect: %q is no instance of a worker", instance)
	}
	msg, err := nc.RequestWithContext(ctx, subject+"."+instance, nil)
	if errors.Is(err, nats.ErrNoResponders) {
		err = ErrNoWorker
	}
	if err != nil {
		return answer, fmt.Errorf("inspect: ask %s: %w", instance, err)
	}
	if err = json.Unmarshal(msg.Data, &answer); err != nil {
		return answer, fmt.Errorf("inspect: the answer of %s: %w", instance, err)
	}
	return answer, nil
}
