package notifier

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// rulesFolder is a folder with rules and templates, and the store of rules that is read from them.
type rulesFolder struct {
	*testing.T
	*rulesStore

	folder string
	log    bytes.Buffer
}

// newRulesFolder reads a store of rules with the channels inapp, pigeon and email.
func newRulesFolder(t *testing.T, files map[string]string) *rulesFolder {
	t.Helper()
	s := &rulesFolder{T: t, folder: t.TempDir()}
	for name, text := range files {
		s.write(name, text)
	}
	cfg := Config{
		BaseConfig:    service.BaseConfig{Logger: slog.New(slog.NewTextHandler(&s.log, nil))},
		Rules:         filepath.Join(s.folder, "rules.yaml"),
		ChannelConfig: ChannelConfig{EmailServer: "mail:25", Templates: filepath.Join(s.folder, "templates")},
	}.withDefaults()
	b := check.Must(openRulesStore(cfg, []string{"inapp", "email", "pigeon"}))(t)
	s.rulesStore = b
	return s
}

// write puts a file in place as editors do: by a new one.
func (s *rulesFolder) write(name, text string) {
	s.Helper()
	file := filepath.Join(s.folder, name)
	check.OK(s, os.MkdirAll(filepath.Dir(file), 0o700))
	check.OK(s, os.WriteFile(file+"~", []byte(text), 0o600))
	check.OK(s, os.Rename(file+"~", file))
}

// inForce are the channels that customers are told X by.
func (s *rulesFolder) inForce() string {
	return strings.Join(s.rules.Load().For("X")["CUSTOMER"].Channels, " ")
}

func ruled(channels, more string) string {
	return "version: 1\nevents:\n  X:\n    CUSTOMER: {scope: user, channels: [" + channels + "]}\n" + more
}

const (
	x     = "templates/X/default."
	other = "templates/other/default."
)

// The contents of the files come into force with the next look, however they were put there; files with mistakes do not, and
// are logged once with all of them, and shown.
func TestRulesAreReadAgainWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRulesFolder(t, map[string]string{"rules.yaml": ruled("inapp", ""), x + "subject": "s", x + "txt": "one"})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			check.ErrorIs(t, s.run(ctx), nil)
		})
		looks := func(n int) {
			time.Sleep(time.Duration(n) * s.every) //nolint:forbidigo // fake
			synctest.Wait()
		}
		want := func(step, channels string, failed, logged int) {
			t.Helper()
			looks(3)
			stats := s.Stats()
			if got := s.inForce(); got != channels || (stats.Failed != "") != (failed != 0) || strings.Count(s.log.String(), "\n") != logged ||
				stats.Version != s.rules.Load().Version() {
				t.Errorf("%s: by %q, want %q; %+v, log:\n%s", step, got, channels, stats, s.log.String())
			}
			check.That(t, strings.Count(stats.Failed, "line ") == max(0, failed) || failed < 0, "%s: %s", step, stats.Failed)
			if failed > 0 && !strings.Contains(s.ready().Error(), stats.Failed) || failed == 0 && s.ready() != nil {
				t.Errorf("%s: ready says %v", step, s.ready())
			}
		}
		want("as it was", "inapp", 0, 0)
		first := s.Stats().LoadedAt
		s.write("rules.yaml", ruled("inapp", ""))
		want("the same in another file", "inapp", 0, 0)
		s.write("rules.yaml", ruled("pigeon", ""))
		want("by a new file", "pigeon", 0, 1)
		check.That(t, s.Stats().LoadedAt.After(first), "it is not said when it was read")
		s.write("rules.yaml", ruled("owl", "  Y: 3\n"))
		want("mistakes", "pigeon", 2, 2)
		s.write("rules.yaml", ruled("owl, bat", "  Y: 3\n"))
		want("other mistakes", "pigeon", 3, 3)
		s.write("rules.yaml", ruled("pigeon", ""))
		want("back to the rules in force", "pigeon", 0, 4)
		check.OK(t, os.Remove(filepath.Join(s.folder, "rules.yaml")))
		want("no file", "pigeon", -1, 5)
		check.Contains(t, s.Stats().Failed, "no such file")
		s.write("rules.yaml", ruled("inapp, email", ""))
		want("a file again", "inapp email", 0, 6)
		cancel()
		running.Wait()
		s.write("rules.yaml", ruled("inapp", ""))
		looks(3)
		check.Equal(t, s.inForce(), "inapp email", "in force after its end")
	})
}

// Kubernetes puts a folder in place by a link to another one, which the files are links into.
func TestRulesAreReadThroughLinks(t *testing.T) {
	t.Parallel()
	s := newRulesFolder(t, map[string]string{
		"old/rules.yaml": ruled("inapp", ""), "new/rules.yaml": ruled("email", ""), "rules.yaml": ruled("inapp", ""),
		"new/templates/X/default.subject": "s", "new/templates/X/default.txt": "t", other + "subject": "s", other + "txt": "t",
	})
	link := func(to, name string) {
		check.OK(t, os.Symlink(to, filepath.Join(s.folder, name+"~")))
		check.OK(t, os.Rename(filepath.Join(s.folder, name+"~"), filepath.Join(s.folder, name)))
	}
	link("old", "..data")
	link("..data/rules.yaml", "rules.yaml")
	s.look(t.Context())
	if s.log.Len() > 0 || s.inForce() != "inapp" {
		t.Errorf("%s %s", s.inForce(), s.log.String())
	}
	link("../..data/templates/X", "templates/X")
	s.look(t.Context())
	link("new", "..data")
	s.look(t.Context())
	check.That(t, s.inForce() == "email" && s.Stats().Failed == "" && s.texts.Has("X"), "%s %s", s.inForce(), s.log.String())
}

// Rules and templates come into force together, and a rule whose text is not there does not.
func TestRulesNeedTheirTexts(t *testing.T) {
	t.Parallel()
	s := newRulesFolder(t, map[string]string{"rules.yaml": ruled("inapp", ""), other + "subject": "s", other + "txt": "one"})
	body := func() string {
		text := check.Must(s.texts.Render(channel.Message{Template: "other"}, "email", ""))(t)
		return text.Text
	}
	s.write("templates/nothing/default.sms.txt", "not for a mail")
	s.write("rules.yaml", ruled("inapp, email", `  Y:
    ADMIN: {channels: [email], template: other}
    CUSTOMER: {channels: [email, inapp], template: nothing}
  "*":
    ADMIN: {channels: [email]}
    CUSTOMER: {channels: [email], template: nowhere}
`))
	s.look(t.Context())
	folder := s.channelConfig.Templates
	for _, want := range []string{
		"line 4: events.X.CUSTOMER is told by email, and has no text: there is no X/default.subject, and no X/default.txt, in " + folder,
		"line 7: events.Y.CUSTOMER is told by email, and has no text: there is no nothing/default.subject",
		"line 10: events.*.CUSTOMER is told by email, and has no text: there is no nowhere/default.subject",
	} {
		failed := s.Stats().Failed
		check.That(t, strings.Contains(failed, want) && strings.Count(failed, "line ") == 3, "%s\ndoes not say\n%s", failed, want)
	}
	check.Equal(t, s.inForce(), "inapp", "in force")
	s.write("rules.yaml", ruled("inapp, email", ""))
	s.write(x+"subject", "s")
	s.write(x+"txt", "t")
	s.write(other+"txt", "two")
	s.look(t.Context())
	if s.inForce() != "inapp email" || s.Stats().Failed != "" || body() != "two" {
		t.Errorf("%s %s: %s", s.inForce(), body(), s.Stats().Failed)
	}
	s.write(x+"txt", "{{nonsense}}")
	s.write(other+"txt", "three")
	s.write("rules.yaml", ruled("inapp", ""))
	s.look(t.Context())
	if failed := s.Stats().Failed; s.inForce() != "inapp email" || body() != "two" || !strings.Contains(failed, "X/default.txt:1") {
		t.Errorf("%s %s: %s", s.inForce(), body(), failed)
	}
}

// However long the files take to be read, readiness and metrics are answered in the meantime.
func TestStatsWhileTheFilesAreRead(t *testing.T) {
	t.Parallel()
	s := newRulesFolder(t, map[string]string{"rules.yaml": ruled("inapp", ""), x + "subject": "s", x + "txt": "t"})
	pipe := filepath.Join(s.folder, "rules.yaml")
	check.OK(t, os.Remove(pipe))
	if err := exec.CommandContext(t.Context(), "mkfifo", pipe).Run(); err != nil {
		t.Skip("mkfifo is missing: nothing keeps a reader waiting")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.look(t.Context())
	}()
	writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits for the reader
	check.OK(t, err)
	stats := s.Stats()
	check.That(t, stats.Failed == "" && s.ready() == nil, "%+v", stats)
	s.write("rules.yaml", ruled("inapp", "")) // for the next reader
	check.OK(t, writer.Close())
	<-done
}

func TestCheckRules(t *testing.T) {
	t.Parallel()
	s := newRulesFolder(t, map[string]string{"rules.yaml": ruled("inapp", ""), x + "subject": "s", x + "txt": "t"})
	s.write("rules.yaml", ruled("email, pigeon, inapp", ""))
	ways := ChannelConfig{EmailServer: "mail", Templates: s.channelConfig.Templates} // no From: that is not checked here
	check.ErrorIs(t, CheckRules(s.path, ways, "pigeon"), nil)
	s.write("rules.yaml", ruled("email, pigeon", "  Y:\n    ADMIN: {channels: [email]}\n"))
	s.write("templates/Z/default.txt", "t")
	err := CheckRules(s.path, ways)
	check.ErrorContains(t, err, `line 4: events.X.CUSTOMER.channels has "pigeon"`, "Z: default needs")
	check.ErrorContains(t, CheckRules(filepath.Join(s.folder, "none.yaml"), ways), "none.yaml")
}

// An event that was planned keeps the rules it was planned by, also when it comes again after others have come into force.
func TestAPlanKeepsItsRules(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(users("RESTAURANT_USER", 1)...)
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "notifier"}))(t)
	file := writeRules(t, "version: 1\nevents: {X: {RESTAURANT_USER: {channels: [inapp, pigeon]}}}")
	n := p.start(&pigeon{}, listening, func(c *Config) {
		c.Exports, c.Rules, c.RulesEvery = exports, file, time.Hour
	})
	w := newWeb(t, n)
	metrics := func() string {
		_, text := w.call(http.MethodGet, "/metrics", "")
		return text
	}
	told := func(id string) { p.publish(event(id, "X")) }
	told("evt-001")
	p.settled(2)
	first := n.Stats().Rules.Version
	check.Contains(t, metrics(), `notifier_rules_info{version="`+first+`"} 1`, "notifier_rules_failed 0")
	replace := func(text string) {
		check.OK(t, os.WriteFile(file, []byte(text), 0o600))
		n.rules.look(t.Context())
	}
	replace("version: 1\nevents: {X: {RESTAURANT_USER: {channels: [inapp]}}}")
	second := n.Stats().Rules.Version
	told("evt-001")
	told("evt-002")
	p.until("both have been seen", func() bool { return n.Stats().Duplicates == 1 && n.Stats().Planned == 2 })
	p.settled(3)
	rows := p.rows()
	check.That(t, len(rows) == 3 && second != first, "%v by %s, then %s", rows, first, second)
	for id, version := range map[string]string{"evt-001": first, "evt-002": second} {
		e, err := n.Event(t.Context(), id)
		check.That(t, err == nil && e.Rules == version, "%s is by %s, want %s (%v)", id, e.Rules, version, err)
	}
	replace("version: 2")
	status, text := w.call(http.MethodGet, "/readyz?verbose", "")
	want := "[+]rules ok, but: version " + second + " stays in force: "
	check.That(t, status == http.StatusOK && strings.Contains(text, want), "%d %s", status, text)
	check.Contains(t, metrics(), "notifier_rules_failed 1", "notifier_rules_loaded_seconds ")
	check.That(t, n.Stats().Rules.Failed != "", "the statistics do not say so")
}
