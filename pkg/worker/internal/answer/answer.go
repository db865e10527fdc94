// Package answer answers the questions of package inspect about one worker.
package answer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/pkg/worker/inspect"
	"github.com/expediter-io/expediter/pkg/worker/internal/stacks"
)

const (
	// maxAnswer bounds an answer to an inspector, together with the largest payload that the server takes.
	maxAnswer = 256 << 10

	// MaxStacks and minStacks bound the stacks of one attempt in an answer, in bytes: less when many run.
	MaxStacks = 8 << 10
	minStacks = 1 << 10
)

// Config has the answers to inspectors. Its functions must not wait for handlers.
type Config struct {
	// Conn is the connection that receives the questions.
	Conn *nats.Conn

	// Drain makes the worker take no more jobs, or take jobs again.
	Drain func(drained bool)

	// Info has the fields that do not change. An answer has as many of its Handlers as fit.
	Info inspect.Info

	// Now sets the fields of an Info that change.
	Now func(*inspect.Info)

	// Recent has the last attempts.
	Recent *Recent

	// Running returns the running attempts. The Stacks of each is the label of its goroutines.
	Running func() []inspect.Running
}

// Serve answers until end is called. The subscriptions have goroutines of their own.
func Serve(cfg Config) (end func(), err error) {
	service, err := micro.AddService(cfg.Conn, micro.Config{
		Description: "Runs jobs, and says which", Name: inspect.Service, QueueGroupDisabled: true, Version: "1.0.0",
		Metadata: map[string]string{"consumer": cfg.Info.Consumer, "id": cfg.Info.ID, "stream": cfg.Info.Stream},
	})
	if err != nil {
		return nil, fmt.Errorf("worker: answer inspectors: %w", err)
	}
	cfg.Info.Instance, cfg.Info.Started = service.Info().ID, time.Now().UTC()
	end = func() {
		_ = service.Stop() // the connection is closed then
	}
	drain := func(is bool) []byte {
		cfg.Drain(is)
		return cfg.info()
	}
	for subject, answer := range map[string]func() []byte{
		inspect.SubjectInfo: cfg.info, inspect.SubjectRecent: cfg.recent, inspect.SubjectStacks: cfg.stacks,
		inspect.SubjectDrain: func() []byte { return drain(true) }, inspect.SubjectResume: func() []byte { return drain(false) },
	} {
		handler := micro.HandlerFunc(func(r micro.Request) {
			_ = r.Respond(answer()) // on a closed connection no answer is sent
		})
		name := subject[strings.LastIndexByte(subject, '.')+1:]
		err := service.AddEndpoint(name+"-one", handler, micro.WithEndpointSubject(subject+"."+cfg.Info.Instance))
		if err == nil && subject != inspect.SubjectDrain && subject != inspect.SubjectResume {
			err = service.AddEndpoint(name, handler, micro.WithEndpointSubject(subject))
		}
		if err != nil {
			end()
			return nil, fmt.Errorf("worker: answer inspectors: %w", err)
		}
	}
	return end, nil
}

// IsDenied reports whether an error means that the user may not answer inspectors. A worker can work its jobs all the same.
func IsDenied(err error) bool {
	text := err.Error()
	return strings.Contains(text, `"`+inspect.Service+`.v1.`) || strings.Contains(text, `"`+micro.APIPrefix+`.`)
}

// info returns the answer to a request for the Info.
func (c Config) info() []byte {
	info, all := c.Info, c.Info.Handlers
	info.Attempts, info.Last = c.Recent.counted(), inspect.Sum(c.Recent.Latest())
	c.Now(&info)
	return c.fit(len(all), func(n int) any {
		info.Handlers, info.HandlersOmitted = all[:n], len(all)-n
		if n == 0 {
			info.Last.Waits = nil
		}
		return info
	})
}

// recent returns the answer to a question for the last attempts.
func (c Config) recent() []byte {
	all := c.Recent.Latest()
	return c.fit(len(all), func(n int) any {
		return inspect.Recent{ID: c.Info.ID, Instance: c.Info.Instance, Attempts: all[:n], Omitted: len(all) - n}
	})
}

// stacks returns the answer to a question for the running attempts.
func (c Config) stacks() []byte {
	all := c.Running()
	slices.SortFunc(all, func(a, b inspect.Running) int { return a.Started.Compare(b.Started) })
	labels := make([]stacks.Label, 0, len(all))
	for _, a := range all {
		labels = append(labels, stacks.Label(a.Stacks))
	}
	dumps := stacks.Of(max(minStacks, min(MaxStacks, maxAnswer/(1+len(all)))), labels...)
	for i, label := range labels {
		all[i].Stacks = dumps[label]
	}
	return c.fit(len(all), func(n int) any {
		return inspect.Stacks{ID: c.Info.ID, Instance: c.Info.Instance, Attempts: all[:n], Omitted: len(all) - n}
	})
}

// fit returns an answer with as many of its n elements as fit into a message. Texts are cut, so an answer without elements fits.
func (c Config) fit(n int, answer func(n int) any) []byte {
	limit := min(int(c.Conn.MaxPayload()), maxAnswer)
	for {
		data, _ := json.Marshal(answer(n)) //nolint:errchkjson // an answer has only texts, numbers and times of this century
		if len(data) <= limit || n == 0 {
			return data
		}
		n = min(n-1, n*limit/len(data))
	}
}
