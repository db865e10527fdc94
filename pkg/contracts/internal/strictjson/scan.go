// Package strictjson reads JSON strictly: names are matched exactly, a name that occurs twice is refused, every wrong
// type is reported with its path, and the bytes of a value stay available.
package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxDepth is how deep objects and arrays may be nested.
const MaxDepth = 64

// maxSegment is how many bytes of a sender's name appear in a path.
const maxSegment = 64

// Problem is a problem at one JSON Pointer.
type Problem struct{ Path, Text string }

// Member is one name and value of an object.
type Member struct {
	// Name is the decoded name.
	Name string
	// RawName is the name as it was written, with its quotes.
	RawName []byte
	// Value is the value as it was written, without the white space around it.
	Value []byte
}

// Check returns the first problem that makes data unusable as one JSON document: bytes that are not UTF-8, a syntax
// error, trailing data, deeper nesting than MaxDepth, or a name that occurs twice in one object. It returns nil when
// there is none.
func Check(data []byte) *Problem {
	if !utf8.Valid(data) {
		return &Problem{Text: "is not UTF-8"}
	}
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return &Problem{Text: "is not JSON: " + err.Error()}
	}
	_, problem := walk(data, skipSpace(data, 0), 1)
	return problem
}

// Members splits an object that Check accepted. It returns nil for anything that is not an object.
func Members(object []byte) []Member {
	i := skipSpace(object, 0)
	if i == len(object) || object[i] != '{' {
		return nil
	}
	members := make([]Member, 0, 8)
	i = skipSpace(object, i+1)
	for object[i] != '}' {
		end := skipString(object, i)
		member := Member{Name: string(name(object[i:end])), RawName: object[i:end]}
		start := skipSpace(object, skipSpace(object, end)+1)
		end = skipValue(object, start)
		member.Value = object[start:end]
		members = append(members, member)
		if i = skipSpace(object, end); object[i] == ',' {
			i = skipSpace(object, i+1)
		}
	}
	return members
}

// Elements splits an array that Check accepted. It returns nil for anything that is not an array.
func Elements(array []byte) [][]byte {
	i := skipSpace(array, 0)
	if i == len(array) || array[i] != '[' {
		return nil
	}
	var elements [][]byte
	i = skipSpace(array, i+1)
	for array[i] != ']' {
		end := skipValue(array, i)
		elements = append(elements, array[i:end])
		if i = skipSpace(array, end); array[i] == ',' {
			i = skipSpace(array, i+1)
		}
	}
	return elements
}

// Kind names the type of a value with its article, as it reads in a sentence.
func Kind(value []byte) string {
	value = bytes.TrimLeft(value, " \t\r\n")
	if len(value) == 0 {
		return "nothing"
	}
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// Pointer appends one reference token to a JSON Pointer, escaped, and cut when it is long.
func Pointer(path, segment string) string {
	if len(segment) > maxSegment {
		segment = strings.ToValidUTF8(segment[:maxSegment], "") + "…"
	}
	if strings.ContainsAny(segment, "~/") {
		segment = strings.ReplaceAll(strings.ReplaceAll(segment, "~", "~0"), "/", "~1")
	}
	return path + "/" + segment
}

// walk checks names and depth of the value that starts at i and returns where it ends. The path of a problem is put
// together on the way back, so that it costs nothing for a valid document.
func walk(data []byte, i, depth int) (int, *Problem) {
	switch data[i] {
	case '{', '[':
		if depth > MaxDepth {
			return i, &Problem{Text: fmt.Sprintf("is nested deeper than %d levels", MaxDepth)}
		}
	default:
		return skipValue(data, i), nil
	}
	if data[i] == '[' {
		return walkArray(data, i, depth)
	}
	return walkObject(data, i, depth)
}

func walkArray(data []byte, i, depth int) (int, *Problem) {
	i = skipSpace(data, i+1)
	for n := 0; data[i] != ']'; n++ {
		end, problem := walk(data, i, depth+1)
		if problem != nil {
			problem.Path = Pointer("", strconv.Itoa(n)) + problem.Path
			return end, problem
		}
		if i = skipSpace(data, end); data[i] == ',' {
			i = skipSpace(data, i+1)
		}
	}
	return i + 1, nil
}

func walkObject(data []byte, i, depth int) (int, *Problem) {
	var seen names
	i = skipSpace(data, i+1)
	for data[i] != '}' {
		end := skipString(data, i)
		key := name(data[i:end])
		if !seen.add(key) {
			return i, &Problem{Path: Pointer("", string(key)), Text: "occurs twice"}
		}
		i = skipSpace(data, skipSpace(data, end)+1)
		end, problem := walk(data, i, depth+1)
		if problem != nil {
			problem.Path = Pointer("", string(key)) + problem.Path
			return end, problem
		}
		if i = skipSpace(data, end); data[i] == ',' {
			i = skipSpace(data, i+1)
		}
	}
	return i + 1, nil
}

// names is a set that allocates nothing while it is small, as nearly every object is.
type names struct {
	few  [24][]byte
	n    int
	many map[string]struct{}
}

// add reports whether the name was not there yet.
func (n *names) add(name []byte) bool {
	if n.many != nil {
		before := len(n.many)
		n.many[string(name)] = struct{}{}
		return len(n.many) > before
	}
	for _, other := range n.few[:n.n] {
		if bytes.Equal(other, name) {
			return false
		}
	}
	if n.n < len(n.few) {
		n.few[n.n] = name
		n.n++
		return true
	}
	n.many = make(map[string]struct{}, 4*len(n.few))
	for i := range n.few {
		n.many[string(n.few[i])] = struct{}{}
	}
	n.many[string(name)] = struct{}{}
	return true
}

func name(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		panic("strictjson: a document that was not checked") // A checked one has valid names.
	}
	return []byte(s)
}

func skipSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\t' || data[i] == '\n' || data[i] == '\r') {
		i++
	}
	return i
}

func skipString(data []byte, i int) int {
	for i++; data[i] != '"'; i++ {
		if data[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// skipValue returns where the value that starts at i ends. It counts brackets, which is enough for JSON that
// was checked before.
func skipValue(data []byte, i int) int {
	depth := 0
	for i < len(data) {
		switch data[i] {
		case '"':
			i = skipString(data, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}
