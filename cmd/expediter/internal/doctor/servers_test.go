package doctor_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/cmd/expediter/internal/doctor"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// secured makes a server that has a certificate, and is its own authority in the environment.
func secured(left time.Duration, change ...func(*x509.Certificate)) func(*site) {
	return func(s *site) {
		cert, key := pair(s.T, time.Now().Add(left), change...)
		identity := check.Must(tls.X509KeyPair([]byte(cert), []byte(key)))(s.T)
		serve(func(o *server.Options) {
			o.TLS, o.TLSTimeout = true, 10
			o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{identity}, MinVersion: tls.VersionTLS12}
		})(s)
		s.env["NATS_CA"] = filepath.Join(s.TempDir(), "ca.pem")
		ca, _ := pair(s.T, time.Now().Add(365*24*time.Hour))
		check.OK(s.T, os.WriteFile(s.env["NATS_CA"], []byte(cert+ca), 0o600))
	}
}

// serve makes a server with other settings.
func serve(change func(*server.Options)) func(*site) {
	return func(s *site) {
		srv := natstest.Server(s.T, listening, func(c *natsrun.Config) { natsrun.ChangeOptions(c, change) })
		s.env["NATS_URL"] = srv.URL()
	}
}

// through makes doctor connect to an address with a connection that is wrapped.
func through(address string, wrap func(net.Conn) net.Conn, more ...nats.Option) func(*site) {
	return func(s *site) {
		_, at, _ := strings.Cut(s.env["NATS_URL"], "://")
		s.env["NATS_URL"] = address
		s.connect = func(options ...nats.Option) (*nats.Conn, error) {
			return nats.Connect(address, append(append(options, more...), nats.SetCustomDialer(dialer{at, wrap}))...)
		}
	}
}

type dialer struct {
	address string
	wrap    func(net.Conn) net.Conn
}

// Dial implements nats.CustomDialer.
func (d dialer) Dial(string, string) (net.Conn, error) {
	conn, err := net.Dial("tcp", d.address)
	if err != nil || d.wrap == nil {
		return conn, err
	}
	return d.wrap(conn), nil
}

// old is a connection in which the version of the server is changed to an older one.
type old struct{ net.Conn }

func (c old) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	copy(b, bytes.Replace(b[:n], []byte(`"version":"`+server.VERSION+`"`), []byte(`"version":"2.14.9"`), 1))
	return n, err
}

// far is a server at the end of a long distance.
type far struct{ *natsrun.Server }

func (f far) InProcessConn() (net.Conn, error) {
	conn, err := f.Server.InProcessConn()
	return slow{conn}, err
}

// slow is a connection on which the answers to pings take their time, which is fake.
type slow struct{ net.Conn }

func (c slow) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("PONG\r\n")) {
		natstest.Pass(300 * time.Millisecond)
	}
	return n, err
}

func TestAFarServer(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		report := doctor.Run(t.Context(), doctor.Config{
			Connect: func(more ...nats.Option) (*nats.Conn, error) {
				return nats.Connect("", append(more, nats.InProcessServer(far{srv}))...)
			},
			Server: nats.DefaultURL, ReadOnly: true,
		})
		if !slices.ContainsFunc(report.Findings, func(f doctor.Finding) bool { return f.ID == "server.rtt" && f.Severity == doctor.Warning }) {
			t.Errorf("it finds %+v", report.Findings)
		}
	})
}

// after returns a mistake on top of another one.
func after(first, then func(*site)) func(*site) { return func(s *site) { first(s); then(s) } }

// gone ends a test of a server that is no more.
func gone(s *site) { s.env, s.connect, s.args = s.before, nil, nil }

const away = "nats://10.9.9.9:4222"

var connectionMistakes = []mistake{
	{name: "nothing listens", id: "connect.refused", make: set("NATS_URL=nats://" + closed), undo: gone},
	{name: "the server is silent", id: "connect.refused", make: func(s *site) { s.env["NATS_URL"] = "nats://" + greeter(s.T, "") }, undo: gone},
	{name: "a wrong password", id: "connect.auth", undo: gone, make: after(
		serve(func(o *server.Options) { o.Username, o.Password = "u", "p" }),
		func(s *site) { s.env["NATS_URL"] = strings.Replace(s.env["NATS_URL"], "//", "//u:confidential@", 1) })},
	{name: "an unknown authority", id: "tls.authority", make: after(secured(365*24*time.Hour), set("NATS_CA")), undo: gone},
	{name: "the server's certificate has ended", id: "tls.expired", also: []string{"file.expired"}, make: secured(-time.Hour), undo: gone},
	{name: "the server's certificate ends soon", id: "tls.expires", also: []string{"file.expires"}, warns: true, make: after(
		secured(time.Hour), func(s *site) { s.run(0, "apply") }), undo: gone},
	{name: "the server has the certificate of an authority", id: "tls.leaf", make: secured(365*24*time.Hour, authority), undo: gone},
	{name: "a certificate of another name", id: "tls.name", undo: gone, make: after(secured(365*24*time.Hour), func(s *site) {
		through("tls://nats.example.com:4222", nil, nats.RootCAs(s.env["NATS_CA"]))(s)
	})},
	{name: "no TLS", id: "tls.plain", also: []string{"server.open"}, make: through(away, nil), undo: gone},
	{name: "no TLS, but users", id: "tls.plain", undo: gone, make: after(
		serve(func(o *server.Options) { o.Username, o.Password = "u", "confidential" }), func(s *site) {
			address := s.env["NATS_URL"]
			s.env["NATS_URL"] = strings.Replace(address, "//", "//u:confidential@", 1)
			s.run(0, "apply")
			s.env["NATS_URL"] = address
			through(away, nil, nats.UserInfo("u", "confidential"))(s)
		})},
	{name: "an old server", id: "server.version", make: through("nats://127.0.0.1:4222", func(c net.Conn) net.Conn { return old{c} }), undo: gone},
	{name: "small messages only", id: "server.max_payload", undo: gone, make: after(
		serve(func(o *server.Options) { o.MaxPayload = 64 << 10 }), func(s *site) { s.run(0, "apply") })},
	{name: "a disk that takes nothing", id: "store.stalled", make: stalled, undo: gone},
	{name: "no JetStream", id: "account.jetstream", make: serve(func(o *server.Options) { o.JetStream = false }), undo: gone},
}

func TestMistakesOfConnections(t *testing.T) {
	t.Parallel()
	checkAll(t, connectionMistakes)
}

// monitored returns the mistake of servers that say something else of themselves: two of a cluster, with the changes, and with the answers
// of their health checks, of which the last is repeated.
func monitored(first, second func(varz, jetstream map[string]any), health ...string) func(*site) {
	return func(s *site) {
		for i, change := range []func(varz, jetstream map[string]any){first, second} {
			js := map[string]any{"max_storage": 1 << 30, "store_dir": "/nowhere", "sync_always": true}
			varz := map[string]any{
				"server_name": "n" + string(rune('1'+i)), "version": server.VERSION, "max_payload": 1 << 20, "cluster": map[string]any{"name": "c"},
				"jetstream": map[string]any{"config": js, "stats": map[string]any{"storage": 1 << 20}},
			}
			asked := -1
			monitor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/healthz" {
					asked++
					w.Write([]byte(health[min(asked, len(health)-1)]))
					return
				}
				varz["now"] = time.Now()
				if change != nil {
					change(varz, js)
				}
				json.NewEncoder(w).Encode(varz) //nolint:errcheck // as above
			}))
			s.Cleanup(monitor.Close)
			s.args = append(s.args, "--monitor", monitor.URL)
		}
	}
}

// settings returns monitored with a change of the second server's.
func settings(change func(varz, jetstream map[string]any)) func(*site) {
	return monitored(nil, change, `{"status":"ok"}`)
}

func nowhere(s *site) { s.args = nil }

const unrecovered = `{"status":"unavailable","error":"JetStream stream 'A > B' could not be recovered"}`

var serverMistakes = []mistake{
	{name: "no monitoring", id: "monitor.unreachable", warns: true, make: func(s *site) { s.args = []string{"--monitor", "http://" + closed} }, undo: nowhere},
	{
		name: "one server is old", id: "server.version", also: []string{"server.versions"}, undo: nowhere,
		make: settings(func(v, _ map[string]any) { v["version"] = "2.14.0" }),
	},
	{name: "two versions", id: "server.versions", warns: true, undo: nowhere, make: settings(func(v, _ map[string]any) { v["version"] = "2.99.0" })},
	{
		name: "one server takes small messages only", id: "server.max_payload", undo: nowhere,
		make: settings(func(v, _ map[string]any) { v["max_payload"] = 1000 }),
	},
	{
		name: "a clock is behind", id: "clock.servers", also: []string{"clock.local"}, undo: nowhere,
		make: settings(func(v, _ map[string]any) { v["now"] = time.Now().Add(-time.Hour) }),
	},
	{name: "this machine's clock is ahead", id: "clock.local", warns: true, undo: nowhere, make: monitored(
		func(v, _ map[string]any) { v["now"] = time.Now().Add(-time.Hour) }, func(v, _ map[string]any) { v["now"] = time.Now().Add(-time.Hour) },
		`{"status":"ok"}`)},
	{name: "the disk is written later", id: "server.sync", warns: true, undo: nowhere, make: settings(func(_, js map[string]any) {
		js["sync_always"], js["sync_interval"] = false, time.Second
	})},
	{name: "the disk of one server is written much later", id: "server.sync", warns: true, undo: nowhere, make: settings(func(v, js map[string]any) {
		delete(v, "cluster")
		js["sync_always"], js["sync_interval"] = false, 2*time.Minute
	})},
	{name: "the disk of one server is written at 0, which is 2 minutes", id: "server.sync", warns: true, undo: nowhere, make: settings(func(v, js map[string]any) {
		delete(v, "cluster")
		js["sync_always"], js["sync_interval"] = false, 0*time.Second
	})},
	{name: "JetStream is off", id: "server.jetstream", undo: nowhere, make: settings(func(v, _ map[string]any) { delete(v, "jetstream") })},
	{name: "two domains", id: "server.domain", undo: nowhere, make: settings(func(_, js map[string]any) { js["domain"] = "leaf" })},
	{name: "a full store", id: "server.store", undo: nowhere, make: settings(func(v, js map[string]any) {
		v["jetstream"] = map[string]any{"config": js, "stats": map[string]any{"storage": 1000 << 20}}
	})},
	{
		name: "a server misses a stream", id: "server.unhealthy", undo: nowhere,
		make: monitored(nil, nil, unrecovered),
	},
	{
		name: "a server could not write", id: "server.disk", undo: nowhere,
		make: monitored(nil, nil, `{"status":"unavailable","error":"JetStream stream 'A > B' write error: no space left on device"}`),
	},
}

func TestMistakesOfServers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	at := *s
	settings(nil)(&at)
	at.healthy()
	at.args = nil
	monitored(nil, nil, unrecovered, `{"status":"ok"}`)(&at) // a stream is being deleted
	at.healthy()
	checkAll(t, serverMistakes)
}
