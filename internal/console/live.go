package console

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
)

const (
	// topicTick is the topic of pages whose changes are not pushed: they are reloaded every few seconds.
	topicTick = "tick"

	tickTime    = 5 * time.Second
	heartbeat   = 15 * time.Second
	maxStreams  = 200 // open pages that follow, of all callers
	topicLength = 40
)

// hub tells open pages that a topic has news. A slow page is told once of several changes.
type hub struct {
	mu   sync.Mutex
	last map[string]uint64 // the latest news of each topic
	open map[chan struct{}]page
	told uint64        // news of all topics
	done chan struct{} // closed when the hub has ended
}

type page struct{ caller, topic string }

func newHub() *hub {
	return &hub{done: make(chan struct{}), last: map[string]uint64{}, open: map[chan struct{}]page{}}
}

// run publishes ticks until ctx ends, and then ends all streams.
func (h *hub) run(ctx context.Context) {
	ticker := time.NewTicker(tickTime)
	defer ticker.Stop()
	defer close(h.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			h.tell(topicTick)
		}
	}
}

func (h *hub) tell(topic string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told++
	h.last[topic] = h.told
	for ch, of := range h.open {
		if of.topic == topic {
			select {
			case ch <- struct{}{}:
			default: // the page has not taken the last news
			}
		}
	}
}

// seen returns the number of changes so far, for a page that is made now.
func (h *hub) seen() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.told
}

// follow returns a channel that gets a value for each change of the page's topic after seen, the last change that it has shown, until stop
// is called. The channel is nil for a caller with as many pages as it leaves to others, so that one with none gets in.
func (h *hub) follow(p page, seen uint64) (news chan struct{}, stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := maxStreams - len(h.open)
	for _, other := range h.open {
		if other.caller == p.caller {
			left--
		}
	}
	if left <= 0 {
		return nil, nil
	}
	news = make(chan struct{}, 1)
	if h.last[p.topic] > seen {
		news <- struct{}{}
	}
	h.open[news] = p
	return news, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.open, news)
	}
}

// addLive adds the stream of events that keeps a page up to date. An event does not contain the change: the
// page then reloads itself from its address.
func (c *Console) addLive() {
	c.routes.HandleFunc("GET /live", func(w http.ResponseWriter, r *http.Request) {
		c.serve(w, r, access.All(access.Read), c.followTopic)
	})
}

func (c *Console) followTopic(r *request) error {
	topic := r.URL.Query().Get("topic")
	if topic == "" || len(topic) > topicLength {
		return fail(http.StatusBadRequest, "Want a topic.")
	}
	seen, err := strconv.ParseUint(r.URL.Query().Get("seen"), 10, 64)
	if err != nil {
		seen = math.MaxUint64 // only news from now on
	}
	news, stop := c.hub.follow(page{access.From(r.Context()).Name, topic}, seen)
	if news == nil {
		return fail(http.StatusTooManyRequests, "Too many of your pages follow. This one stays as it is: load it again to see what is new.")
	}
	defer stop()
	s, err := service.OpenStream(r.w, r.Request, service.Retry)
	if err != nil {
		return nil // the browser has gone
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		send := s.Heartbeat
		select {
		case <-r.Context().Done():
			return nil
		case <-c.hub.done:
			return nil
		case <-news:
			send = func() error { return s.Event("", "changed", nil) }
		case <-beat.C:
		}
		if _, ok := c.sessions.get(r.session); r.session != "" && !ok || send() != nil {
			return nil // the browser has disconnected, or its key is no longer in force
		}
	}
}
