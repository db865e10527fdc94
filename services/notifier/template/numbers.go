package template

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"

	"github.com/expediter-io/expediter/services/notifier/internal/locale"
)

// maxDigits bounds the numbers that are formatted for a language, in characters.
const maxDigits = 40

var (
	errNoNumber = fmt.Errorf("it is no number below 1e18 of at most %d characters", maxDigits)
	errForms    = errors.New(`want forms and their texts: zero, one, two, few, many as the language has them, and always other, ` +
		`such as {{.Plural .Payload.guests "one" "a guest" "other" "# guests"}}`)
)

// forms has the plural categories of CLDR.
var forms = map[string]plural.Form{
	"zero": plural.Zero, "one": plural.One, "two": plural.Two, "few": plural.Few, "many": plural.Many, "other": plural.Other,
}

// Number returns a number in the format of the user's language, with all its decimals.
func (d Data) Number(value any) (Plain, error) {
	text, err := numeral(value)
	if err != nil {
		return "", err
	}
	_, fraction, _ := strings.Cut(text, ".")
	var exact any
	if exact, err = strconv.ParseInt(text, 10, 64); err != nil {
		exact, err = strconv.ParseFloat(text, 64)
	}
	tag := language.Make(cmp.Or(d.Locale, d.language))
	return Plain(message.NewPrinter(tag).Sprint(number.Decimal(exact, number.Scale(len(fraction))))), err
}

// Plural returns the text for the plural form of a number in the template's language, with the number in place of "#". The forms
// come in pairs with their texts.
func (d Data) Plural(value any, pairs ...string) (string, error) {
	text, err := numeral(value)
	if err != nil {
		return "", err
	}
	shown, err := d.Number(value)
	if err != nil {
		return "", err
	}
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	digits := []byte(whole + fraction)
	for i := range digits {
		digits[i] -= '0'
	}
	form := plural.Cardinal.MatchDigits(language.Make(d.language), digits, len(whole), len(fraction))
	var chosen, other *string
	for i, name := range pairs {
		f, known := forms[name]
		switch {
		case i%2 == 1:
			continue
		case !known, i+1 == len(pairs):
			return "", errForms
		case f == form:
			chosen = &pairs[i+1]
		}
		if f == plural.Other {
			other = &pairs[i+1]
		}
	}
	if chosen = cmp.Or(chosen, other); other == nil {
		return "", errForms
	}
	return strings.ReplaceAll(*chosen, "#", string(shown)), nil
}

// numeral returns a number in digits.
func numeral(value any) (string, error) {
	text := fmt.Sprint(value)
	if len(text) > maxDigits || !json.Valid([]byte(text)) {
		return "", errNoNumber
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.Abs(n) >= 1e18 {
		return "", errNoNumber
	}
	if strings.ContainsAny(text, "eE") {
		text = strconv.FormatFloat(n, 'f', -1, 64)
	}
	return strings.TrimSpace(text), nil
}

// The formats of dates and times of day by language, in digits. Other languages use ISO 8601.
var dates, clocks = byTag(map[string]string{
	"02.01.2006": "az be bg da de fr-ch he hy it-ch ka kk mk nb nn no pl ro ru sq tr uk", "02.01.2006.": "bs hr sr", "2.1.2006": "fi",
	"2. 1. 2006": "cs sk sl", "2006. 01. 02.": "hu", "2006. 1. 2.": "ko", "02/01/2006": "ar ca el es fr ga gl hi id it ms pt th vi",
	"02-01-2006": "nl", "2006/01/02": "ja zh", "Jan 2, 2006": "en", "2 Jan 2006": "en-au en-gb en-ie en-in en-nz en-za",
}, "2006-01-02"), byTag(map[string]string{"3:04 PM": "en", "15:04": "en-gb en-ie en-za", "15.04": "da fi id"}, "15:04")

// byTag returns the layouts by tag, and other for all other tags.
func byTag(layouts map[string]string, other string) map[string]string {
	tags := map[string]string{locale.Default: other}
	for layout, list := range layouts {
		for tag := range strings.FieldsSeq(list) {
			tags[tag] = layout
		}
	}
	return tags
}

// layout returns the layout that fits a locale best.
func layout(tags map[string]string, reader string) (found string) {
	for tag := range locale.Fitting(reader) {
		if found = tags[tag]; found != "" {
			break
		}
	}
	return found
}

// Plain is a text of this package that needs no change in the output.
type Plain string

// Date returns the date of a time, as the user's language writes it and in the user's zone. The time is one of Go, a text of RFC
// 3339, or one without a zone such as 2026-11-25T19:30 or 2026-11-25, which is not converted.
func (d Data) Date(value any) (Plain, error) {
	t, _, err := d.moment(value)
	return Plain(t.Format(layout(dates, d.Locale))), err
}

// Time returns the time of day, in the way of Date. It names UTC when the user's zone is not known.
func (d Data) Time(value any) (Plain, error) {
	t, zoned, err := d.moment(value)
	clock := t.Format(layout(clocks, d.Locale))
	if zoned && d.TimeZone == "" {
		clock += " UTC"
	}
	return Plain(clock), err
}

// DateTime returns the date and the time of day.
func (d Data) DateTime(value any) (Plain, error) {
	date, err := d.Date(value)
	clock, _ := d.Time(value) // the same
	return date + " " + clock, err
}

// Words returns an identifier, such as ORDER_CREATED, in words: "Order created".
func (Data) Words(value any) string {
	words := strings.Fields(strings.ToLower(strings.NewReplacer("_", " ", ".", " ", "-", " ").Replace(fmt.Sprint(value))))
	if len(words) > 0 {
		first, size := utf8.DecodeRuneInString(words[0])
		words[0] = string(unicode.ToUpper(first)) + words[0][size:]
	}
	return strings.Join(words, " ")
}

var errNoTime = errors.New("it is no time: want RFC 3339 such as 2026-11-25T19:30:00Z, or without a zone")

// moment reads a time, and reports whether it had a zone. Then the result is in the user's zone.
func (d Data) moment(value any) (t time.Time, zoned bool, err error) {
	if t, ok := value.(time.Time); ok {
		return t.In(d.CreatedAt.Location()), true, nil
	}
	text, _ := value.(string)
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.In(d.CreatedAt.Location()), true, nil
	}
	for _, form := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t, false, nil
		}
	}
	return t, false, errNoTime
}
