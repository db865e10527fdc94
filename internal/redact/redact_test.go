package redact_test

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"http://svc:hunter2@host:80/path?token=hunter2#x": "http://host:80/path", "nats://hunter2@host:4222": "nats://host:4222",
		"nats://a:hunter2@h1,nats://b:hunter2@h2": "nats://h2", "nats://h1,nats://h2": "nats://h1,nats://h2", "u:hunter2@host:4222": "host:4222",
		"nats://u:p/hunter2@host": "nats://host", "nats://u:p?hunter2@host?x": "nats://host", "http://host?key=hunter2": "http://host", "": "", "host": "host",
	} {
		check.Equal(t, redact.URL(text), want, fmt.Sprintf("%q became", text))
	}
}

func TestTextsAreBoundedAtCharacters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, clipped, shortened string
		most                     int
	}{
		{"", "", "", 0},
		{"abc", "abc", "abc", 3},
		{"abcd", "abc", "abc…", 3},
		{"aéb", "a", "a…", 2},
		{"aéb", "aé", "aé…", 3},
		{"a\xffb", "ab", "a\xffb", 3},
		{"a\xffbc", "ab", "ab…", 3},
		{"…", "", "…", 2},
	} {
		check.Equal(t, redact.Clip(c.text, c.most), c.clipped, fmt.Sprintf("%q clipped to %d", c.text, c.most))
		check.Equal(t, redact.Shorten(c.text, c.most), c.shortened, fmt.Sprintf("%q shortened to %d", c.text, c.most))
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	parse := func(text string) error { _, err := url.Parse(text); return err }
	for name, err := range map[string]error{
		"a request":       &url.Error{Op: "Post", URL: "http://svc:hunter2@host/x?key=hunter2", Err: io.EOF},
		"one that fails":  fmt.Errorf("resolve: %w", &url.Error{Op: "Get", URL: "http://hunter2@host", Err: errors.New("proxy http://a:hunter2@proxy refused")}),
		"no URL":          parse("nats://u:hunter2/x@host"),
		"no URL, a space": parse("http://u:p hunter2@host"),
		"a text":          errors.New(`dial "nats://u:hunter2@host:4222": refused, https://h/?t=hunter2`),
	} {
		got := redact.Error(err)
		check.That(t, !strings.Contains(got.Error(), "hunter2") && errors.Is(got, err) && got.Error() != "", "%s: %v", name, got)
	}
	check.That(t, redact.Error(nil) == nil, "nil became an error")
}
