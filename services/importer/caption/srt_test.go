package caption

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestSubRip(t *testing.T) {
	t.Parallel()
	const at = "00:00:00,000 --> 00:00:01,000"
	for _, c := range []struct {
		name, input string
		want        []got
		skipped     int
	}{
		{"as it should be", "1\n" + at + "\na\nb\n\n2\n00:00:01,500 --> 01:00:02,250\nc\n", []got{{"1", span01, "a\nb"}, {"2", "1.5s-1h0m2.25s", "c"}}, 0},
		{"byte order mark and CRLF", "\ufeff1\r\n" + at + "\r\na\r\n\r\n2\r\n" + at + "\r\nb\r\n\r\n", []got{{"1", span01, "a"}, {"2", span01, "b"}}, 0},
		{"empty lines before", "\n\n1\n" + at + "\na", []got{{"1", span01, "a"}}, 0},
		{"full stop and colon", "1\n00:00:00.000 --> 00:00:01:000\na", []got{{"1", span01, "a"}}, 0},
		{"fewer digits", "1\n0:0:0,5 --> 0:00:1,25\na", []got{{"1", "500ms-1.25s", "a"}}, 0},
		{"more digits", "1\n00:00:00,0001 --> 00:00:00,123456\na", []got{{"1", "0s-123ms", "a"}}, 0},
		{"no fraction", "1\n00:00:00 --> 00:00:01,0\na", []got{{"1", span01, "a"}}, 0},
		{"no hours", "1\n00:00,000 --> 00:01,000\na", []got{{"1", span01, "a"}}, 0},
		{"long hours", "1\n00:00:00,000 --> 100:00:00,000\na", []got{{"1", "0s-100h0m0s", "a"}}, 0},
		{"no space", "1\n00:00:00,000-->00:00:01,000\na", []got{{"1", span01, "a"}}, 0},
		{"space around", "  1 \n\t" + at + "  \n  a \n", []got{{"1", span01, "a"}}, 0},
		{"coordinates", "1\n" + at + "  X1:100 X2:200 Y1:1 Y2:2\na", []got{{"1", span01, "a"}}, 0},
		{"no numbers", at + "\na\n\n" + at + "\nb", []got{{"", span01, "a"}, {"", span01, "b"}}, 0},
		{"no numbers but digits", at + "\na\n350\n" + at + "\nb", []got{{"", span01, "a\n350"}, {"", span01, "b"}}, 0},
		{"a number is missing", "1\n" + at + "\na\n\n" + at + "\nb\n\n3\n" + at + "\nc", []got{{"1", span01, "a"}, {"", span01, "b"}, {"3", span01, "c"}}, 0},
		{"no empty line", "1\n" + at + "\na\n2\n" + at + "\nb", []got{{"1", span01, "a"}, {"2", span01, "b"}}, 0},
		{"an empty line in the text", "1\n" + at + "\na\n\nb\n\n2\n" + at + "\nc", []got{{"1", span01, "a\nb"}, {"2", span01, "c"}}, 0},
		{"digits as text", "1\n" + at + "\n350\n\n2\n" + at + "\n1\n2", []got{{"1", span01, "350"}, {"2", span01, "1\n2"}}, 0},
		{"empty cues", "1\n" + at + "\n\n2\n" + at + "\n\n", []got{{"1", span01, ""}, {"2", span01, ""}}, 0},
		{"text before the first cue", "a film\n\n1\n" + at + "\na", []got{{"1", span01, "a"}}, 0},
		{"an arrow in the text", "1\n" + at + "\na --> b\n", []got{{"1", span01, "a --> b"}}, 0},
		{"bad times", "1\n" + at + "\na\n\n2\n00:00:xx,000 --> 00:00:01,000\nlost\n\n3\n" + at + "\nc", []got{{"1", span01, "a"}, {"3", span01, "c"}}, 1},
		{"minutes above 59", "1\n" + at + "\na\n\n2\n00:60:00,000 --> 00:61:01,000\nlost", []got{{"1", span01, "a"}}, 1},
		{"end of a stamp missing", "1\n" + at + "\na\n\n2\n00:00:01,000 --> 5\nlost", []got{{"1", span01, "a"}}, 1},
		{"fraction missing", "1\n" + at + "\na\n\n2\n00:00:01, --> 00:00:02,000\nlost", []got{{"1", span01, "a"}}, 1},
		{"NUL and stray bytes", "1\n" + at + "\na\x00\xff", []got{{"1", span01, "a\ufffd\ufffd"}}, 0},
	} {
		track, err := Parse(strings.NewReader(c.input), Options{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if diff := cmp.Diff(c.want, cuesOf(track)); diff != "" || track.Skipped != c.skipped || track.Format != FormatSRT || !track.Timed {
			t.Errorf("%s: %d skipped, want %d; format %s (-want +got):\n%s", c.name, track.Skipped, c.skipped, track.Format, diff)
		}
	}
}

func TestSubRipMarkup(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"<i>a</i> <B>b</B> <u>c</u>": "a b c", `<font color="#ff0000">red</font>`: "red", `{\an8}top`: "top", `{\i1}a{\i0}b`: "ab",
		"3 < 4 and 5 > 2": "3 < 4 and 5 > 2", "a <b": "a <b", "<3 you": "<3 you", "{a}": "{a}", "{": "{", "<": "<", `{\an8`: `{\an8`,
		"<unknown>a": "<unknown>a", "a<br>b<br/>c": "abc", "&amp; &lt;b&gt;": "& <b>", "one\ntwo": "one two", "<>": "<>", "</>": "</>",
		"<font" + strings.Repeat(" ", 500) + ">": "<font >",
	} {
		check.Same(t, fmt.Sprintf("%q reads", text), (Cue{Format: FormatSRT, Text: text}).Plain(), want)
	}
}

func TestNotSubRip(t *testing.T) {
	t.Parallel()
	_, err := Parse(strings.NewReader("hello\nthere"), Options{Format: FormatSRT})
	wrong, ok := errors.AsType[*FormatError](err)
	if !ok || wrong.Want != FormatSRT || wrong.Found != `"hello"` {
		t.Errorf("got %v", err)
	}
}
