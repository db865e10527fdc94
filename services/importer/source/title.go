package source

import (
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/pkg/contracts"
)

var (
	// trailing is what browsers append to a second copy, and yt-dlp to each: "(1)", "[dQw4w9WgXcQ]".
	trailing = regexp.MustCompile(`[\s._-]*(?:\(\d+\)|\[[\w-]{11}\])\s*$`)

	// nothing are words that say what kind of file it is, and not what is in it.
	nothing = strings.Fields("auto caption captions cc clip copy default dl download dsc file image img index " +
		"ingredientes ingredienti " + //nolint:misspell // Spanish
		"ingredients ingrédients input mov new orig output photo picture pxl recipe scan screen screenshot shot srt sub subs " +
		"subtitle subtitles test text timedtext tmp track transcript transcription txt untitled upload vid video vtt " +
		"whatsapp zutaten")
)

// titleOf makes a title of the last segment of an address, for files that say nothing of themselves: "tomato-soup.en.vtt"
// is "tomato soup". It is empty for a name that tells nothing either, such as a number.
func titleOf(address string) string {
	name := ""
	if file, err := contracts.ParseFileURL(address); err == nil {
		name = file.Name
	} else if u, err := url.Parse(address); err == nil {
		name = path.Base(u.Path)
	}
	name = withoutLanguage(strings.TrimSuffix(name, path.Ext(name)))
	name = trailing.ReplaceAllString(name, "")
	if !strings.Contains(name, " ") {
		name = strings.NewReplacer("-", " ", "_", " ", "+", " ", ".", " ").Replace(name)
	}
	return dish(line(name))
}

// dish returns a title, or "" when no word of it may name a dish.
func dish(title string) string {
	for word := range strings.FieldsSeq(strings.ToLower(title)) {
		if word = strings.TrimRight(word, ":"); tells(word) && !slices.Contains(nothing, word) {
			return title
		}
	}
	return ""
}

// tells reports whether a word may name a dish: it has three letters, or two of a script with many letters, and is no id or
// hash. Ids and hashes mix letters and digits, or are Latin without a vowel.
func tells(word string) bool {
	letters, vowels, foreign := 0, 0, 0
	for _, r := range word {
		switch {
		case unicode.IsDigit(r):
			return false
		case r > unicode.MaxASCII && unicode.IsLetter(r):
			letters, foreign = letters+1, foreign+1
		case unicode.IsLetter(r):
			letters++
		}
		if strings.ContainsRune("aeiouy", r) {
			vowels++
		}
	}
	return letters > 2 && vowels > 0 || foreign > 1
}

// withoutLanguage takes off the language that programs which fetch captions put before the ending: ".en", ".pt-BR".
func withoutLanguage(name string) string {
	ext := path.Ext(name)
	if len(ext) < 3 || len(ext) > 12 || ext == name {
		return name
	}
	tag := strings.TrimSuffix(ext[1:], "-orig")
	if base, _, _ := strings.Cut(tag, "-"); len(base) > 3 {
		return name
	}
	if _, err := language.Parse(tag); err != nil {
		return name
	}
	return strings.TrimSuffix(name, ext)
}
