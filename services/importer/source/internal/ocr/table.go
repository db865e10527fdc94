package ocr

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// sure is the confidence, of 100, from which on a number counts as read.
const sure = 80

// Line is a line of a photo. Lines without words stand between paragraphs.
type Line struct {
	// Text is the line as it was read.
	Text string

	// Sure is Text without the numbers of low confidence.
	Sure string

	// Height is that of the line's tallest word, in pixels.
	Height int
}

// crowded is a mixed number whose gap was not seen, as no recipe has 11 halves: "11/2".
var crowded = regexp.MustCompile(`^(\d+)(\d)([/⁄]\d+)(.*)$`)

// slashed is a number with a zero that has a stroke, which is read as another sign: "35@".
var slashed = regexp.MustCompile(`^(\d+@[\d@]*|@+\d[\d@]*)$`)

// readTable reads the words that tesseract prints as tab-separated values, and makes lines of them.
func readTable(table string) []Line {
	const (
		level, block, paragraph, line, height, confidence, text = 0, 2, 3, 4, 9, 10, 11
		word                                                    = "5"
	)
	var lines []Line
	var last []string
	for row := range strings.Lines(table) {
		f := strings.Split(strings.TrimRight(row, "\r\n"), "\t")
		if len(f) <= text || f[level] != word || strings.TrimSpace(f[text]) == "" {
			continue
		}
		if last == nil || !slices.Equal(f[block:line+1], last[block:line+1]) {
			if last != nil && !slices.Equal(f[block:paragraph+1], last[block:paragraph+1]) {
				lines = append(lines, Line{})
			}
			lines = append(lines, Line{})
		}
		last = f
		tall, _ := strconv.Atoi(f[height]) //nolint:errcheck // 0 is no height
		known, err := strconv.ParseFloat(f[confidence], 64)
		lines[len(lines)-1].add(f[text], tall, err == nil && known >= sure)
	}
	return lines
}

// add appends a word.
func (l *Line) add(word string, height int, certain bool) {
	if parts := crowded.FindStringSubmatch(word); len(parts) > 0 && !isProper(parts[1]+parts[2], parts[3]) {
		word, certain = parts[1]+" "+parts[2]+parts[3]+parts[4], false
	}
	if slashed.MatchString(word) {
		word, certain = strings.ReplaceAll(word, "@", "0"), false
	}
	l.Height = max(l.Height, height)
	l.Text = strings.TrimSpace(l.Text + " " + word)
	if certain || !strings.ContainsFunc(word, unicode.IsNumber) {
		l.Sure = strings.TrimSpace(l.Sure + " " + word)
	}
}

// isProper reports whether a fraction is less than 1.
func isProper(numerator, rest string) bool {
	n, err := strconv.Atoi(numerator)
	d, err2 := strconv.Atoi(strings.TrimLeft(rest, "/⁄"))
	return err == nil && err2 == nil && n < d
}

// Title returns the line that stands out as a title: of the first five with words, one that is taller than most lines, or else the
// first when it is a paragraph of its own. It is empty when there is none.
func Title(lines []Line) string {
	var heights []int
	for _, l := range lines {
		if l.Text != "" {
			heights = append(heights, l.Height)
		}
	}
	if len(heights) == 0 {
		return ""
	}
	slices.Sort(heights)
	best := Line{Height: heights[len(heights)/2] * 7 / 5} // letters with descenders are not enough
	seen := 0
	for _, l := range lines {
		if l.Text == "" {
			continue
		}
		seen++
		if seen > 5 {
			break
		}
		if l.Height > best.Height && strings.ContainsFunc(l.Text, unicode.IsLetter) {
			best = l
		}
	}
	if best.Text == "" && len(lines) > 1 && lines[1].Text == "" {
		return strings.TrimSuffix(lines[0].Text, ":")
	}
	return best.Text
}
