package phonetic

// classes folds the phonemes that scripts confuse into one letter each, in the order in which they are tried.
var classes = []struct {
	letter byte
	set    Sound
}{
	{'b', pP | pB | pF | pV},
	{'k', pK | pG | pKh | pGh},
	{'s', pS | pZ | pSh | pZh | pTs | pCh | pJ},
	{'t', pT | pD},
	{'m', pM},
	{'n', pN},
	{'l', pL},
	{'r', pR},
}

// maxSkeletons bounds the readings of one word, because every ambiguous letter doubles them.
const maxSkeletons = 4

// Skeletons returns the consonant classes of a word in each plausible reading, the plainest first, for finding
// candidates across scripts. Vowels, h, y and w are left out. A short skeleton shows little: use it to look, not to decide.
func Skeletons(row []Sound) []string {
	out := []string{""}
	for _, s := range row {
		if s&silent != 0 || s&vowels != 0 {
			continue
		}
		var read [2]byte
		n := 0
		for _, c := range classes {
			if s&c.set != 0 && n < len(read) {
				read[n] = c.letter
				n++
			}
		}
		if n == 1 && s&pH != 0 { // het is h as often as kh, and h is left out
			n++
		}
		out = extend(out, read[:n])
	}
	if out[0] == "" {
		return nil
	}
	return out
}

// extend adds each reading of a sound to each skeleton, as far as the bound allows. Zero is a reading that adds nothing.
func extend(skeletons []string, letters []byte) []string {
	if len(letters) == 0 {
		return skeletons
	}
	if len(letters)*len(skeletons) > maxSkeletons {
		letters = letters[:1]
	}
	out := make([]string, 0, len(letters)*len(skeletons))
	for _, l := range letters {
		for _, s := range skeletons {
			if l == 0 || s != "" && s[len(s)-1] == l {
				out = append(out, s)
				continue
			}
			out = append(out, s+string(l))
		}
	}
	return out
}
