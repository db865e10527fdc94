package source

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// FuzzIdentify checks every address that is accepted: it is http or https without a user, reading it again gives the same, and
// of a video nothing is left but eleven harmless characters.
func FuzzIdentify(f *testing.F) {
	for _, address := range []string{
		"https://www.youtube.com/watch?v=dQw4w9WgXcQ", "https://youtu.be/--exec=touc", "https://youtu.be/dQw4w9WgXcQ?v=x", "http://[::1%25eth0]:80/",
		"HTTP://EXAMPLE.com:80/a/../b.vtt?utm_source=x&&a=b#c", "http://bücher.example/%2e%2e/", "file:///etc/passwd", "http://a@b/", "//x", "http://0x7f.1/",
		"http://example.com/?%zz", "http://example.com:/", "http://xn--/", "http://ex\u00adample.com/", "http://example.com/a\\b", "http://\xa9",
	} {
		f.Add(address, "")
		f.Add(address, TypeYouTube)
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
		if got.kind != TypeYouTube {
			check.Require(t, got.video == "" && !strings.ContainsAny(got.id, "/\\.*> \x00"), "%q has id %q and video %q", address, got.id, got.video)
			return
		}
		check.Require(t, len(got.video) == 11 && videoIDs.MatchString("v="+got.video) && got.url == "https://www.youtube.com/watch?v="+got.video && got.id == "youtube:"+got.video,
			"%q names video %q at %q", address, got.video, got.url)
	})
}

// A site has one name in all spellings of its addresses, and another for each port. Addresses in the forms of old resolvers are none.
func TestSite(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"HTTP://EXAMPLE.com./a": "example.com:80", "https://example.com": "example.com:443", "http://example.com:443/": "example.com:443",
		"https://B\u00dccher.example:8443": "xn--bcher-kva.example:8443", "http://[::FFFF:127.0.0.1]/": "127.0.0.1:80",
		"http://[0:0::1]:5/": "[::1]:5", "http://127.1/": "", "http://0x7f000001/": "", "http://2130706433:80": "", "http://[fe80::1%25eth0]/": "",
		"file:a": "",
	} {
		check.Equal(t, Site(address), want, address)
	}
}

func TestTitleOf(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://example.com/tomato-soup.en.vtt":                                 "tomato soup",
		"https://example.com/a/Tomato%20Soup%20-%20quick.vtt":                    "Tomato Soup - quick",
		"https://example.com/Tomato Soup [dQw4w9WgXcQ].en-orig.vtt":              "Tomato Soup",
		"https://example.com/soup (1).txt":                                       "soup",
		"https://example.com/5-minute-bread.vtt":                                 "5 minute bread",
		"https://example.com/מרק-עגבניות.vtt":                                    "מרק עגבניות",
		"https://example.com/" + "soup\u202e\u0000" + ".vtt":                     "",
		"https://example.com/":                                                   "",
		"https://example.com/captions.en.vtt":                                    "",
		"https://example.com/dQw4w9WgXcQ.vtt":                                    "",
		"https://example.com/IMG_2041.jpg":                                       "",
		"https://example.com/2024-05-01 12.33.10.jpg":                            "",
		"https://example.com/en.vtt":                                             "",
		"ni:///sha-256;f4OxZX_x_FO5LcGBSKHWXfwtSx-j1ncoSt3SABJtkGk?name=pea.vtt": "pea",
		"ni:///sha-256;f4OxZX_x_FO5LcGBSKHWXfwtSx-j1ncoSt3SABJtkGk":              "",
	} {
		check.Equal(t, titleOf(address), want, fmt.Sprintf("titleOf(%q)", address))
	}
}
