package install

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
)

// network are the first three bytes of the addresses.
const network = "10.77.0."

// site runs the services of a compose file without an engine: each in a network namespace, on a root folder of its image that is
// read-only, as the user and with the environment, folders and names of the file.
type site struct {
	*testing.T

	dir     string // of a copy of deploy
	hosts   string // the names of all
	project *types.Project
	spaces  string // the prefix of the names of network namespaces
	started map[string]*exec.Cmd
	output  map[string]*bytes.Buffer
}

// probe is the time between two probes of a service.
const probe = 200 * time.Millisecond

// must runs a program, and returns its output.
func must(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr strings.Builder
	if cmd.Stderr == nil {
		cmd.Stderr = &stderr
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, out, &stderr)
	}
	return string(out)
}

// build makes the root folder of the image by the command of the Dockerfile.
func build(t *testing.T, root string) {
	t.Helper()
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?s)\nRUN (.*?)\n\n`).FindStringSubmatch(string(text))[1]
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.ReplaceAll(command, "/out/", root+"/"))
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "GOWORK=")
	must(t, cmd)
}

// newSite prepares a site as docs/install.md says, and a network for it.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, spaces: fmt.Sprintf("x%d-", os.Getpid()), started: map[string]*exec.Cmd{}, output: map[string]*bytes.Buffer{}}
	var err error
	if s.dir, err = os.MkdirTemp("", "site"); err == nil { //nolint:usetesting // other users enter it
		err = os.Chmod(s.dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(s.dir) })
	build(t, s.root("expediter/expediter"))
	for _, image := range []string{"nats", "postgres"} { // roots of this machine's programs
		must(t, exec.Command("bash", "-ec", `cd "$0" && mkdir -p etc opt proc tmp usr && ln -s usr/bin usr/lib usr/lib64 .
			echo "me:x:1234:1234::/:" >etc/passwd`, must(t, exec.Command("bash", "-c", `mkdir "$0" && printf %s "$0"`, s.root(image)))))
	}
	servers := exec.Command("go", "build", "-trimpath", "-o", s.root("nats")+"/opt/", "github.com/nats-io/nats-server/v2", "github.com/nats-io/nkeys/nk")
	servers.Dir, servers.Env = "../../test", append(os.Environ(), "GOWORK=", "CGO_ENABLED=0")
	must(t, servers)
	must(t, exec.Command("bash", "-ec", `cd ../..; cp -R deploy "$0" && chown -R 1234:1234 "$0"/deploy`, s.dir))
	prepare := exec.Command(s.dir+"/deploy/compose/prepare", "v0.0.0")
	prepare.Env = []string{"PATH=" + s.root("nats") + "/opt:" + s.root("expediter/expediter") + "/usr/local/bin:" + os.Getenv("PATH")}
	prepare.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1234, Gid: 1234}}
	must(t, prepare)
	s.project = load(t, s.dir+"/deploy/compose")
	s.connect()
	return s
}

func (s *site) root(image string) string {
	return filepath.Join(s.dir, "root-"+strings.ReplaceAll(strings.Split(image, ":")[0], "/", "-"))
}

// connect makes a network namespace for each service, and a bridge between them.
func (s *site) connect() {
	s.Helper()
	hub := s.spaces + "hub"
	script := fmt.Sprintf("ip netns add %[1]s; ip -n %[1]s link add br0 type bridge; ip -n %[1]s addr add %[2]s1/24 dev br0; ip -n %[1]s link set br0 up\n",
		hub, network)
	remove := "ip netns del " + hub + "\n"
	s.hosts = "127.0.0.1 localhost\n"
	for i, name := range append(s.project.ServiceNames(), "client") {
		script += fmt.Sprintf(`ip netns add %[1]s; ip -n %[2]s link add v%[3]d type veth peer name eth0 netns %[1]s; ip -n %[2]s link set v%[3]d master br0 up
			ip -n %[1]s addr add %[4]s%[3]d/24 dev eth0; ip -n %[1]s link set eth0 up; ip -n %[1]s link set lo up`+"\n", s.spaces+name, hub, i+10, network)
		remove += "ip netns del " + s.spaces + name + "\n"
		s.hosts += fmt.Sprintf("%s%d %s\n", network, i+10, name)
	}
	s.Cleanup(func() { exec.Command("bash", "-c", remove).Run() }) //nolint:errcheck // some may not exist
	must(s.T, exec.Command("bash", "-ec", script))
	if err := os.WriteFile(filepath.Join(s.dir, "hosts"), []byte(s.hosts), 0o644); err != nil {
		s.Fatal(err)
	}
}

// container returns a command that runs a program as a service of the file does.
func (s *site) container(service types.ServiceConfig, program ...string) *exec.Cmd {
	s.Helper()
	root := s.root(service.Image)
	script := fmt.Sprintf("R=%s\nmount --bind $R $R\nmkdir -p $R/dev $R/etc $R/proc\nmount --rbind /dev $R/dev\nmount -t tmpfs tmpfs $R/dev/shm\ntouch $R/etc/hosts\nmount --bind %s/hosts $R/etc/hosts\n", root, s.dir)
	if !strings.HasPrefix(service.Image, "expediter/") {
		script += "mount --bind /usr $R/usr\nmount -t proc proc $R/proc\n"
	}
	for _, v := range service.Volumes {
		script += fmt.Sprintf("mkdir -p $R%[2]s\nmount --bind %[1]s $R%[2]s\n", v.Source, v.Target)
		if v.ReadOnly {
			script += fmt.Sprintf("mount -o remount,bind,ro $R%s\n", v.Target)
		}
	}
	for _, folder := range service.Tmpfs {
		target, options, _ := strings.Cut(folder, ":")
		script += fmt.Sprintf("mkdir -p $R%[1]s\nmount -t tmpfs -o size=64m,%[2]s tmpfs $R%[1]s\n", target, options)
	}
	if service.ReadOnly {
		script += "mount -o remount,bind,ro $R\n"
	}
	script += fmt.Sprintf(`exec /usr/bin/setpriv --no-new-privs /usr/sbin/chroot --userspec=%s --groups= $R "$@"`, service.User)
	args := []string{
		"netns", "exec", s.spaces + service.Name, "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
		"/bin/bash", "-ec", script, "bash",
	}
	cmd := exec.CommandContext(context.WithoutCancel(s.Context()), "/usr/sbin/ip", append(args, program...)...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/opt", "HOSTNAME=" + service.Hostname}
	for name, value := range service.Environment {
		cmd.Env = append(cmd.Env, name+"="+*value)
	}
	return cmd
}

// start starts a service, and returns when its health check says so.
func (s *site) start(name string, program ...string) {
	s.Helper()
	service := s.project.Services[name]
	if len(program) == 0 {
		program = append(slices.Clone(service.Entrypoint), service.Command...)
	}
	cmd, out := s.container(service, program...), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.started[name], s.output[name] = cmd, out
	s.Cleanup(func() { s.said(name) })
}

// healthy waits until the health checks of services say so.
func (s *site) healthy(names ...string) {
	s.Helper()
	for _, name := range names {
		service := s.project.Services[name]
		for until := time.Now().Add(time.Minute); ; <-time.After(probe) {
			out, err := s.container(service, service.HealthCheck.Test[1:]...).CombinedOutput()
			if err == nil {
				break
			}
			if time.Now().After(until) {
				s.Fatalf("%s is not healthy: %v: %s\nit says:\n%s", name, err, out, s.said(name))
			}
		}
	}
}

// said ends a service, and returns its output.
func (s *site) said(name string) string {
	cmd := s.started[name]
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with its children; it may have ended
	cmd.Wait()
	return s.output[name].String()
}

// client runs the command as a source system would.
func (s *site) client(input string, args ...string) string {
	s.Helper()
	service := s.project.Services["relay"]
	service.Name = "client"
	cmd := s.container(service, append([]string{"expediter"}, args...)...)
	cmd.Env = append(cmd.Env, "SSL_CERT_FILE=/run/secrets/ca.pem")
	cmd.Stdin = strings.NewReader(input)
	return must(s.T, cmd)
}

// The settings of compose.yaml are enough for the images: without root, on read-only folders, with the servers' configuration, TLS and
// users, each service gets ready, a place is looked up, an event of the outbox reaches its user, and the console shows its outcome.
func TestImageRunsAsComposeSays(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes network namespaces")
	}
	s := newSite(t)
	for _, name := range []string{"n1", "n2", "n3"} {
		s.start(name)
	}
	s.start("postgres", "bash", "-ec", `b=$(echo /usr/lib/postgresql/*/bin)
		$b/initdb -D $PGDATA -U $POSTGRES_USER --pwfile=$POSTGRES_PASSWORD_FILE -A scram-sha-256 -E UTF8
		echo "host all all all scram-sha-256" >>$PGDATA/pg_hba.conf
		echo "create database $POSTGRES_DB" | $b/postgres --single -D $PGDATA postgres
		exec $b/postgres -D $PGDATA -c listen_addresses=* -k /var/run/postgresql`)
	s.healthy("n1", "n2", "n3", "postgres")
	for _, name := range []string{"apply-enricher", "apply-importer", "apply-notifier", "apply-operator"} {
		service := s.project.Services[name]
		must(t, s.container(service, service.Command...))
	}
	for _, name := range []string{"console", "enricher", "importer", "notifier", "relay"} {
		s.start(name)
	}
	s.healthy("console", "enricher", "importer", "notifier", "relay")

	said := s.client(`{"placeId":"p1","name":"Alma Levana","address":"Rothschild Blvd 71, Tel Aviv"}`,
		"enrich", "--url", "https://enricher:8080", "--key-file", "/run/secrets/shop.key", "-")
	if !strings.Contains(said, "https://example.org/alma") {
		t.Errorf("the enricher answers %s", said)
	}
	said = s.client("Whisk 3 eggs with a pinch of salt. Melt 1 tablespoon of butter in a hot pan. Pour in the eggs and stir for 2 minutes.",
		"import", "--follow", "--url", "https://importer:8005", "--key-file", "/run/secrets/shop.key", "-")
	if !strings.Contains(said, "butter") {
		t.Errorf("the importer answers %s", said)
	}
	s.event()
	page := s.fetch("console:8010", "admin/operator.key", "/notifications?event=evt-001")
	if !strings.Contains(page, "planned 2 notifications for 1 recipient") {
		t.Errorf("the console says of the event %s", page)
	}
	if log := s.said("console"); strings.Contains(log, "level=") {
		t.Errorf("the console complains: %s", log)
	}
}

// fetch reads a page of a service with the key of a file of the site.
func (s *site) fetch(host, file, path string) string {
	s.Helper()
	dir := filepath.Join(s.dir, "deploy", "compose", "site")
	key, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		s.Fatal(err)
	}
	address := ""
	for line := range strings.Lines(s.hosts) {
		if fields := strings.Fields(line); strings.HasPrefix(host, fields[1]+":") {
			address = host + ":" + fields[0]
		}
	}
	return must(s.T, exec.Command("ip", "netns", "exec", s.spaces+"client", "curl", "-sSf", "--resolve", address, "--cacert", dir+"/publisher/ca.pem",
		"-H", "Authorization: Bearer "+strings.TrimSpace(string(key)), "https://"+host+path))
}

// event commits an event in Postgres, and looks for it in the inbox of its user.
func (s *site) event() {
	s.Helper()
	service := s.project.Services["postgres"]
	insert := s.container(service, "bash", "-ec", `PGPASSWORD=$(cat $POSTGRES_PASSWORD_FILE) psql -qh postgres -U app app`)
	insert.Stdin = strings.NewReader(`INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, user_id, payload)
		VALUES ('evt-001', 'RESERVATION_REQUESTED', 'RESTAURANT', '5', 'carla', '{"guests":4}')`)
	must(s.T, insert)
	inbox := ""
	for until := time.Now().Add(time.Minute); !strings.Contains(inbox, `"event_id":"evt-001"`); <-time.After(probe) {
		if time.Now().After(until) {
			s.Fatalf("the event is not in the inbox: %s\nthe relay says %s", inbox, s.said("relay"))
		}
		inbox = s.fetch("notifier:8006", "publisher/carla.key", "/v1/users/carla/inbox")
	}
}
