package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// varz has the checked settings and figures of a server.
type varz struct {
	Name       string    `json:"server_name"`
	Version    string    `json:"version"`
	Now        time.Time `json:"now"`
	MaxPayload int64     `json:"max_payload"`
	Cluster    struct {
		Name string `json:"name"`
	} `json:"cluster"`
	JetStream struct {
		Config *struct {
			Domain       string        `json:"domain"`
			MaxStore     int64         `json:"max_storage"`
			SyncAlways   bool          `json:"sync_always"`
			SyncInterval time.Duration `json:"sync_interval"`
		} `json:"config"`
		Stats *struct {
			Store uint64 `json:"storage"`
		} `json:"stats"`
	} `json:"jetstream"`

	asked, answered time.Time
}

type healthz struct {
	console.Health

	name string
}

// idDisk is the ID of the finding of a server that cannot write.
const idDisk = "server.disk"

// checkServers checks the answers of all servers to requests of monitoring.
func (e *examination) checkServers(ctx context.Context) {
	var all []varz
	var health []healthz
	if e.nc != nil && !slices.Contains(contracts.Services(), e.As) {
		all, health = e.pingServers(ctx)
	}
	for _, address := range e.Monitors {
		v, h, err := e.monitor(ctx, address)
		if err != nil {
			e.add("monitor.unreachable", Warning, "monitoring "+redact.URL(address), "curl -sSf "+redact.URL(address)+"/healthz",
				"no answer: %v", redact.Error(err))
			continue
		}
		all, health = append(all, v), append(health, h)
	}
	if len(all) == 0 && len(e.Monitors) == 0 {
		e.skipf("servers' settings: the user may not ask them; name their monitoring with --monitor, or connect as the user sys")
	}
	e.checkHealth(health)
	for _, v := range all {
		if !slices.Contains(e.broken, v.Name) { // which has turned JetStream off
			e.checkSettings(v)
		}
	}
	e.compareServers(all)
}

// checkHealth checks the answers of the servers' health checks. One that cannot write keeps the others from being current for a while.
func (e *examination) checkHealth(all []healthz) {
	var broken []string
	for _, h := range all {
		if disk := h.Disk(); disk != "" {
			broken = append(broken, h.name)
			e.add(idDisk, Error, "server "+h.name, makeRoom, "%s (its health check: %s)", disk, h.Error)
		}
	}
	for _, h := range all {
		if h.Status != "ok" && h.Disk() == "" {
			because := most
			if len(broken) > 0 && strings.Contains(h.Error, "not current") {
				because = broken[0]
			}
			e.addBecause(because, "server.unhealthy", Error, "server "+h.name, "nats server report jetstream # its log says more",
				"its health check says %s: %s", h.Status, h.Error)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broken, e.off, e.checked = broken, len(broken), len(all)
}

// makeRoom is the cure for a server that cannot write.
const makeRoom = "df -h /data; df -i /data # on its machine, where /data is its store_dir: make room, " +
	"and restart it if deploy/nats/serve does not"

// pingServers asks all servers over NATS. The user sys may ask for both, and admin and console for their health.
func (e *examination) pingServers(ctx context.Context) (all []varz, health []healthz) {
	var asking sync.WaitGroup
	asking.Go(func() {
		asked := time.Now()
		for _, a := range console.AskServers[varz](ctx, e.nc, "VARZ", once) {
			a.Data.asked, a.Data.answered = asked, time.Now()
			all = append(all, a.Data)
		}
	})
	for _, a := range console.AskHealth(ctx, e.nc, once) {
		health = append(health, healthz{a.Data, a.Server.Name})
	}
	asking.Wait()
	return all, health
}

// monitor asks one server over HTTP.
func (e *examination) monitor(ctx context.Context, address string) (v varz, h healthz, err error) {
	v.asked = time.Now()
	if err := get(ctx, address+"/varz", &v); err != nil {
		return v, h, err
	}
	v.answered = time.Now()
	h.name = v.Name
	err = get(ctx, address+"/healthz", &h.Health)
	if err == nil && h.Unrecovered() && retry.Sleep(ctx, console.DeletionTime) {
		h.Health = console.Health{}
		err = get(ctx, address+"/healthz", &h.Health)
	}
	return v, h, err
}

// get decodes an answer over HTTP, of any status.
func get(ctx context.Context, address string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, once)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}}
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(answer); err != nil {
		return fmt.Errorf("the answer with status %d: %w", resp.StatusCode, err)
	}
	return nil
}

func (e *examination) checkSettings(v varz) {
	of := "server " + v.Name
	e.checkVersion(of, v.Version)
	e.checkPayload(of, v.MaxPayload)
	e.checkClock(of, v.Now, v.asked, v.answered)
	js := v.JetStream.Config
	if js == nil {
		e.add("server.jetstream", Error, of, restart("its configuration has a block jetstream, as deploy/nats/single.conf"), "JetStream is off")
		return
	}
	every := cmp.Or(js.SyncInterval, 2*time.Minute) // a server takes 0 as the default
	switch {
	case js.SyncAlways:
	case v.Cluster.Name != "":
		e.add("server.sync", Warning, of, restart("sync_interval is always in its block jetstream"),
			"sync_interval is %s in a cluster: a power cut of all servers loses as much; always costs little", every)
	case every > maxSync:
		e.add("server.sync", Warning, of, restart("sync_interval is 1s in its block jetstream"),
			"sync_interval is %s: a power cut loses as much", every)
	}
	if s := v.JetStream.Stats; s != nil && js.MaxStore > 0 && float64(s.Store) > fullNoted*float64(js.MaxStore) {
		e.add("server.store", Error, of, restart("its disk and max_file_store are larger"), "%.0f %% of max_file_store are used",
			100*float64(s.Store)/float64(js.MaxStore))
	}
}

// checkClock compares the time in an answer with this machine's.
func (e *examination) checkClock(of string, at, asked, answered time.Time) {
	drift := max(asked.Sub(at), at.Sub(answered))
	if !at.IsZero() && drift > maxDrift {
		e.add("clock.local", Warning, of, "chronyc makestep # or timedatectl set-ntp true, on both machines",
			"its clock and that of this machine differ by %s", drift.Round(time.Second))
	}
}

// compareServers compares the settings that should be equal on all servers.
func (e *examination) compareServers(all []varz) {
	for i, v := range all {
		if i == 0 {
			continue
		}
		first := all[0]
		of := fmt.Sprintf("servers %s, %s", first.Name, v.Name)
		if v.Version != first.Version {
			e.add("server.versions", Warning, of, "go install github.com/nats-io/nats-server/v2@v2.15.2 # and restart them",
				"they are of versions %s and %s", first.Version, v.Version)
		}
		drift := max(v.Now.Sub(first.Now), first.Now.Sub(v.Now))
		if apart := max(v.answered.Sub(first.asked), first.answered.Sub(v.asked)); drift > apart+maxDrift {
			e.add("clock.servers", Error, of, "chronyc makestep # or timedatectl set-ntp true, on both machines",
				"their clocks differ by %s: leases end too soon or too late", drift.Round(time.Second))
		}
		if a, b := first.JetStream.Config, v.JetStream.Config; a != nil && b != nil && a.Domain != b.Domain {
			e.add("server.domain", Error, of, restart("the domain in their blocks jetstream is the same"),
				"they have the domains %q and %q", a.Domain, b.Domain)
		}
	}
}
