package kvlock

// plain goes over the members of a JSON object as this package writes it: no space, no member within a member, and
// nothing in a string that is written in another way than it reads. It says false for anything else, also where member
// does, and then encoding/json is to be asked: it takes ten times as long, and a process that waits for a lock reads what
// everybody writes about it. What is told of a member is its name, and its value with the quotes of a string.
func plain(text string, member func(name, value string) bool) bool {
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

// plainString is how long the string is that text begins with, with its quotes; -1 when there is none that is plain.
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

// plainValue is how long the value is that text begins with: a plain string, a whole number, true or false.
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

// setString and the others set a field to a value that plain told. They say false when it is of another type.
func setString(field *string, value string) bool {
	if value[0] != '"' {
		return false
	}
	*field = value[1 : len(value)-1]
	return true
}

func setBool(field *bool, value string) bool {
	*field = value == "true"
	return *field || value == "false"
}

// setNumber takes what fits into every type of number that is used, so that there is nothing to be told of an overflow.
func setNumber[N int | int64 | uint64](field *N, value string) bool {
	if len(value) > 18 || value[0] == '0' && len(value) > 1 {
		return false
	}
	var n N
	for i := range len(value) {
		c := value[i]
		if c < '0' || c > '9' {
			return false
		}
		n = 10*n + N(c-'0')
	}
	*field = n
	return true
}
