package journal

import "testing"

func TestAcknowledgementsAreRead(t *testing.T) {
	t.Parallel()

	s := &Store{acked: []byte(`{"stream":"KV_b","seq":`)}

	for data, want := range map[string]uint64{
		`{"stream":"KV_b","seq":17}`:                  17,
		`{"stream":"KV_b","seq": 18 }`:                18,
		`{"stream":"KV_b","seq":0}`:                   0,
		`{"stream":"KV_b","seq":-1}`:                  0,
		`{"stream":"KV_b","seq":17`:                   0,
		`{"stream":"KV_b","seq":17,"duplicate":true}`: 0, // left to those who read JSON
		`{"stream":"KV_c","seq":17}`:                  0,
		`{"error":{"code":400}}`:                      0,
		``:                                            0,
	} {
		if got, ok := s.acknowledged([]byte(data)); got != want || ok != (want > 0) {
			t.Errorf("%s: %d, %t; want %d", data, got, ok, want)
		}
	}
}
