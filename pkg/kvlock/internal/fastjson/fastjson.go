// Package fastjson reads flat JSON objects as this module writes them, in about a third of the time that encoding/json
// takes: a process that waits for a lock reads each record that others write about it.
package fastjson

// Read reads the members of a JSON object into fields, which are names, each with a *string, *bool, *int, *int64 or
// *uint64 after it. It reports whether it read the whole object. It stops at a name that is not among the fields, at a
// value that does not fit, at a space, at a nested value, and at a string with an escape or a character that is not
// ASCII: the caller then reads the object with encoding/json, although some of the fields are set.
func Read(text string, fields []any) bool {
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
		if size <= 0 || !set(fields, text[at+1:at+name-1], text[from:from+size]) {
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

// set sets the field of a name to a value, and reports whether there is one and the value fits.
func set(fields []any, name, value string) bool {
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] != name {
			continue
		}
		switch field := fields[i+1].(type) {
		case *string:
			if value[0] != '"' {
				return false
			}
			*field = value[1 : len(value)-1]
			return true
		case *bool:
			*field = value == "true"
			return *field || value == "false"
		case *int:
			return setNumber(field, value)
		case *int64:
			return setNumber(field, value)
		case *uint64:
			return setNumber(field, value)
		}
	}
	return false
}

// setNumber sets a field to a value, and reports whether that is a whole number, not negative, of up to 19 digits, that
// fits into the field.
func setNumber[N int | int64 | uint64](field *N, value string) bool {
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
