package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/installed"
	"github.com/expediter-io/expediter/pkg/pause"
)

func TestMain(m *testing.M) { crash.Main(m, 4, mailServer, natsServer, stuckEnricher) }

// site has programs of the repository, and a Prometheus that has the configuration and the rules of the repository.
type site struct {
	*testing.T

	asked      int    // places
	bin        string // the folder of the programs
	meanwhile  func() // is called each second while await waits
	prometheus string // its address
}

// program is a running program that Prometheus scrapes.
type program struct {
	*crash.Process

	address string
	again   func() *crash.Process // starts it at the same address
}

// serves matches the log line of a service that serves, with its address.
const serves = `: ready".*"http":"http://([^"]+)"`

// start starts a program with flags and variables, in which ADDRESS is where it listens, and returns when it serves.
func (s *site) start(name string, settings ...string) *program {
	s.Helper()
	run := func(listen string) (*crash.Process, string) {
		s.Helper()
		command, env, ready := []string{"-c", `exec "$0" "$@" 2>&1`, filepath.Join(s.bin, name)}, os.Environ(), serves
		if name == "relay" {
			command, ready = append(command[:2], filepath.Join(s.bin, "expediter"), "relay"), `Metrics are at http://(\S+)/metrics`
		}
		for _, setting := range settings {
			setting = strings.Replace(setting, "ADDRESS", listen, 1)
			if strings.HasPrefix(setting, "-") {
				command = append(command, setting)
			} else {
				env = append(env, setting)
			}
		}
		cmd := exec.CommandContext(context.WithoutCancel(s.Context()), "sh", command...)
		cmd.Env = env
		p := crash.Start(s, cmd)
		return p, p.Await(ready)[1]
	}
	p, address := run("127.0.0.1:0")
	return &program{Process: p, address: address, again: func() *crash.Process {
		next, _ := run(address)
		return next
	}}
}

// restart kills the program, if it runs, and starts it at the same address.
func (p *program) restart() {
	p.Kill()
	p.Process = p.again()
}

// expediter runs a command of the runbooks, and returns its output.
func (s *site) expediter(args ...string) string {
	s.Helper()
	out, err := exec.CommandContext(s.Context(), filepath.Join(s.bin, "expediter"), args...).CombinedOutput()
	s.Logf("expediter %s: %s", strings.Join(args, " "), out)
	check.OK(s, err)
	return string(out)
}

// post sends JSON to a service, and returns the status, 0 for none.
func (s *site) post(url, body string) int {
	s.Helper()
	r := check.Must(http.NewRequestWithContext(s.Context(), http.MethodPost, "http://"+url, strings.NewReader(body)))(s)
	answer, err := (&http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body) //nolint:errcheck // the status is enough
	return answer.StatusCode
}

// apply makes the streams and buckets of the services, as small as they may be.
func (s *site) apply(nats string, more ...string) {
	s.Helper()
	s.expediter(append([]string{"apply", "--server", nats, "--max-bytes", "1"}, more...)...)
}

// watch starts Prometheus, and waits until it has scraped all programs, which are given by their job.
func (s *site) watch(jobs map[string][]*program) {
	s.Helper()
	folder := s.TempDir()
	rulesPath := check.Must(filepath.Abs(rules))(s)
	config, _, _ := strings.Cut(read(s.T, "../../deploy/prometheus/prometheus.yaml"), "  - job_name:")
	config = strings.Replace(config, "[rules.yaml]", "["+rulesPath+"]", 1)
	all := 0
	for job, programs := range jobs {
		for _, p := range programs {
			config += fmt.Sprintf("  - {job_name: %s-%d, static_configs: [{targets: [%q], labels: {job: %s}}]}\n", job, all, p.address, job)
			all++
		}
	}
	file := filepath.Join(folder, "prometheus.yaml")
	check.OK(s, os.WriteFile(file, []byte(config), 0o600))
	p := crash.Start(s, exec.CommandContext(s.Context(), "sh", "-c", `exec "$0" "$@" 2>&1`, installed.Prometheus.Find(s)[0],
		"--config.file="+file, "--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address=127.0.0.1:0"))
	s.prometheus = p.Await(`Listening on" address=(\S+)`)[1]
	p.Await("Server is ready")
	s.until("all are scraped", func() bool {
		var found struct {
			Data struct {
				Result []any `json:"result"`
			} `json:"data"`
		}
		s.read("query?query=up%3D%3D1", &found)
		return len(found.Data.Result) == all
	})
	check.Same(s, "alerts of a healthy site", fmt.Sprint(s.firing()), "map[]")
}

// read decodes an answer of Prometheus.
func (s *site) read(path string, into any) {
	s.Helper()
	r := check.Must(http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+s.prometheus+"/api/v1/"+path, http.NoBody))(s)
	answer, err := (&http.Client{Timeout: crash.Patience}).Do(r)
	check.OK(s, err)
	defer answer.Body.Close()
	check.OK(s, json.NewDecoder(answer.Body).Decode(into))
}

// firing returns the names of the alerts that fire, and those with the instance, the job or the side of each.
func (s *site) firing() map[string]bool {
	s.Helper()
	var found struct {
		Data struct {
			Alerts []struct {
				Labels map[string]string `json:"labels"`
				State  string            `json:"state"`
			} `json:"alerts"`
		} `json:"data"`
	}
	s.read("alerts", &found)
	names := map[string]bool{}
	for _, a := range found.Data.Alerts {
		if a.State == "firing" {
			name := a.Labels["alertname"]
			names[name] = true
			for _, label := range []string{"instance", "job"} {
				if value := a.Labels[label]; value != "" {
					names[name+" of "+value] = true
				}
			}
		}
	}
	return names
}

// until waits for a condition.
func (s *site) until(says string, holds func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 2*crash.Patience) // JobsLate takes more than half of it
	defer cancel()
	for !holds() {
		if !pause.For(ctx, 200*time.Millisecond) {
			s.Fatalf("never: %s; these fire: %v", says, s.firing())
		}
	}
}

// await waits until all of the alerts fire, or none of them, and logs how long each took.
func (s *site) await(fires bool, names ...string) {
	s.Helper()
	began, polls, names := time.Now(), 0, slices.Clone(names)
	s.until(fmt.Sprintf("%v fire: %t", names, fires), func() bool {
		polls++
		if polls%5 == 0 {
			s.meanwhile()
		}
		now := s.firing()
		names = slices.DeleteFunc(names, func(name string) bool {
			if now[name] == fires {
				s.Logf("%s fires after %.0f s: %t", name, time.Since(began).Seconds(), fires)
			}
			return now[name] == fires
		})
		return len(names) == 0
	})
}

// fault is one that fires alerts, and the steps of its runbook that mend it.
type fault struct {
	name   string
	inject func()
	fires  []string
	mend   func()
}

// atLength returns the names of alerts that take minutes, where the long form of the test is asked for.
func atLength(names ...string) []string {
	if crash.Long() {
		return names
	}
	return nil
}

// suffer injects faults, one after the other, and mends each when its alerts fire.
func (s *site) suffer(faults ...fault) {
	s.Helper()
	for _, f := range faults {
		s.Log(f.name)
		f.inject()
		s.await(true, f.fires...)
		f.mend()
		s.await(false, f.fires...)
	}
}

// Faults of running programs fire their alerts, and the steps of the runbooks end these.
func TestFaultsFireAndAreMended(t *testing.T) {
	t.Parallel()
	installed.Prometheus.Find(t)
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s", "-o", bin, "./cmd/expediter", "./services/enricher/cmd/enricher",
		"./services/notifier/cmd/notifier")
	build.Dir = "../.."
	out, err := build.CombinedOutput()
	check.Require(t, err == nil, "%v\n%s", err, out)
	for name, of := range map[string]func(*site){
		"the cluster": clusterFaults, "the disk": diskFaults, "the enricher": enricherFaults, "the notifier": notifierFaults,
		"the outbox": outboxFaults,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of(&site{T: t, bin: bin, meanwhile: func() {}})
		})
	}
}
