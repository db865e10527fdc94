package deployment

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// pace is the time between two events of a source, and between two looks at readiness.
const pace = 100 * time.Millisecond

// pause lets a source or a probe wait.
func pause() { time.Sleep(pace) } //nolint:forbidigo // the servers are processes in real time

// mountDisks gives each server a disk of 64 MiB in memory, if that is allowed.
func (s *site) mountDisks() {
	s.Helper()
	for _, server := range []string{"n1", "n2", "n3"} {
		dir := filepath.Join(s.dir, server, "data")
		check.OK(s, os.Mkdir(dir, 0o700))
		if err := testbed.Mount(s, dir); err != nil {
			s.Logf("full disks are not tried: %v (run as root)", err)
			return
		}
		s.disks = append(s.disks, dir)
	}
}

// caller is a client of the services over HTTP.
type caller struct {
	*http.Client

	keys string // the folder of the keys
}

// call returns the status, 0 for none, and the body of an answer.
func (c caller) call(method, key, url, body string) (int, string) {
	secret, err := os.ReadFile(filepath.Join(c.keys, key+".key"))
	if err != nil {
		return 0, err.Error()
	}
	r, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(secret)))
	resp, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, fmt.Sprint(string(text), err)
}

// turned waits until the services are all ready, or none is, and returns how long that took.
func (s *site) turned(c caller, ready bool, most time.Duration) time.Duration {
	s.Helper()
	for begun := time.Now(); ; pause() {
		all, said := true, ""
		for _, address := range []string{".4:8080", ".5:8005", ".6:8006"} {
			status, text := c.call(http.MethodGet, "shop", "https://"+s.network+address+"/readyz?verbose", "")
			all = all && (status == http.StatusOK) == ready
			said += fmt.Sprintf("%s %d\n%s\n", address, status, text)
		}
		took := time.Since(begun)
		if all {
			return took
		}
		check.Require(s, took <= most, "after %s readiness is not %t everywhere:\n%s", took, ready, said)
	}
}

// fillDisks fills the disks of all servers while events arrive, and makes room again. The services say so in time, go on without a
// restart, and each accepted event reaches its user.
func (s *site) fillDisks() {
	s.Helper()
	if len(s.disks) < 3 {
		return
	}
	pem := check.Must(os.ReadFile(filepath.Join(s.dir, "ca.pem")))(s)
	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: authority}}
	defer transport.CloseIdleConnections()
	c := caller{&http.Client{Transport: transport, Timeout: time.Minute}, filepath.Join(s.dir, "publisher")}
	notifier := "https://" + s.network + ".6:8006"

	stop, sources := make(chan struct{}), sync.WaitGroup{}
	var mu sync.Mutex // guards the next ones
	var accepted []string
	var longest time.Duration
	refused := map[int]int{}
	for source := range 8 {
		sources.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					pause()
				}
				id, begun := fmt.Sprintf("disk-%d-%d", source, n), time.Now()
				status, _ := c.call(http.MethodPost, "shop", notifier+"/v1/events", `{"event_id":"`+id+
					`","event_type":"RESERVATION_REQUESTED","aggregate_type":"RESTAURANT","restaurant_id":5,"user_id":"carla","payload":{"guests":4}}`)
				mu.Lock()
				longest = max(longest, time.Since(begun))
				if status/100 == 2 {
					accepted = append(accepted, id)
				} else {
					refused[status]++
				}
				mu.Unlock()
			}
		})
	}
	var fillers []string
	for _, disk := range s.disks {
		fillers = append(fillers, testbed.Fill(s, disk))
	}
	red := s.turned(c, false, 5*time.Second)
	for range 50 {
		pause()
	}
	for _, filler := range fillers {
		check.OK(s, os.Remove(filler))
	}
	green := s.turned(c, true, 30*time.Second)
	close(stop)
	sources.Wait()
	s.Logf("not ready after %s, ready %s after there was room; %d events accepted, refused %v, the longest request took %s",
		red, green, len(accepted), refused, longest)
	check.That(s, longest <= 18*time.Second && len(accepted) != 0 && len(refused) != 0,
		"a request took %s; %d events were accepted, refused %v", longest, len(accepted), refused)
	for begun := time.Now(); ; pause() {
		_, inbox := c.call(http.MethodGet, "carla", notifier+"/v1/users/carla/inbox?limit=1000", "")
		lost := 0
		for _, id := range accepted {
			if !strings.Contains(inbox, `"`+id+`"`) {
				lost++
			}
		}
		switch {
		case lost == 0:
			return
		case time.Since(begun) > 2*time.Minute:
			s.Fatalf("%d of %d accepted events are not in the inbox: %.2000s", lost, len(accepted), inbox)
		}
	}
}
