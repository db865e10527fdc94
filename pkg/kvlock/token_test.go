package kvlock

import (
	"cmp"
	"slices"
	"testing"
)

func TestTokensAreOrdered(t *testing.T) {
	t.Parallel()
	ordered := []Token{{}, {Revision: 1}, {Revision: 2}, {Epoch: 1}, {Epoch: 1, Revision: 9}, {Epoch: 2, Revision: 1}}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := a.Compare(b); got != cmp.Compare(i, j) {
				t.Errorf("%s.Compare(%s) = %d, want %d", a, b, got, cmp.Compare(i, j))
			}
		}
	}
	if !slices.IsSortedFunc(ordered, Token.Compare) || ordered[4].String() != "1-9" {
		t.Errorf("sorted wrong, or written wrong: %v", ordered)
	}
}

func FuzzToken(f *testing.F) {
	f.Add("1-2")
	f.Add("18446744073709551615-0")
	f.Fuzz(func(t *testing.T, s string) {
		token, err := ParseToken(s)
		if err != nil {
			return
		}
		if back, err := ParseToken(token.String()); err != nil || back != token {
			t.Errorf("%q is %s, which is %s, %v", s, token, back, err)
		}
	})
}
