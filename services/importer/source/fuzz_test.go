package source

import (
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// FuzzIdentify checks what holds of every address that is accepted: it is http or https without a user, reading it again gives
// the same, and of a video nothing is left but eleven harmless characters.
func FuzzIdentify(f *testing.F) {
	for _, address := range []string{
		"https://www.youtube.com/watch?v=dQw4w9WgXcQ", "https://youtu.be/--exec=touc", "https://youtu.be/dQw4w9WgXcQ?v=x", "http://[::1%25eth0]:80/",
		"HTTP://EXAMPLE.com:80/a/../b.vtt?utm_source=x&&a=b#c", "http://bücher.example/%2e%2e/", "file:///etc/passwd", "http://a@b/", "//x", "http://0x7f.1/",
		"http://example.com/?%zz", "http://example.com:/", "http://xn--/", "http://ex\u00adample.com/", "http://example.com/a\\b", "http://\xa9",
	} {
		f.Add(address, "")
		f.Add(address, contracts.SourceYouTube)
	}
	f.Fuzz(func(t *testing.T, address, kind string) {
		got, err := identify(Request{URL: address, Type: kind})
		if err != nil {
			if _, ok := err.(*Error); !ok { //nolint:errorlint // the error itself has to be one
				t.Fatalf("%q: error %T", address, err)
			}
			return
		}
		u, err := url.Parse(got.url)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Host == "" || u.Fragment != "" || len(got.url) > maxURL {
			t.Fatalf("%q became %q", address, got.url)
		}
		again, err := identify(Request{URL: got.url, Type: got.kind})
		check.Require(t, err == nil && again == got, "%q became %+v, and again %+v: %v", address, got, again, err)
		if got.kind != contracts.SourceYouTube {
			check.Require(t, got.video == "" && !strings.ContainsAny(got.id, "/\\.*> \x00"), "%q has id %q and video %q", address, got.id, got.video)
			return
		}
		check.Require(t, validVideoID(got.video) && got.url == "https://www.youtube.com/watch?v="+got.video && got.id == "youtube:"+got.video,
			"%q names video %q at %q", address, got.video, got.url)
	})
}

func FuzzVideoID(f *testing.F) {
	f.Add("dQw4w9WgXcQ")
	f.Add("--exec=touc")
	f.Add("dQw4w9WgXc\x00")
	f.Fuzz(func(t *testing.T, id string) {
		if validVideoID(id) && (len(id) != 11 || strings.Trim(id, "-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "") {
			t.Errorf("%q passes", id)
		}
	})
}
