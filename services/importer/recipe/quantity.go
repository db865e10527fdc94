package recipe

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Quantity is an amount as text. It reads numbers and null as well, because writers of JSON do not agree.
type Quantity string

// UnmarshalJSON accepts a string, a number, which keeps its digits, or null, which is no quantity.
func (q *Quantity) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	if len(data) > 0 && (data[0] == '-' || data[0] >= '0' && data[0] <= '9') {
		var n json.Number
		if err := json.Unmarshal(data, &n); err != nil {
			return fmt.Errorf("recipe: decode qty %.40q: %w", data, err)
		}
		*q = Quantity(n)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("recipe: decode qty %.40q, which is no string, number or null: %w", data, err)
	}
	*q = Quantity(text)
	return nil
}
