package template

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"
)

// maxDigits bounds the numbers that are written as a language does, in characters.
const maxDigits = 40

var (
	errNoNumber = fmt.Errorf("it is no number below 1e18 of at most %d characters", maxDigits)
	errForms    = errors.New(`want forms and their texts: zero, one, two, few, many as the language has them, and always other, ` +
		`such as {{.Plural .Payload.guests "one" "a guest" "other" "# guests"}}`)
)

// forms are the plural categories of CLDR.
var forms = map[string]plural.Form{
	"zero": plural.Zero, "one": plural.One, "two": plural.Two, "few": plural.Few, "many": plural.Many, "other": plural.Other,
}

// Number returns a number as the user's language writes it, with the decimals that it has.
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

// Plural returns the text whose form the language of the template wants for a number, with the number in place of "#". The forms
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
