package jobmsg

import (
	"bytes"
	"encoding/json"
)

// Encode returns the bytes of a job's arguments or a step's result: JSON, and a []byte as it is. A json.RawMessage that is JSON keeps its
// spaces.
func Encode(value any) ([]byte, error) {
	switch data := value.(type) {
	case []byte:
		return data, nil
	case *[]byte:
		if data != nil {
			return *data, nil
		}
	case json.RawMessage:
		if json.Valid(data) {
			return data, nil
		}
	}
	return json.Marshal(value)
}

// Decode stores the value of bytes that Encode returned in what into points to.
func Decode(data []byte, into any) error {
	switch to := into.(type) {
	case *[]byte:
		*to = bytes.Clone(data)
		return nil
	case **[]byte:
		*to = new(bytes.Clone(data))
		return nil
	}
	return json.Unmarshal(data, into)
}
