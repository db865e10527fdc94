package kvlock

import "strconv"

// plainWriter writes a JSON object byte for byte as encoding/json does, for what plain reads: a record is written for every
// lock that is taken or given up, and encoding/json takes five times as long. When other is set something in it would be
// written in another way, and encoding/json is to be asked.
type plainWriter struct {
	text  []byte
	other bool
}

func newPlainWriter() plainWriter { return plainWriter{text: make([]byte, 0, 256)} }

// end returns the object, and false when it is another.
func (o *plainWriter) end() ([]byte, bool) { return append(o.text, '}'), !o.other }

func (o *plainWriter) member(name string) {
	if len(o.text) == 0 {
		o.text = append(o.text, '{', '"')
	} else {
		o.text = append(o.text, ',', '"')
	}
	o.text = append(o.text, name...)
	o.text = append(o.text, '"', ':')
}

func (o *plainWriter) string(name, value string) {
	for i := range len(value) {
		switch c := value[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			o.other = true
		}
	}
	o.member(name)
	o.text = append(o.text, '"')
	o.text = append(o.text, value...)
	o.text = append(o.text, '"')
}

func (o *plainWriter) number(name string, value int64) {
	o.member(name)
	o.text = strconv.AppendInt(o.text, value, 10)
}

// stringIf and the others leave the member out when it is zero.
func (o *plainWriter) stringIf(name, value string) {
	if value != "" {
		o.string(name, value)
	}
}

func (o *plainWriter) numberIf(name string, value int64) {
	if value != 0 {
		o.number(name, value)
	}
}

func (o *plainWriter) revisionIf(name string, value uint64) {
	if value != 0 {
		o.member(name)
		o.text = strconv.AppendUint(o.text, value, 10)
	}
}

func (o *plainWriter) trueIf(name string, value bool) {
	if value {
		o.member(name)
		o.text = append(o.text, "true"...)
	}
}
