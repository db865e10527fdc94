// Package tutorial_test types the tutorial: it runs the commands of docs/tutorial.md in an empty folder, and looks for the output
// that the tutorial shows.
package tutorial_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/outbox/outboxtest"
	"github.com/expediter-io/expediter/test/internal/folderproxy"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv("SERVE"); folder != "" {
		panic(serve(folder))
	}
	code := m.Run()
	outboxtest.Stop()
	if code == 0 && goleak.Find() != nil {
		code = 1
	}
	os.Exit(code)
}

// shownAt is the page of which a paragraph says that it shows what stands below.
var shownAt = regexp.MustCompile("`(http://[^`]*)`:$")

// patience bounds each wait; it is no measure.
const patience = 8 * time.Minute

func TestTutorial(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles programs for minutes")
	}
	text := check.Must(os.ReadFile(filepath.Join("..", "..", "docs", "tutorial.md")))(t)
	database := outboxtest.Database(t, testbed.Postgres.Find(t)) // skips first
	bin := t.TempDir()
	ty := &typist{T: t, changed: make(chan struct{}, 1), dir: t.TempDir(), env: append(folderproxy.Env(t, root), "GOBIN="+bin)}
	ty.env = append(ty.env, "PATH="+bin+":"+os.Getenv("PATH"), "DATABASE_URL="+database)
	ty.apart()
	found := fenced.FindAllStringSubmatch(string(text), -1)
	check.Equal(t, 2*len(found), strings.Count(string(text), "\n```"), "fences")
	for _, b := range found {
		before, content := b[1], b[3]
		switch b[2] {
		case "text":
			if found := shownAt.FindStringSubmatch(before); found != nil {
				lines := strings.Split(strings.TrimSpace(content), "\n")
				ty.enter([]string{"until curl --fail -s " + found[1] + " | sed 's/<[^>]*>//g' | tee page | grep -q '" + lines[len(lines)-1] +
					"'; do :; done; cat page"}, false)
			}
			ty.wantAll(content)
		case "go":
			name := strings.TrimSuffix(strings.TrimPrefix(before, "<!-- test/tutorial/testdata/"), ".go -->")
			check.OK(t, os.WriteFile(filepath.Join(ty.dir, name, "main.go"), []byte(content), 0o600))
		default:
			ty.enter(strings.Split(strings.TrimSpace(content), "\n"), strings.Contains(before, "terminal"))
		}
	}
}

// typist types commands in terminals.
type typist struct {
	*testing.T

	changed chan struct{} // gets a value when a screen shows more
	dir     string
	env     []string
	space   []string // what a command begins with in the network of the typist

	mu      sync.Mutex
	screens []*screen
}

// screen is the text on a terminal. Its fields are guarded by the typist's mutex.
type screen struct {
	of   *typist
	text []byte // that was not asked for yet
}

// Write implements [io.Writer].
func (s *screen) Write(p []byte) (int, error) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.text = append(s.text, p...)
	select {
	case s.of.changed <- struct{}{}:
	default:
	}
	return len(p), nil
}

// netAdmin is the capability CAP_NET_ADMIN.
const netAdmin = 12

// apart has the commands in their own network, where all ports are free. It is that of a process, and gone with this one, however it
// ends. Who is not root makes it in a user namespace.
func (ty *typist) apart() {
	ty.Helper()
	of := exec.CommandContext(context.WithoutCancel(ty.Context()), "sh", "-c", "ip link set lo up && echo up && exec cat")
	of.Env, of.Stderr = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin"), ty.Output()
	of.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		of.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		of.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		of.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		of.SysProcAttr.AmbientCaps = []uintptr{netAdmin}
	}
	in, out := check.Must(of.StdinPipe())(ty), check.Must(of.StdoutPipe())(ty)
	err := of.Start()
	if err == nil {
		ty.Cleanup(func() { _, _ = in.Close(), of.Wait() }) // it ends with its input
		_, err = io.ReadFull(out, make([]byte, len("up\n")))
	}
	if err != nil {
		testbed.Refusedf(ty, "no network can be made where the ports of the pages are free: %v", err)
	}
	ty.space = []string{"nsenter", "--preserve-credentials", "--target", strconv.Itoa(of.Process.Pid), "--net"}
	if os.Geteuid() != 0 {
		ty.space = append(ty.space, "--user")
	}
}

// exits is the comment of a command that fails.
var exits = regexp.MustCompile(`# exit code ([0-9]+)`)

// enter runs one command after the other, and waits for each but the last one of a separate terminal.
func (ty *typist) enter(lines []string, stays bool) {
	shown := &screen{of: ty}
	ty.mu.Lock()
	ty.screens = append(ty.screens, shown)
	ty.mu.Unlock()
	for i, line := range lines {
		args := []string{"bash", "-c", line}
		if !strings.HasPrefix(line, "go mod") && !strings.HasPrefix(line, "go install") { // these may need the network
			args = append(slices.Clip(ty.space), args...)
		}
		ctx, cancel := context.WithCancel(ty.Context())
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = ty.dir, ty.env, shown, shown
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		check.OK(ty, cmd.Start())
		if stays && i == len(lines)-1 {
			ty.Cleanup(func() {
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
				_ = cmd.Wait()                                      // it was killed
				cancel()
			})
			return
		}
		impatience := time.AfterFunc(patience, cancel)
		err, want := cmd.Wait(), "0"
		impatience.Stop()
		cancel()
		if found := exits.FindStringSubmatch(line); found != nil {
			want = found[1]
		}
		check.Require(ty, strconv.Itoa(cmd.ProcessState.ExitCode()) == want, "%s: %v, want the exit code %s\n%s", line, err, want, ty.all())
	}
}

// wantAll waits until each line is shown by a terminal, since it was last called.
func (ty *typist) wantAll(content string) {
	ty.want(content)
	ty.mu.Lock()
	defer ty.mu.Unlock()
	for _, s := range ty.screens {
		s.text = nil
	}
}

// want waits until each line is shown by a terminal.
func (ty *typist) want(content string) {
	enough := time.After(patience)
	for {
		shown, missing := ty.all(), ""
		for line := range strings.Lines(content) {
			if line = strings.TrimSpace(line); !strings.Contains(shown, line) {
				missing = line
			}
		}
		if missing == "" {
			return
		}
		select {
		case <-ty.changed:
		case <-enough:
			ty.Fatalf("no terminal shows %q:\n%s", missing, shown)
		}
	}
}

// all returns the terminals' texts since the last wait.
func (ty *typist) all() string {
	ty.mu.Lock()
	defer ty.mu.Unlock()
	var all []byte
	for _, s := range ty.screens {
		all = append(all, s.text...)
	}
	return string(all)
}

// root is the checkout.
const root = "../.."

// elsewhere has the commands that are not run here, each as a page and its beginning, with the test that runs it, or why none
// does.
var elsewhere = map[string]string{
	`README.md: go run ./cmd/expediter demo`:                          "the step demo of CI",
	`README.md: go test work`:                                         "the step test of CI",
	`docs/\w+.md: go (-C \S+ )?test `:                                 "the step test of CI",
	`docs/backup.md: `:                                                "TestTheCommandsOfTheBackupPage",
	`docs/(benchmarks|console|scale).md: go -C bench run `:            "measures for minutes",
	`docs/clients.md: cd clients/typescript `:                         "the step client of CI",
	`docs/clients.md: <script type`:                                   "TestInboxElementForEverybody",
	`docs/clients.md: ("use client"|<script setup>)`:                  "the step client of CI",
	`docs/console.md: expediter console --accounts `:                  "TestSeveralAccounts",
	`docs/doctor.md: (set -a|expediter doctor --as)`:                  "TestUsers, with the accounts of deploy/nats",
	`docs/operate.md: nats kv del `:                                   "TestAServiceThatIsGone, with the accounts of deploy/nats",
	`docs/enricher.md: nats `:                                         "the command line of NATS is not installed",
	`docs/install.md: (tar|cd|\./expediter|GOWORK=off go) `:           "the step install of CI",
	`docs/install.md: (goreleaser|docker buildx|FROM) `:               "needs GoReleaser, or an engine and a registry",
	`docs/install.md: (go install|\./prepare|docker|curl) `:           "TestImageRunsAsComposeSays, without an engine",
	`docs/install.md: (kubectl|for|helm) `:                            "needs a cluster of Kubernetes",
	`docs/jobs.md: expediter jobs `:                                   "the script jobs.txtar of the command, on its own stream",
	`docs/modules.md: go (get|install) `:                              "TestModulesFromOutside",
	`docs/modules.md: (\./run release|tools/serverversion) `:          "makes tags; other servers",
	`docs/notifier.md: go run ./cmd/expediter templates send `:        "needs a mail server",
	`docs/provider.md: (go run github\S+nats-server|ENRICHER_)`:       "needs the ports of expediter up",
	`docs/provider.md: expediter users import `:                       "examples of the contract, which no command reads",
	`docs/operate.md: go run ./(services/|cmd/expediter apply --acc)`: "TestPage, with accounts",
}

// stays are commands that go on, and the text that they print when others may count on them.
var stays = map[string]string{
	`expediter up$`:                                "Stop with Ctrl-C.",
	`examples/provider `:                           "Listening on",
	`expediter console +#`:                         "Console: http://127.0.0.1:8010/",
	`expediter relay --database \S+( --migrate)?$`: "Publishing event_outbox",
	`expediter lock .* sleep 20'$`:                 "alone with token",
	`expediter lock report.daily -- echo`:          "", // waits for the one before
	`^SERVE=`:                                      "Serving",
}

// readers run the blocks of other languages.
var readers = map[string]string{
	"csv":  "cat > people.csv <<'END'\n%sEND\nexpediter users import people.csv --type CUSTOMER",
	"json": "expediter users import - <<'END'\n%sEND",
	"sql":  "psql -v ON_ERROR_STOP=1 <<'END'\n%sEND",
	"yaml": "cat cmd/expediter/internal/pipeline/rules.yaml - > rules.yaml <<'END'\n%sEND\nexpediter rules check rules.yaml",
}

// pages has the environment and preparations that some pages need in addition to a server, and their output.
var pages = map[string]struct{ env, before, shows string }{
	"README.md":        {shows: "https://wolt.com/\n1 tablespoon \nevt-001\nalone"},
	"docs/enricher.md": {shows: "https://wolt.com/"},
	"docs/importer.md": {
		env:    "IMPORTER_ALLOW_NETWORKS=127.0.0.0/8",
		before: "SERVE=cmd/expediter/internal/pipeline/videos " + os.Args[0], shows: "olive oil\n[28.00s]",
	},
	"docs/lock.md": {
		before: `psql -c "CREATE TABLE report AS SELECT 'daily' AS name, '' AS body, 0::bigint AS epoch, 0::bigint AS revision"`,
		shows:  "next\nUPDATE 1",
	},
	"docs/notifier.md": {shows: "3 delivered\nevt-001"},
	"docs/outbox.md":   {shows: "0"},
	"docs/people.md":   {env: "NOTIFIER_WEBHOOK_SECRETS=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
}

// ofTest replaces addresses that only the pages' reader has.
var ofTest = strings.NewReplacer("postgres://127.0.0.1/app", `"$APP_DATABASE"`, "https://example.org/cake.html", "http://127.0.0.1:8099/bread.html")

// prelude has commands fail that would go on, and uses programs that are already built.
const prelude = `curl() { command curl --fail-with-body "$@"; }
go() {
	case "$1 $2" in
	"run ./cmd/expediter") expediter "${@:3}" ;;
	"build -o") ln -s "$(type -P expediter)" "$3" ;;
	*) command go "$@" ;;
	esac
}
`

// fenced is a block of a page: the paragraph before it, its language and its lines.
var fenced = regexp.MustCompile("(?s)([^\n]*)\n\n?```([a-z]*)\n(.*?)```\n")

var quoted = regexp.MustCompile(`^<!-- \S+\.(go|mjs|ts) -->$`)

// Every block of README and of the pages is run as it stands, on the services of "expediter up", or is quoted from a file, or
// runs elsewhere. A command fails unless its exit code is 0, or the one in its comment.
func TestBlocksOfPages(t *testing.T) {
	t.Parallel()
	testbed.Shell.Find(t)
	programs := testbed.Postgres.Find(t)
	bin := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s", "-o", bin, root+"/cmd/expediter").CombinedOutput()
	check.Require(t, err == nil, "%v\n%s", err, out)
	check.OK(t, os.WriteFile(filepath.Join(bin, "prelude"), []byte(prelude), 0o600))
	settings := slices.Clip(append(os.Environ(), testbed.GoSettings(t)...))
	used := map[string]bool{}
	files := check.Must(filepath.Glob(root + "/docs/*.md"))(t)
	for _, file := range append(files, root+"/README.md", root+"/CONTRIBUTING.md") {
		name := strings.TrimPrefix(file, root+"/")
		commands := commandsOf(t, name, used)
		if name == "docs/tutorial.md" || commands == nil { // TestTutorial types the tutorial
			continue
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			database := outboxtest.Database(t, programs)
			ty := &typist{T: t, changed: make(chan struct{}, 1), dir: checkout(t), env: append(settings, "APP_DATABASE="+database,
				"PATH="+bin+":"+os.Getenv("PATH"), "BASH_ENV="+filepath.Join(bin, "prelude"), "HOME="+t.TempDir(), pages[name].env)}
			for setting := range strings.FieldsSeq(database) {
				key, value, _ := strings.Cut(setting, "=")
				ty.env = append(ty.env, map[string]string{"host": "PGHOST=", "user": "PGUSER=", "dbname": "PGDATABASE="}[key]+value)
			}
			ty.apart()
			if !slices.ContainsFunc(commands, regexp.MustCompile("expediter up$").MatchString) {
				commands = append([]string{"expediter up"}, commands...)
			}
			if before := pages[name].before; before != "" {
				commands = append([]string{before}, commands...)
			}
			for _, command := range commands {
				ty.follow(ofTest.Replace(command))
			}
			ty.wantAll(pages[name].shows)
		})
	}
	for pattern := range elsewhere {
		check.That(t, used[pattern], "nothing in the pages is %q", pattern)
	}
}

// follow enters a command, and returns when it has ended, or when others may count on one that goes on.
func (ty *typist) follow(command string) {
	for pattern, sign := range stays {
		if regexp.MustCompile(pattern).MatchString(command) {
			ty.enter([]string{command}, true)
			ty.want(sign)
			return
		}
	}
	ty.enter([]string{command}, false)
}

// commandsOf returns the commands that a page has run here.
func commandsOf(t *testing.T, page string, used map[string]bool) (here []string) {
	t.Helper()
	text := check.Must(os.ReadFile(filepath.Join(root, page)))(t)
	check.Equal(t, 2*len(fenced.FindAllString(string(text), -1)), strings.Count("\n"+string(text), "\n```"), "fences of "+page)
	for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
		before, language, lines := block[1], block[2], block[3]
		all := []string{lines}
		switch {
		case language == "text", quoted.MatchString(before): // TestQuotedProgramsAreThoseOfTheFiles
			continue
		case language == "sh":
			all = split(t, lines)
		case readers[language] != "":
			all = []string{fmt.Sprintf(readers[language], lines)}
		case !slices.Contains([]string{"dockerfile", "html", "jsx", "vue"}, language): // for programs that are not here
			t.Errorf("%s: a block of the language %q is run by nothing:\n%s", page, language, lines)
			continue
		}
		for _, command := range all {
			if why := isElsewhere(page+": "+command+" ", used); why == "" {
				here = append(here, command)
			} else {
				isDeclared(t, command, why)
			}
		}
	}
	return here
}

// isElsewhere returns the test that runs a command elsewhere, or why nothing does, and "" for one that is run here.
func isElsewhere(command string, used map[string]bool) (why string) {
	for pattern, why := range elsewhere {
		if regexp.MustCompile("^" + pattern).MatchString(command) {
			used[pattern] = true
			return why
		}
	}
	return ""
}

var (
	testName = regexp.MustCompile(`Test[A-Z]\w+`)
	goTest   = regexp.MustCompile(`go (?:-C (\S+) )?test.* -(?:run|bench) '?(\w[\w|]*)`)
)

// isDeclared looks for the tests that a command runs, and for those that run it.
func isDeclared(t *testing.T, command, why string) {
	t.Helper()
	names := testName.FindAllString(why, -1)
	folder := root
	if found := goTest.FindStringSubmatch(command); found != nil {
		folder, names = filepath.Join(root, found[1]), append(names, found[2])
	}
	for _, name := range names {
		err := exec.CommandContext(t.Context(), "grep", "-rqE", "--include=*_test.go", `^func [A-Za-z]*(`+name+`)`, folder).Run()
		check.That(t, err == nil, "%s: no test %s is below %s", command, name, folder)
	}
}

// split returns the commands of a block, each with all its lines.
func split(t *testing.T, block string) (commands []string) {
	t.Helper()
	command := ""
	for line := range strings.Lines(block) {
		command += line
		if !strings.HasSuffix(line, "\\\n") && exec.CommandContext(t.Context(), "bash", "-n", "-c", command).Run() == nil {
			commands, command = append(commands, strings.TrimSuffix(command, "\n")), ""
		}
	}
	check.Require(t, command == "", "a command has no end: %s", command)
	return commands
}

// checkout returns a copy of the checkout that may be written to.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	from := check.Must(filepath.Abs(root))(t)
	entries := check.Must(os.ReadDir(from))(t)
	for _, entry := range entries {
		check.OK(t, os.Symlink(filepath.Join(from, entry.Name()), filepath.Join(dir, entry.Name())))
	}
	return dir
}

// serve serves the files of a folder, in the network of a typist, whose process this is.
func serve(folder string) error {
	l, err := net.Listen("tcp", "127.0.0.1:8099")
	if err == nil {
		_, err = os.Stdout.WriteString("Serving\n")
	}
	if err == nil {
		err = (&http.Server{Handler: http.FileServer(http.Dir(folder)), ReadHeaderTimeout: patience}).Serve(l)
	}
	return err
}
