package pull

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// request is the kind of an outstanding pull request.
type request int

const (
	none request = iota

	// taking asks for present messages, and holds slots for them until the server has answered.
	taking

	// standing waits at the server for messages that may come, and holds no slot.
	standing
)

// source is one consumer: its subscription and its outstanding request. The atomic fields are shared with the subscription's
// callback, the others belong to the goroutine in Run.
type source struct {
	Source

	alive    atomic.Bool   // the server has answered since the latest request
	left     atomic.Int64  // messages that the outstanding request may still bring
	more     atomic.Bool   // the metadata of the latest message had others waiting
	patience atomic.Int64  // the duration of the next request; 0 while the server is not slow
	wary     atomic.Bool   // Up waits for a sign of life
	ended    chan struct{} // the subscription has ended and its callback returned

	asked   request       // the kind of the outstanding request
	batch   int64         // of the outstanding request
	charged int64         // of the batch, in finish
	emptied time.Time     // the time at which the source was last known to be empty
	finish  float64       // its virtual time, see share
	granted int           // the slots granted so far, while share runs
	lasts   time.Duration // the outstanding request
	inbox   string        // prefix of the reply subjects, with the last dot
	lost    bool          // it could not be pulled from, and Lost has not returned
	sub     *nats.Subscription

	mu     sync.Mutex // guards the fields below; Run writes number and sent, and reads them without the lock
	former time.Time  // the time at which requests were sent that the server did not end
	late   int        // the number of next messages that may be answers to those
	number uint64     // of the latest request
	sent   time.Time  // the latest request
}

// notice is a status message of the server about a request.
type notice struct {
	about *source
	msg   *nats.Msg
}

func (p *Puller) subscribe(s *source) error {
	s.inbox = p.Conn.NewInbox() + "."
	sub, err := p.Conn.Subscribe(s.inbox+"*", func(msg *nats.Msg) { p.receive(s, msg) })
	if err != nil {
		return fmt.Errorf("pull: subscribe: %w", err)
	}
	s.sub = sub
	sub.SetClosedHandler(func(string) { close(s.ended) })
	// The requests bound the messages. The client's limit would drop large messages.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return fmt.Errorf("pull: subscribe: %w", err)
	}
	return nil
}

// leave notes that the server did not end the latest request. Some of its messages may be pending, as in a process that was stopped. No
// more will come: the connection is a new one, or has brought an answer to a later question.
func (s *source) leave(pending int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.late == 0 {
		s.former = s.sent
	}
	s.late = max(pending, 0)
}

// ends takes a notice of the server. After a notice about the latest request no message of an earlier request comes.
func (s *source) ends(notice *nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if notice.Subject == s.inbox+strconv.FormatUint(s.number, 10) {
		s.late = 0
	}
}

// send sends a request for n messages. No other bound is set.
func (p *Puller) send(s *source, kind request, n int) {
	s.asked, s.batch, s.charged = kind, int64(n), 0
	s.left.Store(s.batch)
	s.lasts = max(p.Expires, time.Duration(s.patience.Load()))
	body := fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, n, s.lasts)
	if kind == taking {
		body = fmt.Appendf(nil, `{"batch":%d,"no_wait":true}`, n)
	}
	s.mu.Lock()
	s.number, s.sent = s.number+1, time.Now()
	s.mu.Unlock()
	if err := p.Conn.PublishRequest(s.Subject, s.inbox+strconv.FormatUint(s.number, 10), body); err != nil {
		s.left.Store(0) // disconnected: a status change or the timer brings the next try
		return
	}
	p.pulling = true
}

// adapt makes the next request last longer, if the server was slow to end the latest and sent nothing. The server looks for the oldest
// message among all subjects of the stream, which takes seconds for millions. If the request has expired by then, it drops the message that
// it found.
func (s *source) adapt() {
	s.patience.Store(0)
	if s.left.Load() == s.batch && time.Since(s.sent) > s.lasts+s.lasts/10 {
		s.patience.Store(int64(min(2*s.lasts, maxPatience)))
	}
}

// isOut reports whether the server may still answer a request.
func (s *source) isOut() bool { return s.left.Load() > 0 }

// unsubscribe ends the subscriptions and waits for their callbacks to return.
func (p *Puller) unsubscribe() {
	for _, s := range p.sources {
		if s.sub != nil {
			_ = s.sub.Unsubscribe() // on a closed connection there is nothing to unsubscribe
			<-s.ended
		}
	}
}
