package locale_test

import (
	"slices"
	"strings"
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
		check.Equal(t, len(rest), 0, reader+" ends in the default")
	}
}

func TestBest(t *testing.T) {
	t.Parallel()
	for _, test := range [][]string{ // reader, wanted, language of Default, texts
		{"nn", "nb", "en", "da", "nb", "sv"},
		{"da", "nb", "en", "nb", "sv"},
		{"sv", "default", "en", "da", "nb"},
		{"gsw", "de", "en", "de"},
		{"de", "default", "en", "gsw"},
		{"nn", "nb", "da", "nb"},
		{"nn", "nn", "nb", "nn"},
		{"nn", "default", "nb", "da"},
		{"zh-CN", "zh-hans", "en", "zh-hans", "zh-hant"},
		{"zh-HK", "zh-tw", "en", "zh-cn", "zh-tw"},
		{"zh-Hant-HK", "zh-hk", "en", "zh", "zh-hk", "zh-tw"},
		{"sr-ME", "sr-latn", "en", "sr", "sr-latn"},
		{"de-AT", "de-de", "en", "de-de"},
		{"pt-AO", "pt-pt", "en", "pt", "pt-pt"},
		{"es-MX", "es-419", "en", "es", "es-419"},
		{"iw-IL", "he", "en", "he"},
		{"en-US", "default", "en", "en-gb", "he"},
		{"de-AT", "default", "de", "he"},
		{"", "default", "en", "de"},
		{"default", "default", "en", "de"},
		{"uk", "default", "en", "ru"},
		{"klingon-x", "klingon-x", "en", "klingon-x"},
		{"de-klingon", "de", "en", "de"},
		{"de", "default", "en"},
	} {
		got := locale.Among(test[2], append(test[3:], locale.Default)...).Best(test[0])
		check.Equal(t, got, test[1], test[0]+" of "+strings.Join(test[2:], " "))
	}
}
