package console

import (
	"github.com/nats-io/nats.go/jetstream"
)

// streamRow is a stream on the overview.
type streamRow struct {
	Account string
	Info    *jetstream.StreamInfo
}

// addOverview adds the overview.
func (c *Console) addOverview() {
	c.page("GET /", func(r *request) error {
		r.Command, r.Live = "expediter jobs streams", topicTick
		var rows []streamRow
		for _, a := range c.cfg.Accounts {
			streams := a.JetStream.ListStreams(r.Context())
			for info := range streams.Info() {
				rows = append(rows, streamRow{a.Name, info})
			}
			if err := streams.Err(); err != nil {
				return err
			}
		}
		return r.render("overview", "Overview", rows)
	})
}
