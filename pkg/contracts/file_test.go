package contracts_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// The example of RFC 6920, section 8.1.
func ExampleFile() {
	f := contracts.NewFile(`C:\talks\hello.txt`, []byte("Hello World!"))
	fmt.Println(f.URL())
	back, err := contracts.ParseFileURL(f.URL())
	fmt.Println(back.Name, back == f, err)
	// Output:
	// ni:///sha-256;f4OxZX_x_FO5LcGBSKHWXfwtSx-j1ncoSt3SABJtkGk?name=hello.txt
	// hello.txt true <nil>
}

func TestFileURLIsReadBack(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"soup.vtt": "soup.vtt", "": "", "-": "", "/": "", "..": "", "../../etc/passwd": "passwd", `a\b.srt`: "b.srt", "a b&c=d?#%.vtt": "a b&c=d?#%.vtt",
		"\x00\n.vtt": ".vtt", "מרק.vtt": "מרק.vtt", "\xff.vtt": "\uFFFD.vtt", strings.Repeat("x", 900) + ".vtt": strings.Repeat("x", 196) + ".vtt",
	} {
		f := contracts.NewFile(name, []byte("content"))
		if f.Name != want || f.Digest != sha256.Sum256([]byte("content")) {
			t.Errorf("%q is named %q, want %q", name, f.Name, want)
		}
		back, err := contracts.ParseFileURL(f.URL())
		if err != nil || back != f {
			t.Errorf("%s is read as %+v, %v", f.URL(), back, err)
		}
		if err := (contracts.ImportJob{JobID: "j", OwnerID: "o", URL: f.URL()}).Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestNoOtherFileURL(t *testing.T) {
	t.Parallel()
	good := contracts.NewFile("a.vtt", nil).URL()
	for _, bad := range []string{
		"ni:", "ni:///", "ni:///sha-256;", "ni:///sha-256;abc", strings.Replace(good, "///", "//host/", 1), strings.Replace(good, "ni:", "NI:", 1),
		strings.Replace(good, "///", "//user@/", 1), strings.Replace(good, "sha-256", "md5", 1), good + "#f", good + "&name=b", good + "&x=1",
		good + "%0A", strings.Replace(good, "?", "=?", 1), strings.Replace(good, "?name=a.vtt", "?name=..%2Fa.vtt", 1), good + " ", "file:///etc/passwd",
	} {
		if _, err := contracts.ParseFileURL(bad); !errors.Is(err, contracts.ErrFileURL) {
			t.Errorf("%q: %v", bad, err)
		}
		if err := (contracts.ImportJob{JobID: "j", OwnerID: "o", URL: bad}).Validate(); !errors.Is(err, contracts.ErrInvalid) {
			t.Errorf("%q is let pass: %v", bad, err)
		}
	}
}
