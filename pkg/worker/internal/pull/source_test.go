package pull

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestSinceIsThatOfTheRequest has two requests go without an end while messages are pending, and then one that the server ends.
func TestSinceIsThatOfTheRequest(t *testing.T) {
	t.Parallel()
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	s := &source{inbox: "inbox.", sent: at(1)}
	want := func(when string, seconds int) {
		t.Helper()
		if got := s.since(); !got.Equal(at(seconds)) {
			t.Errorf("%s: since %d, want %d", when, got.Unix(), seconds)
		}
	}
	want("the first request", 1)
	s.leave(2)
	s.number, s.sent = 2, at(2)
	want("the first of two that were pending", 1)
	s.leave(2) // one of them is still there
	s.number, s.sent = 3, at(3)
	want("a message that is pending since the first request", 1)
	s.ends(&nats.Msg{Subject: "inbox.2"})
	want("after a notice about an earlier request", 1)
	want("behind the pending messages", 3)
	s.leave(5)
	s.number, s.sent = 4, at(4)
	s.ends(&nats.Msg{Subject: "inbox.4"})
	want("after a notice about the latest request", 4)
	s.leave(-1) // the subscription has ended
	s.sent = at(5)
	want("when nothing is pending", 5)
}
