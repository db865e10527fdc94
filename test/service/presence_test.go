package service_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// lastSeen is the end of a problem, which differs each time.
var lastSeen = regexp.MustCompile(`, last seen at 20\d\d-\S+Z on host ".+" with version "0\.0\.0-dev"`)

// An instance that died, is frozen or cut off is missed, and no other: not one that was stopped, replaced or declared vacant.
func TestMissingInstancesAreNamed(t *testing.T) {
	const (
		late    = "late" // and may be restarting
		gone    = "the shop is gone: no instance answers, and 1 did not stop properly"
		one     = "1 of 2 instances of the shop do not answer"
		unknown = "read the places of the shop: "
	)
	// A script starts, kills, freezes, thaws and stops instances. In between an observer watches for 14 seconds, or waits for 2. The script
	// takes the servers away, to which the observer then comes back before instances, and deletes and makes the bucket.
	for name, test := range map[string]struct {
		script string
		want   []string                  // problems in their order
		lose   func(natstest.Frame) bool // of the observer's messages
		stuck  bool                      // no instance can write once it has a place
	}{
		"one that runs":                {script: "start a, watch"},
		"the only one is killed":       {script: "start a, watch, kill a, watch", want: []string{late, gone}},
		"one of two, then the other":   {script: "start a, watch, start b, watch, kill b, watch, stop a, watch", want: []string{late, one, gone}},
		"two":                          {script: "start a, watch, start b, watch, kill a, kill b, watch", want: []string{late, strings.Replace(gone, "1 did", "2 did", 1)}},
		"the only one is stopped":      {script: "start a, watch, stop a, watch"},
		"a rolling deployment":         {script: "start a, start b, watch, start c, watch, stop a, start d, watch, stop b, watch, stop c, start e, watch, stop d, stop e, watch"},
		"it is started again later":    {script: "start a, watch, kill a, watch, start b, watch", want: []string{late, gone}},
		"it is started again at once":  {script: "start a, watch, kill a, start b, watch, stop b, watch"},
		"one of two, and stopped soon": {script: "start a, watch, start b, watch, kill b, start c, wait, stop c, watch, kill a, watch", want: []string{late, gone}},
		"a third one is stopped soon":  {script: "start a, watch, start b, watch, start c, wait, stop c, watch, watch, kill b, watch", want: []string{late, one}},
		"the servers were away":        {script: "start a, watch, away, watch"},
		"they were, and it died":       {script: "start a, watch, away, watch, kill a, away, watch", want: []string{gone}},
		"one of two is started again":  {script: "start a, watch, start b, watch, kill a, stop b, start c, watch, watch", want: []string{one}},
		"a frozen one that is replaced": {
			script: "start a, watch, freeze a, watch, start b, watch, thaw a, watch, kill b, watch", want: []string{late, gone, late, one},
		},
		"the disk is full":          {script: "start a, watch, watch", stuck: true},
		"the observer may not ask":  {script: "start a, watch, watch, kill a, watch", want: []string{late, gone}, lose: to("$SRV.PING.")},
		"the bucket is made again":  {script: "start a, watch, delete, make, watch, kill a, watch", want: []string{late, gone}},
		"the bucket is missing":     {script: "start a, watch, delete, watch, kill a, watch"},
		"the observer may not read": {script: "start a, watch, kill a, watch", want: []string{unknown}, lose: to("$JS.API.STREAM.MSG.GET.KV_jobs")},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
				observer, js := natstest.Proxied(t, srv)
				declared(t, js, 1)
				if test.lose != nil {
					observer.Filter(natstest.Losing(test.lose))
				}
				links, services, shop := map[string]*natstest.Proxy{}, map[string]*service.Service{}, service.Attend(js, "shop")
				var got []string
				look := func(times int) {
					for range times {
						roll, err := shop.Look(t.Context(), 0)
						if err != nil {
							roll.Problem, _, _ = strings.Cut(err.Error(), "ask about")
						}
						if roll.Late {
							roll.Problem = late
						}
						if text := lastSeen.ReplaceAllString(roll.Problem, ""); text != "" && (len(got) == 0 || got[len(got)-1] != text) {
							got = append(got, text)
						}
						natstest.Pass(2 * time.Second)
					}
				}
				for step := range strings.SplitSeq(test.script, ", ") {
					switch do, id, _ := strings.Cut(step, " "); do {
					case "start":
						links[id] = natstest.NewProxy(t, srv)
						nc, _ := natstest.Connect(t, srv, links[id].Through())
						services[id] = check.Must(service.Start(t.Context(), nc, imports(service.BaseConfig{})))(t)
						t.Cleanup(func() { _ = services[id].Stop() }) // a killed one has no connection
						natstest.Pass(time.Second)
						if test.stuck {
							links[id].Filter(natstest.Losing(to("$KV.jobs.ready.shop-")))
						}
					case "kill":
						links[id].Cut()
						delete(links, id)
					case "freeze":
						links[id].Partition()
					case "thaw":
						links[id].Heal()
					case "stop":
						check.OK(t, services[id].Stop())
					case "watch":
						look(7)
					case "wait":
						natstest.Pass(2 * time.Second)
					case "away":
						for _, link := range links {
							link.Partition()
						}
						natstest.Pass(20 * time.Second)
						look(2)
						for _, link := range links {
							link.Heal()
						}
					case "delete":
						check.OK(t, js.DeleteStream(t.Context(), "KV_jobs"))
					case "make":
						declared(t, js, 1)
					}
				}
				check.Equal(t, got, test.want)
			})
		})
	}
}

// to returns whether a message of a client is for a subject that begins so.
func to(subject string) func(natstest.Frame) bool {
	return func(f natstest.Frame) bool { return f.FromClient && strings.HasPrefix(f.Subject, subject) }
}

// An instance that cannot write while a leader is elected, or has to connect to another node, is not missed.
func TestALostNodeIsNoMissingInstance(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 3)
	nc, js := natstest.ConnectURL(t, c.URLs())
	declared(t, js, 3)
	importing(t, nc, 3)
	_, js = natstest.ConnectURL(t, c.URLs())
	shop, known := service.Attend(js, "shop"), 0
	check.OK(t, check.Must(c.StreamLeader(t.Context(), "KV_jobs"))(t).Kill())
	for began := time.Now(); time.Since(began) < 12*time.Second || known == 0; { // a look takes 250 ms
		roll, err := shop.Look(t.Context(), 0)
		check.Equal(t, roll.Problem, "", "a problem")
		if err == nil {
			known++
		}
		check.OK(t, t.Context().Err())
	}
}
