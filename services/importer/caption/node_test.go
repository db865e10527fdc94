package caption

import (
	"fmt"
	"strings"
	"testing"
)

// dump writes a tree on one line: an element as <tag.class "annotation">...</>, a time as @1s.
func dump(n *Node) string {
	var b strings.Builder
	for _, child := range n.Children {
		switch child.Kind {
		case TextNode:
			fmt.Fprintf(&b, "%q", child.Text)
		case TimeNode:
			fmt.Fprintf(&b, "@%v", child.At)
		case ElementNode:
			b.WriteString("<" + strings.Join(append([]string{child.Tag}, child.Classes...), "."))
			if child.Annotation != "" {
				fmt.Fprintf(&b, " %q", child.Annotation)
			}
			b.WriteString(">" + dump(child) + "</>")
		case RootNode:
			b.WriteString("root in the tree")
		}
	}
	return b.String()
}

// TestMarkup has a case for each state of the tokenizer and each rule for building the tree.
func TestMarkup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, tree, plain string }{
		// Text.
		{"", ``, ""},
		{"text", `"text"`, "text"},
		{"a\nb", `"a\nb"`, "a b"},
		{"a > b", `"a > b"`, "a > b"},
		{" a  b\t", `" a  b\t"`, "a b"},

		// The tags there are.
		{"<b>x</b>", `<b>"x"</>`, "x"},
		{"<i>x</i><u>y</u>", `<i>"x"</><u>"y"</>`, "xy"},
		{"<c>x</c>", `<c>"x"</>`, "x"},
		{"<v Fred>x</v>", `<v "Fred">"x"</>`, "x"},
		{"<lang en>x</lang>", `<lang "en">"x"</>`, "x"},
		{"<ruby>x<rt>y</rt></ruby>", `<ruby>"x"<rt>"y"</></>`, "xy"},
		{"a<b>b<i>c</i>d</b>e", `"a"<b>"b"<i>"c"</>"d"</>"e"`, "abcde"},
		{"<b><b>x</b>y</b>z", `<b><b>"x"</>"y"</>"z"`, "xyz"},

		// The tag state.
		{"a<", `"a"`, "a"},
		{"a<>b", `"a""b"`, "ab"},
		{"a< b>c", `"a""c"`, "ac"},
		{"a<\tb>c", `"a""c"`, "ac"},
		{"a<\nb>c", `"a""c"`, "ac"},
		{"a<.b>c", `"a""c"`, "ac"},
		{"a<-b>c", `"a""c"`, "ac"},
		{"a << b >c", `"a ""c"`, "a c"},
		{"1 < 2 > 0", `"1 "" 0"`, "1 0"},

		// The start tag state: other names are ignored, capitals are other names.
		{"<B>x</B>", `"x"`, "x"},
		{"<bold>x</bold>", `"x"`, "x"},
		{"<font color=red>x</font>", `"x"`, "x"},
		{"<br/>x", `"x"`, "x"},
		{"<b/>x", `"x"`, "x"},
		{"<b<i>x", `"x"`, "x"},
		{"<b&>x", `"x"`, "x"},
		{"<b", `<b></>`, ""},
		{"x<i", `"x"<i></>`, "x"},
		{"<bx", ``, ""},
		{"<b\n>x", `<b>"x"</>`, "x"},
		{"<b\f>x", `<b>"x"</>`, "x"},
		{"<b\v>x", `"x"`, "x"},
		{"<\u00a0b>x", `"x"`, "x"},

		// Classes.
		{"<c.a>x</c>", `<c.a>"x"</>`, "x"},
		{"<c.a.b>x</c>", `<c.a.b>"x"</>`, "x"},
		{"<i.a.b>x</i.a>y</i>", `<i.a.b>"x""y"</>`, "xy"},
		{"<c.>x</c>", `<c>"x"</>`, "x"},
		{"<c..a...b.>x</c>", `<c.a.b>"x"</>`, "x"},
		{"<c.a", `<c.a></>`, ""},
		{"<c.a b c>x</c>", `<c.a>"x"</>`, "x"},
		{"<c.a\tb.c>x</c>", `<c.a>"x"</>`, "x"},
		{"<c.a\nb.c>x</c>", `<c.a>"x"</>`, "x"},
		{"<c.a&amp;b>x</c>", `<c.a&amp;b>"x"</>`, "x"},
		{"<c.colorE5E5E5>x</c>", `<c.colorE5E5E5>"x"</>`, "x"},
		{"<v.loud.slow  Fred  F. >x", `<v.loud.slow "Fred F.">"x"</>`, "x"},

		// Annotations.
		{"<v   Fred \t Flint\nstone\f>x", `<v "Fred Flint stone">"x"</>`, "x"},
		{"<v>x", `<v>"x"</>`, "x"},
		{"<v >x", `<v>"x"</>`, "x"},
		{"<v\nFred>x", `<v "Fred">"x"</>`, "x"},
		{"<v A&amp;B &lt;C&gt;>x", `<v "A&B <C>">"x"</>`, "x"},
		{"<v A&B>x", `<v "A&B">"x"</>`, "x"},
		{"<v A&>x", `<v "A&">"x"</>`, "x"},
		{"<v A&nbsp;&nbsp;B>x", `<v "A` + "\\u00a0\\u00a0" + `B">"x"</>`, "x"},
		{"<v Fred", `<v "Fred"></>`, ""},
		{"<v <b>x", `<v "<b">"x"</>`, "x"},
		{"<b Fred>x", `<b>"x"</>`, "x"},
		{"<c.a Fred>x", `<c.a>"x"</>`, "x"},
		{"<lang  en-GB >x</lang>", `<lang "en-GB">"x"</>`, "x"},
		{"<lang>x</lang>", `<lang>"x"</>`, "x"},
		{"<lang en>a<lang de>b</lang>c</lang>d", `<lang "en">"a"<lang "de">"b"</>"c"</>"d"`, "abcd"},

		// End tags.
		{"x</b>y", `"x""y"`, "xy"},
		{"<b>x</>y", `<b>"x""y"</>`, "xy"},
		{"<b>x</i>y</b>z", `<b>"x""y"</>"z"`, "xyz"},
		{"<b>x</b >y", `<b>"x""y"</>`, "xy"},
		{"<b>x</ b>y", `<b>"x""y"</>`, "xy"},
		{"<b>x</b", `<b>"x"</>`, "x"},
		{"<b>x</b<i>y", `<b>"x""y"</>`, "xy"},
		{"<b>x</", `<b>"x"</>`, "x"},
		{"<b><i>x</b>y</i>z</b>", `<b><i>"x""y"</>"z"</>`, "xyz"},
		{"<v Fred>x</v Fred>y", `<v "Fred">"x""y"</>`, "xy"},
		{"<c.a>x</c.a>y</c>z", `<c.a>"x""y"</>"z"`, "xyz"},
		{"<b>x", `<b>"x"</>`, "x"},

		// Ruby.
		{"<rt>x</rt>", `"x"`, "x"},
		{"<ruby><b><rt>x</rt></b></ruby>", `<ruby><b>"x"</></>`, "x"},
		{"<ruby>a<rt>b</ruby>c", `<ruby>"a"<rt>"b"</></>"c"`, "abc"},
		{"<ruby>a<rt>b<rt>c</rt>d</rt>e", `<ruby>"a"<rt>"b""c"</>"d""e"</>`, "abcde"},
		{"<ruby>a<rt>b</rt>c<rt>d</rt></ruby>", `<ruby>"a"<rt>"b"</>"c"<rt>"d"</></>`, "abcd"},
		{"<ruby>a<rt>b<b>c</ruby>d", `<ruby>"a"<rt>"b"<b>"c""d"</></></>`, "abcd"},
		{"<ruby.x>a<rt.y>b", `<ruby.x>"a"<rt.y>"b"</></>`, "ab"},
		{"<ruby><ruby>a</ruby>b</ruby>c", `<ruby><ruby>"a"</>"b"</>"c"`, "abc"},

		// Timestamps.
		{"a<00:01.000>b", `"a"@1s"b"`, "ab"},
		{"a<01:00:01.500><c> b</c>", `"a"@1h0m1.5s<c>" b"</>`, "a b"},
		{"a<00:01.000", `"a"@1s`, "a"},
		{"<b>a<00:01.000>b</b>", `<b>"a"@1s"b"</>`, "ab"},
		{"a<00:01.00>b", `"a""b"`, "ab"},
		{"a<00:61.000>b", `"a""b"`, "ab"},
		{"a<00:01.000 >b", `"a""b"`, "ab"},
		{"a<00:01.0000>b", `"a""b"`, "ab"},
		{"a<1>b", `"a""b"`, "ab"},
		{"a<5 eggs>b", `"a""b"`, "ab"},
		{"a< 00:01.000>b", `"a""b"`, "ab"},
		{"a<x00:01.000>b", `"a""b"`, "ab"},
		{"a</00:01.000>b", `"a""b"`, "ab"},

		// Character references, which only text and annotations have.
		{"a &amp; b &lt;b&gt;", `"a & b <b>"`, "a & b <b>"},
		{"<b>&amp;amp;</b>", `<b>"&amp;"</>`, "&amp;"},
		{"&lt;b>x&lt;/b>", `"<b>x</b>"`, "<b>x</b>"},
		{"&<b>x</b>;", `"&"<b>"x"</>";"`, "&x;"},
		{"&am<b>p;", `"&am"<b>"p;"</>`, "&amp;"},
		{"<&lt;b>x", `"x"`, "x"},
	} {
		if got := dump(Markup(c.text)); got != c.tree {
			t.Errorf("%q\n is %s\nwant %s", c.text, got, c.tree)
		}
		if got := (Cue{Format: FormatWebVTT, Text: c.text}).Plain(); got != c.plain {
			t.Errorf("%q reads %q, want %q", c.text, got, c.plain)
		}
	}
}

func TestAllWalksInOrder(t *testing.T) {
	t.Parallel()
	var seen []string
	for depth, n := range Markup("a<b>b<i>c</i>d</b>e").All() {
		seen = append(seen, fmt.Sprintf("%d%s%s", depth, n.Tag, n.Text))
	}
	if got, want := strings.Join(seen, " "), "0a 0b 1b 1i 2c 1d 0e"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for range Markup("a<b>b").All() {
		break // stopping early is fine
	}
}

func TestMarkupOfAnyDepth(t *testing.T) {
	t.Parallel()
	const levels = 200_000
	deepest := 0
	for depth := range Markup(strings.Repeat("<b>", levels) + "x").All() {
		deepest = max(deepest, depth)
	}
	if deepest != levels {
		t.Errorf("depth %d, want %d", deepest, levels)
	}
}
