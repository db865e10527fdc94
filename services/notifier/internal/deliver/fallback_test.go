package deliver_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// followers are the notifications that were stored for the next channel, however often.
func (n *nest) followers() []contracts.Notification {
	n.Helper()
	stream := check.Must(n.js.Stream(n.Context(), contracts.StreamNotifications))(n)
	info := check.Must(stream.Info(n.Context()))(n)
	var found []contracts.Notification
	for sequence := info.State.FirstSeq; sequence <= info.State.LastSeq; sequence++ {
		msg, err := stream.GetMsg(n.Context(), sequence)
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && msg.Subject != "notify.send.fish.CUSTOMER.u.e" {
			continue
		}
		row := check.Must(contracts.Decode[contracts.Notification](msg.Data))(n)
		found = append(found, row)
	}
	return found
}

func inOrder(row *contracts.Notification) { row.Fallback = []string{"fish", "sms"} }

// A notification that ends without the user being notified is followed by one on the next channel, which has the rest of the order; no
// other is.
func TestARowIsFollowedByTheNextChannel(t *testing.T) {
	for name, test := range map[string]struct {
		kind    channel.Kind
		profile profile
		mutate  func(*deliver.Config)
		follows bool
		letters uint64
	}{
		"sent":           {"", profile{}, nil, false, 0},
		"rejected":       {channel.KindRejected, profile{}, nil, true, 0},
		"exhausted":      {channel.KindUnavailable, profile{}, nil, true, 0},
		"bounced":        {channel.KindBounced, profile{}, nil, true, 0},
		"no address":     {channel.KindNoAddress, profile{}, nil, true, 0},
		"not wanted":     {"", profile{OptOut: map[string][]string{"c": {"bird"}}}, nil, true, 0},
		"disabled":       {"", profile{Addresses: map[string]string{"bird": "nest 7"}}, func(c *deliver.Config) { c.Health = enabled(start.Add(time.Hour)) }, true, 0},
		"not to deliver": {"", profile{}, func(c *deliver.Config) { c.Cancelled = &gone{events: []string{"e"}} }, false, 0},
	} {
		runInNest(t, name, func(n *nest) {
			b := &bird{}
			if test.kind != "" {
				b.fly = fails(test.kind)
			}
			n.work(n.sender("a", b, test.profile, func(c *deliver.Config) {
				c.Retries = []time.Duration{time.Second}
				if test.mutate != nil {
					test.mutate(c)
				}
			}))
			n.store(inOrder)
			elapse(time.Minute)
			rows := n.followers()
			if !test.follows {
				check.That(t, len(rows) == 0 && n.record().FellBackTo == "", "%+v", rows)
				return
			}
			check.That(t, len(rows) == 1 && rows[0].Channel == "fish" && len(rows[0].Fallback) == 1 && rows[0].Fallback[0] == "sms" &&
				rows[0].FallbackOf == "bird" && rows[0].Payload == nil && n.record().FellBackTo == "fish" && n.letters() == test.letters,
				"%+v, %+v, %d dead letters", rows, n.record(), n.letters())
		})
	}
}

// A notification that is tried for as long as it may is given up at that time, whatever its schedule says.
func TestARowIsGivenUpInTime(t *testing.T) {
	inNest(t, func(n *nest) {
		n.work(n.sender("a", &bird{fly: fails(channel.KindUnavailable)}, profile{}))
		n.store(inOrder, func(row *contracts.Notification) { row.FallbackAfter = 600 })
		elapse(9 * time.Minute)
		check.Equal(t, len(n.followers()), 0, "result")
		elapse(2 * time.Minute)
		n.want(deliveries.Failed, "fallback_after", "unavailable", "unavailable", "unavailable", "unavailable")
		rows := n.followers()
		check.That(t, len(rows) == 1 && rows[0].FallbackAfter == 600 && n.letters() == 0, "%+v", rows)
	})
}

// poison kills the process that asks for a user.
var poison finds = func(string) (contracts.Recipient, error) { panic("the process died") }

// A notification that its worker gives up, since its workers died again and again before they came to its record, is followed too, also
// when the last of them dies on the way.
func TestADeadLetteredRowIsFollowed(t *testing.T) {
	for _, point := range []string{"", deliver.PointEnded, deliver.PointFollowed} {
		runInNest(t, point, func(n *nest) {
			dies, _ := diesAt(point, 1)
			n.work(n.sender("a", &bird{}, profile{}, dies, func(c *deliver.Config) { c.Profiles, c.Retries = poison, []time.Duration{} }))
			n.store(inOrder)
			elapse(30 * time.Minute)
			n.want(deliveries.Failed, "exhausted")
			if rows := n.followers(); len(rows) != 1 || n.record().FellBackTo != "fish" || n.letters() != 1 {
				t.Errorf("%+v, %+v, %d dead letters", rows, n.record(), n.letters())
			}
		})
	}
}

// A process that dies between the end of a notification and its acknowledgement, whether a channel has refused the notification, all
// addresses of its user have, or its user cannot be read: the notification of the next channel is there once, and no call is repeated
// whose outcome was recorded.
func TestADeathBetweenTheEndAndTheNextRow(t *testing.T) {
	for name, test := range map[string]struct {
		of     deliver.Profiles
		points []string
		ends   string
		calls  int
	}{
		"refused":    {street, []string{deliver.PointRecorded, deliver.PointEnded, deliver.PointFollowed}, "failed rejected", 1},
		"unreadable": {unreadable, []string{deliver.PointEnded, deliver.PointFollowed}, "failed recipient", 0},
		"several":    {owns("main", "a"), []string{deliver.PointRecorded, deliver.PointUnheard, deliver.PointEnded, deliver.PointFollowed}, "split ", 2},
	} {
		for _, point := range test.points {
			runInNest(t, name+" "+point, func(n *nest) {
				b := &bird{fly: fails(channel.KindRejected)}
				dies, left := diesAt(point, 1)
				n.work(n.sender("a", b, profile{}, dies, func(c *deliver.Config) { c.Profiles = test.of }))
				n.store(inOrder)
				elapse(time.Hour)
				d := n.record()
				check.Equal(n, string(d.State)+" "+d.Reason+" "+d.FellBackTo, test.ends+" fish", "the row")
				check.That(n, left.Load() <= 0 && len(b.sent) == test.calls, "%d calls, %d deaths to come", len(b.sent), left.Load())
				check.Equal(n, len(n.followers()), 1, "rows of the next channel")
			})
		}
	}
}

// unreadable is a directory whose record of a user has a mistake.
var unreadable finds = func(string) (contracts.Recipient, error) {
	return contracts.Recipient{}, &recipient.Error{Permanent: true}
}

// A process that dies after it has looked into the inbox and before it sends: the next one looks again.
func TestADeathBetweenTheLookAndTheMessage(t *testing.T) {
	for read, want := range map[bool]string{false: "sent ", true: "suppressed read"} {
		runInNest(t, want, func(n *nest) {
			b, seen, dies := &bird{}, false, true
			n.work(n.sender("a", b, profile{}, func(c *deliver.Config) {
				c.Read = func(context.Context, *contracts.Notification) (bool, error) { return seen, nil }
				c.Passed = func(at string) {
					if at == deliver.PointUnread && dies {
						seen, dies = read, false
						panic("the process died")
					}
				}
			}))
			n.store(func(row *contracts.Notification) { row.Unread = true })
			elapse(time.Minute)
			d := n.record()
			check.Equal(n, string(d.State)+" "+d.Reason, want, "the row")
			check.That(n, !dies && len(b.sent) == map[bool]int{false: 1}[read], "%d calls", len(b.sent))
		})
	}
}

// The next channel gets one notification when no address has reached the user, however its notifications end: two at the same moment,
// one after the other, or with a crash at any point.
func TestFallbackOfASplitRow(t *testing.T) {
	none := fails(channel.KindRejected)
	for name, test := range map[string]struct {
		hears string // the address that does
		point string // where workers die, each once
		want  int
	}{
		"nobody": {want: 1}, "one": {hears: "nest a"}, "the other": {hears: "nest main"},
		"crash before":  {point: deliver.PointUnheard, want: 1},
		"crash between": {point: deliver.PointEnded, want: 1},
		"crash after":   {point: deliver.PointFollowed, want: 1},
	} {
		runInNest(t, name, func(n *nest) {
			b := &bird{}
			b.fly = func(ctx context.Context, call int) (channel.Receipt, error) {
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.sent[call-1].Address == test.hears {
					return channel.Receipt{}, nil
				}
				return none(ctx, call)
			}
			var mu sync.Mutex
			left := 2
			arrived := make(chan struct{})
			n.work(n.sender("a", b, profile{}, owns("main", "a").config, func(c *deliver.Config) {
				c.Passed = func(at string) {
					mu.Lock()
					dies := at == test.point && left > 0
					if at == deliver.PointUnheard && left > 0 || dies {
						left--
						if left == 0 {
							close(arrived)
						}
					}
					mu.Unlock()
					if dies {
						panic("the process died")
					}
					if at == deliver.PointUnheard && test.hears == "" && test.point == "" { // both have ended before either knows of the other
						<-arrived
					}
				}
			}))
			n.store(inOrder)
			elapse(time.Hour)
			rows := n.followers()
			if len(rows) != test.want || test.want == 1 && (rows[0].Address != "" || rows[0].FallbackOf != "bird" || n.record().FellBackTo != "fish") {
				n.Errorf("%+v, %+v", rows, n.record())
			}
			if test.want == 0 && n.record().FellBackTo != "" || n.ofNest("a").FellBackTo != "" {
				n.Errorf("%+v, %+v", n.record(), n.ofNest("a"))
			}
		})
	}
}

// An address that was reached by a replay keeps the next channel out, also when another one fails later.
func TestAReplayedAddressKeepsTheNextChannelOut(t *testing.T) {
	inNest(t, func(n *nest) {
		b := &bird{}
		b.fly = func(ctx context.Context, call int) (channel.Receipt, error) {
			if b.sent[call-1].Address == "nest main" && call <= 2 {
				return fails(channel.KindUnavailable)(ctx, call)
			}
			return fails(channel.KindRejected)(ctx, call)
		}
		n.work(n.sender("a", b, profile{}, owns("main", "a").config))
		n.store(inOrder)
		elapse(time.Second)
		d := n.ofNest("a")
		check.Equal(n, d.State, deliveries.Failed, "state")
		d.State = deliveries.Sent
		check.OK(n, n.deliveries.Put(n.Context(), "e.bird./a.CUSTOMER.u", d))
		elapse(time.Minute)
		check.Equal(n, n.flights(&bird{}, "a", "main"), "a is sent rejected, main is failed rejected", "states")
		check.Equal(n, len(n.followers()), 0, "rows of the next channel")
	})
}

// The dead letter of an address's notification is followed as its end is.
func TestADeadLetterOfAnAddressIsFollowed(t *testing.T) {
	inNest(t, func(n *nest) {
		o := owns("main", "a")
		n.store(inOrder)
		n.dead(&bird{}, deliver.PointSplit, 1, o.config)
		check.OK(n, n.sender("spreads", &bird{}, profile{}, o.config).Work(n.Context(), n.job(2, inOrder)))
		n.work(n.sender("a", &bird{}, profile{}, func(c *deliver.Config) { c.Profiles, c.Retries = poison, []time.Duration{} }))
		elapse(30 * time.Minute)
		check.Equal(n, n.flights(&bird{}, "a", "main"), "a is failed exhausted, main is failed exhausted", "states")
		check.Equal(n, len(n.followers()), 1, "rows of the next channel")
	})
}
