package locale_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/locale"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFitting(t *testing.T) {
	t.Parallel()
	for reader, texts := range map[string][]string{
		"zh-TW": {"zh-tw", "zh-hant", "zh"}, "zh-HK": {"zh-hk", "zh-hant", "zh"}, "zh_Hant_MO": {"zh-hant-mo", "zh-hant-hk", "zh-hant", "zh"},
		"zh-CN": {"zh-cn", "zh"}, "zh-Hans-SG": {"zh-hans-sg", "zh"}, "iw": {"he"}, "iw_IL": {"he-il", "he"}, "in": {"id"}, "IN-id": {"id-id", "id"},
		"no": {"nb"}, "nb-NO": {"nb-no", "nb"}, "tl": {"fil"}, "tl-PH": {"fil-ph", "fil"}, "mo": {"ro"}, "sh": {"sr-latn", "sr"},
		"es-MX": {"es-mx", "es-419", "es"}, "en-AU": {"en-au", "en-001", "en"}, "en_GB": {"en-gb", "en-001", "en"}, "pt-AO": {"pt-ao", "pt-pt", "pt"},
		"default": nil, "": nil, "klingon-x": {"klingon-x", "klingon"},
	} {
		var got []string
		for tag := range locale.Fitting(reader) {
			if !slices.Contains(got, tag) {
				got = append(got, tag)
			}
		}
		rest := got
		for _, want := range append(texts, locale.Default) { // others may be in between
			i := slices.Index(rest, want)
			check.Require(t, i >= 0, "%s: %s is missing or too early in %v", reader, want, got)
			rest = rest[i+1:]
		}
		check.Same(t, reader+" ends in the default", len(rest), 0)
	}
}
