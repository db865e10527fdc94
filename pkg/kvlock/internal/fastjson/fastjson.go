// Package fastjson reads flat JSON objects as this module writes them, in about a third of the time that encoding/json
// takes: a process that waits for a lock reads each record that others write about it.
package fastjson

// Members calls member for each member of a JSON object, with its name and its value, a string with its quotes. It
// reports whether it read the whole object. It stops at a space, at a nested value, at a string with an escape or a
// character that is not ASCII, and when member returns false: the caller then reads the object with encoding/json,
// although member was called for a part of it.
func Members(text string, member func(name, value string) bool) bool {
	n := len(text)
	if n < 2 || text[0] != '{' || text[n-1] != '}' {
		return false
	}
	for at := 1; at < n; {
		name := plainString(text[at:])
		if name < 0 || at+name >= n || text[at+name] != ':' {
			return false
		}
		from := at + name + 1
		size := plainValue(text[from:])
		if size <= 0 || !member(text[at+1:at+name-1], text[from:from+size]) {
			return false
		}
		at = from + size
		if at == n-1 {
			return true
		}
		if text[at] != ',' {
			return false
		}
		at++
	}
	return false
}

// plainString returns the length, with quotes, of the string that text begins with; -1 when text begins with no string
// of plain ASCII.
func plainString(text string) int {
	if text == "" || text[0] != '"' {
		return -1
	}
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return i + 1
		case c < ' ' || c == '\\' || c > '~':
			return -1
		}
	}
	return -1
}

// plainValue returns the length of the value that text begins with: a plain string, a whole number, true or false.
func plainValue(text string) int {
	if text != "" && text[0] == '"' {
		return plainString(text)
	}
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return i
		}
	}
	return -1
}

// SetString sets a field to a value, and reports whether that is a string.
func SetString(field *string, value string) bool {
	if value[0] != '"' {
		return false
	}
	*field = value[1 : len(value)-1]
	return true
}

// SetBool sets a field to a value, and reports whether that is true or false.
func SetBool(field *bool, value string) bool {
	*field = value == "true"
	return *field || value == "false"
}

// SetNumber sets a field to a value, and reports whether that is a whole number, not negative, of up to 19 digits, that
// fits into the field.
func SetNumber[N int | int64 | uint64](field *N, value string) bool {
	if len(value) > 19 || value[0] == '0' && len(value) > 1 {
		return false
	}
	var n uint64 // holds any number of 19 digits
	for i := range len(value) {
		c := value[i]
		if c < '0' || c > '9' {
			return false
		}
		n = 10*n + uint64(c-'0')
	}
	*field = N(n)
	return *field >= 0 && uint64(*field) == n
}
