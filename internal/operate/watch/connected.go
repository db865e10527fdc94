package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/operate"
)

// SubjectConnections is the subject of the question for the connections of the user's own account, and no other's.
const SubjectConnections = "$SYS.REQ.ACCOUNT.PING.CONNZ"

// Connection is the connection of a worker, or of several.
type Connection struct {
	Name          string   `json:"name"`
	IP            string   `json:"ip"`
	Port          int      `json:"port"`
	Received      uint64   `json:"in_msgs"`
	Subscriptions []string `json:"subscriptions_list"`
}

// Connected returns the connections of workers of the user's own account by their instances, whether they answer or not. An error means
// that the user may not ask, or that not all are listed. One round trip.
func Connected(ctx context.Context, nc *nats.Conn) (map[string]Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	all := map[string]Connection{}
	question := []byte(`{"subscriptions":true,"filter_subject":"` + inspect.SubjectInfo + `"}`)
	answers, err := inspect.Gather(ctx, nc, SubjectConnections, question, patience/2)
	for _, answer := range answers {
		var page struct {
			Data struct {
				Total       int          `json:"total"`
				Limit       int          `json:"limit"`
				Connections []Connection `json:"connections"`
			} `json:"data"`
			Error any `json:"error"`
		}
		if json.Unmarshal(answer, &page) != nil || page.Error != nil || page.Data.Total > page.Data.Limit {
			return nil, errors.New("the servers do not list all connections of the account")
		}
		for _, c := range page.Data.Connections {
			for _, subject := range c.Subscriptions {
				if instance, ok := strings.CutPrefix(subject, inspect.SubjectInfo+"."); ok {
					all[instance] = c
				}
			}
		}
	}
	if len(answers) == 0 {
		return nil, fmt.Errorf("the servers do not list the connections of the account: %w", err)
	}
	return all, nil
}

// Own returns the workers that are connected in the user's own account: another account's may answer there, whatever they say.
func Own(workers []inspect.Info, here map[string]Connection) (own []inspect.Info) {
	for _, w := range workers {
		if _, ok := here[w.Instance]; ok {
			own = append(own, w)
		}
	}
	return own
}

// Silent finds workers that are connected, and neither answer nor send anything: their processes stand still. states are the streams of the
// account, which name those that answered before.
func Silent(here map[string]Connection, workers []inspect.Info, states ...State) (all []Problem) {
	known := map[string]bool{}
	for _, s := range states {
		for _, w := range slices.Concat(s.Frozen, s.Workers) {
			known[w.Instance] = true
		}
	}
	for _, w := range workers {
		known[w.Instance] = true
	}
	for _, instance := range slices.Sorted(maps.Keys(here)) {
		if known[instance] {
			continue
		}
		c := here[instance]
		p := kinds["worker.frozen"]
		p.ID, p.Of, p.mark, p.after = "worker.frozen", "worker "+instance, strconv.FormatUint(c.Received, 10), settles
		p.Text = fmt.Sprintf("its connection %q from %s:%d is open, and it neither answers nor sends: its process is frozen. "+
			"Others get its jobs after ack_wait", c.Name, c.IP, c.Port)
		p.Command, p.Page = operate.Shell("expediter", "jobs", "workers"), []any{"/workers"}
		all = append(all, p)
	}
	return all
}
