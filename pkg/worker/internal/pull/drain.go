package pull

import (
	"time"

	"github.com/nats-io/nats.go"
)

// drain ends the outstanding request without losing a message that the server is sending.
//
// A request cannot be taken back: it ends when its inbox has no subscriber. Were the
// subscription simply removed, the client would drop what is on the wire, and the job
// would run AckWait later with an attempt less. So server and client first agree on the
// exact number of messages after which the subscription ends for both (that is what
// AutoUnsubscribe does), more than can be on their way, and the difference is made up by
// requests that the server refuses, each with one message.
//
// Subscription.Drain does it otherwise, but with a timer shared by the whole process,
// which cannot be used under fake time.
func (p *Puller) drain() {
	if p.sub == nil {
		return
	}

	if p.left > 0 && !p.offline {
		if last, ok := p.limit(); ok {
			p.takeUntil(last)
		}
	}

	_ = p.sub.Unsubscribe() //nolint:errcheck // by now there is nothing to unsubscribe, or no connection

	for len(p.messages) > 0 {
		p.take(<-p.messages)
	}
}

// limit ends the subscription after a number of messages and asks for as many refusals as
// can be missing. It returns the number.
func (p *Puller) limit() (last int, ok bool) {
	const (
		notices = 8   // heartbeats and the like that may be on their way
		refused = "{" // not a request
	)

	delivered, err := p.sub.Delivered()
	if err != nil {
		return 0, false
	}

	missing := p.left + notices
	last = int(delivered) + missing

	if p.sub.AutoUnsubscribe(last) != nil {
		return 0, false
	}

	for range missing {
		if p.Conn.PublishRequest(p.Subject, p.inbox+"end", []byte(refused)) != nil {
			return 0, false
		}
	}

	return last, true
}

// takeUntil delivers jobs until the subscription has received its last message. It gives
// up when the server does not answer.
func (p *Puller) takeUntil(last int) {
	timer := time.NewTimer(drainWait)
	defer timer.Stop()

	for p.taken < last {
		select {
		case msg := <-p.messages:
			p.take(msg)
		case <-timer.C:
			return
		}
	}
}

func (p *Puller) take(msg *nats.Msg) {
	p.count(msg)

	if isJob(msg) {
		p.Deliver(msg)
	}
}
