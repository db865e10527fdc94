package directget

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/jsapi"
)

// burst is the number of messages that Singly requests before it has an answer.
const burst = 64

// Singly is From with a request for each message. For a request for several messages, the server counts all messages behind them. If some
// were removed from the middle of the stream, that count goes through all subjects, 0.1 seconds for a million. Singly takes a round trip
// for each 64 messages. It reads messages without an answer, and messages behind many removed ones, as From does.
func (g *Getter) Singly(ctx context.Context, stream string, from uint64, limit int) (all []jsapi.Message, more bool, err error) {
	inbox := g.nc.NewInbox() + "."
	sub, err := g.nc.SubscribeSync(inbox + "*")
	if err != nil {
		return nil, false, fmt.Errorf("subscribe to replies: %w", err)
	}
	defer sub.Unsubscribe()

	for next, size := from, 0; ; {
		n, before := min(burst, limit+1-len(all)), len(all)
		got, whole, end := g.burst(ctx, sub, inbox, stream, next, n)
		for _, m := range got {
			if m.Sequence >= next {
				all, next = append(all, m), m.Sequence+1
				size += len(m.Data)
			}
		}
		switch {
		case len(all) > limit, end, size >= pageBytes:
			return all[:min(len(all), limit)], !end || len(all) > limit, nil
		case !whole || len(all)-before < n/2:
			rest, further, err := g.From(ctx, stream, next, limit+1-len(all))
			all = append(all, rest...)
			return all[:min(len(all), limit)], further || len(all) > limit, err
		}
	}
}

// burst requests the messages at n sequences, or the next message behind each. It reports whether all answers arrived, and whether the
// last one is that no further message exists.
func (g *Getter) burst(
	ctx context.Context, sub *nats.Subscription, inbox, stream string, from uint64, n int,
) (got []jsapi.Message, whole, end bool) {
	prefix := inbox + strconv.FormatUint(from, 10) + "-" // an answer to an earlier burst may be late
	for i := range n {
		body := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":">"}`, from+uint64(i))
		if g.nc.PublishRequest(g.api.Prefix+"DIRECT.GET."+stream, prefix+strconv.Itoa(i), body) != nil {
			return nil, false, false
		}
	}
	ctx, cancel := context.WithTimeout(ctx, idleTimeout)
	defer cancel()
	answers, none := make([]*jsapi.Message, n), n // the first answer without a message
	for range n {
		reply, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			break
		}
		i, err := strconv.Atoi(strings.TrimPrefix(reply.Subject, prefix))
		message, ok, failed := Answer(reply)
		switch {
		case err != nil || i >= n || failed != nil:
		case ok:
			answers[i] = &message
		default:
			none = min(none, i)
		}
	}
	for i, m := range answers {
		if m == nil {
			end = i == none && !slices.ContainsFunc(answers[i:], func(m *jsapi.Message) bool { return m != nil }) // else that replica lags
			return got, end, end
		}
		got = append(got, *m)
	}
	return got, true, false
}
