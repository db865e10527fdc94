package caption

import (
	"fmt"
	"html"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// TestCharacterReferences follows "consume a character reference" of HTML, outside of attributes.
func TestCharacterReferences(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"&amp;": "&", "&lt;": "<", "&gt;": ">", "&nbsp;": "\u00a0", "&lrm;": "\u200e", "&rlm;": "\u200f", "&quot;": `"`, "&apos;": "'",
		"&hellip;": "…", "&eacute;": "é", "&Eacute;": "É", "&frac12;": "½", "&rarr;": "→", "&NotEqualTilde;": "≂̸", "&fjlig;": "fj",
		"&CounterClockwiseContourIntegral;": "∳", "&CounterClockwiseContourIntegralx;": "&CounterClockwiseContourIntegralx;",

		// Without the semicolon, only some names count, and only the longest.
		"&amp": "&", "&ampx": "&x", "&amp x": "& x", "&lt3": "<3", "&copy2": "©2", "&notit;": "¬it;", "&notin;": "∉", "&notin": "¬in",
		"&hellip": "&hellip", "&apos": "&apos", "&AMP;": "&", "&Amp;": "&Amp;", "&ampamp;": "&amp;", "&amplt;": "&lt;", "&amp=": "&=",

		// What is none.
		"&": "&", "&&": "&&", "& amp;": "& amp;", "&;": "&;", "&unknown;": "&unknown;", "&amp&": "&&", "&a": "&a", "AT&T": "AT&T",
		"&-amp;": "&-amp;", "&é;": "&é;", "&lt&gt": "<>",

		// Numbers.
		"&#65;": "A", "&#x41;": "A", "&#X4a;": "J", "&#65": "A", "&#65x": "Ax", "&#6": "\x06", "&#9": "\t", "&#x9g": "\tg", "&#39;s": "'s",
		"&#": "&#", "&#;": "&#;", "&#x": "&#x", "&#x;": "&#x;", "&#xg;": "&#xg;", "&#-1;": "&#-1;", "&# 1;": "&# 1;", "&#x1F35E;": "🍞",
		"&#0;": "\ufffd", "&#x0": "\ufffd", "&#xD800;": "\ufffd", "&#xDFFF;": "\ufffd", "&#x110000;": "\ufffd", "&#4294967361;": "\ufffd",
		"&#99999999999999999999999;": "\ufffd", "&#x80;": "€", "&#146;": "’", "&#x9F": "Ÿ", "&#x81;": "\u0081", "&#x10FFFF;": "\U0010ffff",
		"&#00000000000000000065;": "A", "&#xFFFE;": "\ufffe",
	} {
		check.Same(t, fmt.Sprintf("%q gives", text), unescape(text), want)
		if got := unescape("x" + text); got != "x"+want {
			t.Errorf("%q gives %q, want %q", "x"+text, got, "x"+want)
		}
	}
}

// TestNamesAgreeWithStandardLibrary compares with a reader of HTML wherever both know what is right.
func TestNamesAgreeWithStandardLibrary(t *testing.T) {
	t.Parallel()
	for name := range strings.FieldsSeq("AMP Aacute lt LT gt copy reg yen sup1 thorn ETH szlig zwnj deg times divide frac34 middot laquo euro") {
		for _, text := range []string{"&" + name, "&" + name + ";", "&" + name + "y", "a&" + name + ";b&" + name + " c"} {
			if got, want := unescape(text), html.UnescapeString(text); got != want {
				t.Errorf("%q gives %q, want %q", text, got, want)
			}
		}
	}
}
