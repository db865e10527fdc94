package charset_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/charset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// samples are a sentence of a recipe, by the encodings in which it is found.
var samples = map[string]string{
	"windows-1252 iso-8859-15 macintosh": "Heat the oven to 350 and add ½ cup of crème fraîche.",
	"windows-1251 koi8-r iso-8859-5":     "Нарежьте лук и морковь, обжарьте на сковороде пять минут.",
	"windows-1255 iso-8859-8":            "מחממים תנור למאה ושמונים מעלות.",
	"windows-1250 iso-8859-2":            "Pokrój cebulę i podsmaż ją na oliwie przez pięć minut.",
	"shift_jis euc-jp iso-2022-jp":       "オーブンを百八十度に予熱します。玉ねぎをみじん切りにします。",
	"gb18030 gbk":                        "把烤箱预热到一百八十度。洋葱切碎，用橄榄油炒五分钟。",
	"big5":                               "把烤箱預熱到一百八十度。洋蔥切碎，用橄欖油炒五分鐘。",
	"euc-kr":                             "오븐을 백팔십도로 예열합니다.",
}

// A text is read by the name that its caller, its header or its meta element gives.
func TestNamedEncodings(t *testing.T) {
	t.Parallel()
	for names, text := range samples {
		for name := range strings.FieldsSeq(names) {
			if text == samples["windows-1252 iso-8859-15 macintosh"] && name != "windows-1252" {
				text = "crème fraîche" // ½ is in none of the others
			}
			encoding := check.Must(htmlindex.Get(name))(t)
			encode := func(text string) []byte { return check.Must(encoding.NewEncoder().Bytes([]byte(text)))(t) }
			meta := `<meta charset="` + name + `">`
			for _, c := range []struct{ text, named, contentType string }{
				{text, name, ""},
				{text, name, "text/html; charset=utf-8"},
				{text, "", "text/html; charset=" + name},
				{meta + text, "", "text/html"},
			} {
				got, found, err := charset.Decode(encode(c.text), c.named, c.contentType)
				check.That(t, err == nil && string(got) == c.text && !found.Guessed, "%s, %+v: %v, read as %+v:\n%s", name, c, err, found, got)
			}
		}
	}
}

// Where nothing names the encoding, the letters of the text do.
func TestGuess(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"windows-1250": "Pokrój cebulę i podsmaż ją na oliwie, dodaj łyżkę masła. Gotuj dziesięć minut.", "iso-8859-2": "Pokrój cebulę, podsmaż ją, dodaj świeży ser i sól, żeby wyszła gęsta.",
		"windows-1251": "Нарежьте лук и морковь, обжарьте на сковороде пять минут.", "koi8-r": "Добавьте две столовые ложки масла и перемешайте.",
		"windows-1253": "Ψιλοκόβουμε το κρεμμύδι και το σοτάρουμε στο λάδι για πέντε λεπτά, προσθέτουμε τους κιμάδες.",
		"windows-1254": "Soğanı doğrayın ve yağda pembeleşinceye kadar kavurun, şekeri ılık sütle karıştırın.",
		"windows-1255": "קוצצים את הבצל ומטגנים אותו בשמן חמש דקות.", "windows-1256": "نقطع البصل ونقليه في الزيت خمس دقائق.",
		"windows-1252": "Faites revenir les oignons à la poêle, ajoutez la crème fraîche et les œufs.",
		"shift_jis":    "玉ねぎをみじん切りにして、バターで五分炒めます。", "euc-jp": "玉ねぎをみじん切りにして、バターで五分炒めます。",
		"euc-kr": "양파를 잘게 썰어 기름에 오분 동안 볶습니다.",
	} {
		encoding := check.Must(htmlindex.Get(name))(t)
		got, found, err := charset.Decode(check.Must(encoding.NewEncoder().Bytes([]byte(text)))(t), "", "")
		check.That(t, err == nil && string(got) == text && found.Guessed, "%s: %+v, %v: %s", name, found, err, got)
	}
	for _, text := range []string{"Röstzwiebeln über Spätzle, süß", "Añadir el azúcar y remover", "Perché è più buono così", "Crème brûlée", "Pão de açúcar à mão", "Smörgås på fläsk"} {
		encoding := check.Must(htmlindex.Get("windows-1252"))(t)
		got, _, err := charset.Decode(check.Must(encoding.NewEncoder().Bytes([]byte(text)))(t), "", "")
		check.That(t, err == nil && string(got) == text, "%q is read as %q, %v", text, got, err)
	}
}

func TestUnicode(t *testing.T) {
	t.Parallel()
	const text = "Crème brûlée: 3 œufs, 玉ねぎ"
	utf16 := func(order unicode.Endianness) string {
		return check.Must(unicode.UTF16(order, unicode.UseBOM).NewEncoder().String(text))(t)
	}
	for _, test := range []struct{ text, named, contentType, want string }{
		{"\ufeff" + text, "windows-1251", "text/plain; charset=koi8-r", "utf-8"}, // a mark comes first
		{utf16(unicode.LittleEndian), "windows-1251", "", "utf-16le"},
		{utf16(unicode.BigEndian), "", "text/plain; charset=koi8-r", "utf-16be"},
		{text, "", "", "utf-8"},
		{text, "", "text/html; charset=iso-8859-1", "utf-8"},
		{strings.Repeat("plain ", 300) + text, "", "", "utf-8"},
	} {
		got, found, err := charset.Decode([]byte(test.text), test.named, test.contentType)
		check.That(t, err == nil && strings.HasSuffix(string(got), text) && found == (charset.Encoding{Name: test.want}),
			"%.40q with names %q, %q: %.40q as %+v, %v: want %s", test.text, test.named, test.contentType, got, found, err, test.want)
	}
	for text, want := range map[string]charset.Encoding{
		"plain": {Name: "utf-8"}, "": {Name: "utf-8"},
		strings.Repeat(text, 20) + "\xe7\x8e": {Name: "utf-8"}, // cut within a character
		"cr\xe8me":                            {Name: "windows-1252", Guessed: true},
	} {
		_, found, err := charset.Decode([]byte(text), "", "")
		check.That(t, err == nil && found == want, "%.40q is read as %+v, %v: want %+v", text, found, err, want)
	}
	for _, name := range []string{"klingon", "replacement"} {
		_, _, err := charset.Decode([]byte(text), name, "")
		check.That(t, err != nil, "the encoding %s passes", name)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("\xff\xfea\x00"), "", "text/plain; charset=windows-1251")
	f.Add([]byte("\xcd\xe0\xf0\xe5\xe6\xfc\xf2\xe5"), "", "")
	f.Add([]byte("\x1b$B%5"), "iso-2022-jp", "")
	f.Fuzz(func(t *testing.T, data []byte, named, contentType string) {
		text, found, err := charset.Decode(data, named, contentType)
		if err != nil {
			return
		}
		check.That(t, len(text) <= 4*len(data)+utf8.UTFMax, "%d bytes of %d", len(text), len(data))
		check.That(t, found.Name == charset.UTF8 || utf8.Valid(text), "%+v gives %q", found, text)
	})
}
