package charset_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"go.uber.org/goleak"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/charset"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// samples are a few sentences of a recipe, by the encodings in which they are found.
var samples = map[string]string{
	"windows-1252 iso-8859-1": "Die Äpfel schälen und in dünne Scheiben schneiden. Den Ofen auf 180 Grad vorheizen, Butter und Zucker schaumig rühren.",
	"windows-1252":            "Heat the oven to 350° and butter a 9–inch pan. “Don’t overmix,” my grandmother used to say. Add ½ cup of crème fraîche.",
	"iso-8859-1":              "Préchauffez le four à 180 degrés. Épluchez les pommes et coupez-les en dés, puis mélangez la crème fraîche avec la farine.",
	"iso-8859-15":             "Añade la cebolla picada y el jamón a la sartén. Después de cinco minutos, agrega el azúcar y el limón.",
	"windows-1251 koi8-r":     "Нарежьте лук и морковь, обжарьте на сковороде пять минут. Добавьте фарш, посолите и тушите на среднем огне.",
	"windows-1255 iso-8859-8": "מחממים תנור למאה ושמונים מעלות. קוצצים את הבצל ומטגנים בשמן זית חמש דקות. מוסיפים את העגבניות ומבשלים על אש נמוכה.",
	"windows-1256":            "سخن الفرن إلى مئة وثمانين درجة. قطع البصل واقله في زيت الزيتون خمس دقائق. أضف الطماطم والملح والفلفل.",
	"iso-8859-2":              "Rozgrzej piekarnik do stu osiemdziesięciu stopni. Pokrój cebulę i podsmaż ją na oliwie przez pięć minut.",
	"windows-1250":            "Wymieszaj śmietanę z mąką i dodaj łyżkę soli. Piecz w piekarniku przez sześćdziesiąt minut, aż ciasto się zrumieni.",
	"windows-1254 iso-8859-9": "Fırını yüz seksen dereceye ısıtın. Soğanı doğrayın ve zeytinyağında beş dakika kavurun.",
	"windows-1253 iso-8859-7": "Προθερμαίνουμε τον φούρνο στους εκατόν ογδόντα βαθμούς. Κόβουμε το κρεμμύδι και το τηγανίζουμε για πέντε λεπτά.",
	"shift_jis euc-jp":        "オーブンを百八十度に予熱します。玉ねぎをみじん切りにして、油で五分間炒めます。小麦粉と牛乳を加えてよく混ぜます。",
	"iso-2022-jp":             "オーブンを百八十度に予熱します。玉ねぎをみじん切りにして、油で五分間炒めます。",
	"gb18030 gbk":             "把烤箱预热到一百八十度。洋葱切碎，用橄榄油炒五分钟。加入西红柿、盐和胡椒，小火煮二十分钟。",
	"big5":                    "把烤箱預熱到一百八十度。洋蔥切碎，用橄欖油炒五分鐘。加入番茄、鹽和胡椒，小火煮二十分鐘。",
	"euc-kr":                  "오븐을 백팔십도로 예열합니다. 양파를 잘게 썰어 올리브유에 오 분간 볶습니다. 토마토와 소금을 넣고 끓입니다.",
}

func encode(t *testing.T, name, text string) []byte {
	t.Helper()
	e := check.Must(htmlindex.Get(name))(t)
	return check.Must(e.NewEncoder().Bytes([]byte(text)))(t)
}

func read(t *testing.T, data []byte, named, declared string) (string, charset.Encoding) {
	t.Helper()
	r, found, err := charset.NewReader(iotest.HalfReader(bytes.NewReader(data)), named, declared)
	check.OK(t, err)
	text := check.Must(io.ReadAll(r))(t)
	if decoded, same, err := charset.Decode(data, named, declared); err != nil || same != found || !bytes.Equal(decoded, text) {
		t.Errorf("Decode gives %.40q as %+v, error %v: want %.40q as %+v", decoded, same, err, text, found)
	}
	return string(text), found
}

// A text is read whether something names its encoding or not; a name that does not fit is as good as none.
func TestEncodings(t *testing.T) {
	t.Parallel()
	for names, text := range samples {
		for name := range strings.FieldsSeq(names) {
			for _, text := range []string{text, "WEBVTT\n\n00:00:01.000 --> 00:00:09.000\n" + text + "\n", "<p>" + text + "</p>"} {
				data := encode(t, name, text)
				for _, given := range [][2]string{{name, ""}, {"", name}, {"", ""}, {"", "utf-8"}, {"", "nonsense"}} {
					got, found := read(t, data, given[0], given[1])
					guessed := given[0] != name && given[1] != name
					check.That(t, got == text && found.Guessed == guessed, "%s with names %q is read as %+v:\n%s", name, given, found, got)
				}
			}
		}
	}
}

func TestUnicode(t *testing.T) {
	t.Parallel()
	const text = "Crème brûlée: 3 œufs, 玉ねぎ"
	for name, e := range map[string]encoding.Encoding{
		"utf-16le": unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), "utf-16be": unicode.UTF16(unicode.BigEndian, unicode.UseBOM),
		"utf-32": utf32.UTF32(utf32.LittleEndian, utf32.UseBOM), "UTF-32": utf32.UTF32(utf32.BigEndian, utf32.UseBOM), "utf-8": unicode.UTF8BOM,
	} {
		data := check.Must(e.NewEncoder().Bytes([]byte(text)))(t)
		if got, found := read(t, data, "windows-1251", "koi8-r"); got != text || found != (charset.Encoding{Name: strings.ToLower(name)}) {
			t.Errorf("%s: %q as %+v: want the byte order mark believed", name, got, found)
		}
		if data = data[2:]; strings.HasPrefix(name, "utf-16") {
			got, found := read(t, data, "", "")
			check.That(t, got == text && found.Guessed, "%s without its mark: %q as %+v", name, got, found)
		}
	}
	for _, test := range []struct{ text, named, declared, want string }{
		{text, "", "", "utf-8"},
		{text, "", "iso-8859-1", "utf-8"},
		{"plain", "", "windows-1251", "utf-8"},
		{"", "", "", "utf-8"},
		{strings.Repeat(text, 20) + "\xff", "", "", "utf-8"},
		{text, "koi8-r", "", "koi8-r"},
	} {
		got, found := read(t, []byte(test.text), test.named, test.declared)
		check.That(t, found == (charset.Encoding{Name: test.want}) && (test.want != "utf-8" || got == test.text),
			"%.40q with names %q, %q: %.40q as %+v: want %s", test.text, test.named, test.declared, got, found, test.want)
	}
	_, _, err := charset.NewReader(strings.NewReader(text), "klingon", "")
	check.That(t, err != nil, "an encoding that is not known passes")
	broken := errors.New("broken")
	if r, _, err := charset.NewReader(iotest.ErrReader(broken), "", ""); err != nil {
		t.Error(err)
	} else if _, err := io.ReadAll(r); !errors.Is(err, broken) {
		t.Errorf("error %v: want that of the reader", err)
	}
}

// A character that stands across the end of the sample is whole all the same.
func TestLongText(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("玉ねぎをみじん切りに。", 60_000)
	for _, name := range []string{"utf-8", "shift_jis"} {
		got, found := read(t, encode(t, name, "x"+text), "", "")
		check.That(t, got == "x"+text && found.Name == name, "%s: read as %+v, %d bytes of %d", name, found, len(got), len(text)+1)
	}
}

func TestDeclared(t *testing.T) {
	t.Parallel()
	for want, given := range map[string][2]string{
		"windows-1251": {`<meta charset="cp1251">`, ""}, "koi8-r": {"<p>", "text/html; charset=KOI8-R"}, "": {"<p>windows-1252", "text/html"},
		"Shift_JIS": {`<?xml version="1.0" encoding='Shift_JIS'?><html>`, "text/html"},
		"big5":      {`<html><head><meta http-equiv=Content-Type content="text/html; charset=big5">`, "text/html"},
	} {
		check.Equal(t, want, charset.Declared([]byte(given[0]), given[1]))
	}
}

func FuzzNewReader(f *testing.F) {
	f.Add([]byte("\xff\xfea\x00"), "", "windows-1251")
	f.Add([]byte("\xcd\xe0\xf0\xe5\xe6\xfc\xf2\xe5"), "", "")
	f.Add([]byte("\x1b$B%5"), "iso-2022-jp", "utf-8")
	f.Fuzz(func(t *testing.T, data []byte, named, declared string) {
		r, found, err := charset.NewReader(bytes.NewReader(data), named, declared)
		if err != nil {
			return
		}
		text, err := io.ReadAll(r)
		check.Require(t, err == nil && len(text) <= 4*len(data)+utf8.UTFMax, "%d bytes of %d, error %v", len(text), len(data), err)
		check.That(t, found.Name == charset.UTF8 || utf8.Valid(text), "%+v gives %q", found, text)
	})
}
